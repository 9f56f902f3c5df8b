package bindery

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// hostLengthMax is the length of the longest host name that DNS knows.
const hostLengthMax = 253

// Address is where a backend is: scheme, host, port, and the path prefix that a proxy in front of it wants, if any.
type Address struct {
	plaintext bool
	host      string
	port      uint16
	prefix    string
}

// ParseAddress reads https://host, https://host:port or host:port, each with an optional path prefix. An address without a
// scheme is https.
func ParseAddress(text string) (Address, error) {
	address, err := parseAddress(text)
	if err != nil {
		return Address{}, &ConfigError{
			Reason:  "AddressInvalid",
			message: fmt.Sprintf("%q is no address of a backend: %v; write https://host or https://host:port", text, err),
		}
	}
	return address, nil
}

// Audience returns the audience that tokens for the backend at this address must have. It is the address in its one spelling:
// scheme and host in lower case, the port only where it is not the scheme's default, and no trailing slash.
func Audience(address string) (string, error) {
	parsed, err := ParseAddress(address)
	if err != nil {
		return "", err
	}
	return parsed.String(), nil
}

// String returns the address in its one spelling, which is also the audience of tokens for it.
func (a Address) String() string {
	scheme, defaultPort := "https", uint16(443)
	if a.plaintext {
		scheme, defaultPort = "http", 80
	}
	host := a.host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if a.port != defaultPort {
		host += ":" + strconv.Itoa(int(a.port))
	}
	return scheme + "://" + host + a.prefix
}

// Host returns the host, without the brackets of an IPv6 address: what a certificate must be for.
func (a Address) Host() string { return a.host }

// Port returns the port, also where it is the scheme's default.
func (a Address) Port() uint16 { return a.port }

// Plaintext tells whether the address is http://, which is for loopback alone.
func (a Address) Plaintext() bool { return a.plaintext }

// Loopback tells whether nothing leaves this machine: a loopback IP address, or localhost.
func (a Address) Loopback() bool {
	if ip, err := netip.ParseAddr(a.host); err == nil {
		return ip.IsLoopback()
	}
	return a.host == "localhost"
}

func parseAddress(text string) (Address, error) {
	var address Address
	rest := text
	if scheme, after, found := strings.Cut(text, "://"); found {
		switch strings.ToLower(scheme) {
		case "https":
		case "http":
			address.plaintext = true
		default:
			return Address{}, errors.New("its scheme is neither https nor http")
		}
		rest = after
	}
	if strings.ContainsAny(rest, "?#") {
		return Address{}, errors.New("it has a query or a fragment")
	}
	authority, path := rest, ""
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		authority, path = rest[:slash], rest[slash:]
	}
	if strings.Contains(authority, "@") {
		return Address{}, errors.New("it names a user")
	}
	host, port, err := splitPort(authority)
	if err != nil {
		return Address{}, err
	}
	if address.host, err = parseHost(host); err != nil {
		return Address{}, err
	}
	if address.port, err = parsePort(port, address.plaintext); err != nil {
		return Address{}, err
	}
	if address.prefix, err = parsePrefix(path); err != nil {
		return Address{}, err
	}
	return address, nil
}

// portOf is the text of a port; absent differs from empty.
type portOf struct {
	digits string
	given  bool
}

func splitPort(authority string) (string, portOf, error) {
	if bracketed, found := strings.CutPrefix(authority, "["); found {
		ip, rest, closed := strings.Cut(bracketed, "]")
		if !closed {
			return "", portOf{}, errors.New("its bracket is not closed")
		}
		if parsed, err := netip.ParseAddr(ip); err != nil || !parsed.Is6() || parsed.Zone() != "" {
			return "", portOf{}, errors.New("what stands in brackets is no IPv6 address")
		}
		digits, given := strings.CutPrefix(rest, ":")
		if !given && rest != "" {
			return "", portOf{}, errors.New("something other than a port follows the IPv6 address")
		}
		return ip, portOf{digits, given}, nil
	}
	host, digits, given := strings.Cut(authority, ":")
	return host, portOf{digits, given}, nil
}

func parseHost(host string) (string, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.String(), nil
	}
	if host == "" {
		return "", errors.New("it has no host")
	}
	if len(host) > hostLengthMax {
		return "", errors.New("its host is no DNS name")
	}
	for label := range strings.SplitSeq(host, ".") {
		if !isHostLabel(label) {
			return "", errors.New("its host is no DNS name")
		}
	}
	return strings.ToLower(host), nil
}

func isHostLabel(label string) bool {
	if len(label) < 1 || len(label) > 63 {
		return false
	}
	for _, char := range []byte(label) {
		if !isAlphanumeric(char) && char != '-' && char != '_' {
			return false
		}
	}
	return true
}

func isAlphanumeric(char byte) bool {
	return char >= 'a' && char <= 'z' || char >= 'A' && char <= 'Z' || char >= '0' && char <= '9'
}

func parsePort(port portOf, plaintext bool) (uint16, error) {
	if !port.given {
		if plaintext {
			return 80, nil
		}
		return 443, nil
	}
	for _, char := range []byte(port.digits) {
		if char < '0' || char > '9' {
			return 0, errors.New("its port is no number")
		}
	}
	number, err := strconv.ParseUint(port.digits, 10, 16)
	if err != nil || number == 0 {
		return 0, errors.New("its port is not between 1 and 65535")
	}
	return uint16(number), nil
}

// parsePrefix reads the path below which a proxy serves the backend. It may hold what needs no escape in a URL.
func parsePrefix(path string) (string, error) {
	prefix := strings.TrimSuffix(path, "/")
	if prefix == "" {
		return "", nil
	}
	for segment := range strings.SplitSeq(prefix[1:], "/") {
		if segment == "" || segment == "." || segment == ".." {
			return "", errors.New("its path has an empty segment, or one of dots")
		}
		for _, char := range []byte(segment) {
			if !isAlphanumeric(char) && !strings.ContainsRune("-._~", rune(char)) {
				return "", errors.New("its path has characters other than letters, digits, '-', '.', '_' and '~'")
			}
		}
	}
	return prefix, nil
}
