package bindery

import (
	"errors"
	"strings"
	"testing"
)

func TestOneAddressHasOneAudience(t *testing.T) {
	for address, expect := range map[string]string{
		"https://bind.example.com":            "https://bind.example.com",
		"https://bind.example.com/":           "https://bind.example.com",
		"https://bind.example.com:443":        "https://bind.example.com",
		"HTTPS://BIND.Example.com:0443/":      "https://bind.example.com",
		"bind.example.com":                    "https://bind.example.com",
		"bind.example.com:443":                "https://bind.example.com",
		"https://bind.example.com:8443/":      "https://bind.example.com:8443",
		"https://bind.example.com:80":         "https://bind.example.com:80",
		"http://127.0.0.1:80":                 "http://127.0.0.1",
		"http://localhost:8080":               "http://localhost:8080",
		"https://[2001:DB8:0:0::1]:443":       "https://[2001:db8::1]",
		"[::1]:6443":                          "https://[::1]:6443",
		"https://Proxy.example.com/Bindery/":  "https://proxy.example.com/Bindery",
		"https://proxy.example.com:443/a/b_c": "https://proxy.example.com/a/b_c",
	} {
		audience, err := Audience(address)
		if err != nil || audience != expect {
			t.Errorf("%s: %q, %v", address, audience, err)
		}
		if again, err := Audience(audience); again != audience || err != nil {
			t.Errorf("%s is not its own audience: %q, %v", audience, again, err)
		}
	}
}

func TestWhatIsNoAddressIsRefused(t *testing.T) {
	for address, fault := range map[string]string{
		"":                                "no host",
		"https://":                        "no host",
		"https://:443":                    "no host",
		"ftp://bind.example.com":          "neither https nor http",
		"https://bind.example.com?x":      "a query",
		"https://bind.example.com/a?x":    "a query",
		"https://me@bind.example.com":     "a user",
		"https://bind.example.com:0":      "between 1 and 65535",
		"https://bind.example.com:65536":  "between 1 and 65535",
		"https://bind.example.com:+443":   "no number",
		"https://bind.example.com:":       "between 1 and 65535",
		"https://bind..example.com":       "no DNS name",
		"https://bücher.example":          "no DNS name",
		"https://[::1":                    "not closed",
		"https://[::1]x":                  "other than a port",
		"https://[host]":                  "no IPv6",
		"https://[::1%25eth0]":            "no IPv6",
		"https://bind.example.com//a":     "empty segment",
		"https://bind.example.com/../a":   "one of dots",
		"https://bind.example.com/a b":    "characters other",
		"https://bind.example.com/%2e%2e": "characters other",
	} {
		_, err := ParseAddress(address)
		var config *ConfigError
		if !errors.As(err, &config) || config.Reason != "AddressInvalid" || !strings.Contains(err.Error(), fault) {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestLoopbackIsToldFromTheRest(t *testing.T) {
	for address, expect := range map[string]bool{
		"http://127.0.0.1:1": true, "http://127.9.9.9:1": true, "http://[::1]:1": true, "http://LOCALHOST:1": true,
		"http://localhost.example.com:1": false, "http://0.0.0.0:1": false, "http://10.0.0.1:1": false,
	} {
		parsed, err := ParseAddress(address)
		if err != nil || parsed.Loopback() != expect {
			t.Errorf("%s: %v, %v", address, parsed.Loopback(), err)
		}
	}
}

func FuzzAddress(f *testing.F) {
	f.Add("https://bind.example.com:8443/a")
	f.Add("[::1]:1")
	f.Fuzz(func(t *testing.T, text string) {
		audience, err := Audience(text)
		if err != nil {
			return
		}
		if !strings.HasPrefix(audience, "https://") && !strings.HasPrefix(audience, "http://") || strings.ContainsAny(audience, "@?# ") {
			t.Errorf("%q became %q", text, audience)
		}
		if again, err := Audience(audience); again != audience || err != nil {
			t.Errorf("%q is not its own audience: %q, %v", audience, again, err)
		}
	})
}
