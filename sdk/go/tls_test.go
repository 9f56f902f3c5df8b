package bindery

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

func provider(context.Context, int, any) (any, error) {
	return &pb.GetProviderResponse{Provider: &pb.Provider{}}, nil
}

// checkFault makes a call, and checks what failed about the connection; empty for nothing.
func checkFault(t *testing.T, address string, fault Fault, advice string, options ...Option) {
	t.Helper()
	options = append([]Option{WithRetry(RetryPolicy{Attempts: 1})}, options...)
	client, err := NewClient(address, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = client.GetProvider(t.Context())
	if fault == "" {
		if err != nil {
			t.Error(err)
		}
		return
	}
	if !errors.Is(err, fault) || !strings.Contains(err.Error(), advice) || !strings.Contains(err.Error(), address) {
		t.Errorf("instead of %s: %v", fault, err)
	}
}

func TestTheGivenCAAndNameAloneAreTrusted(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	s := serve(t, ca.serving(t, "127.0.0.1"), provider)
	checkFault(t, s.address, "", "", WithCAPEM(ca.pem()))
	checkFault(t, s.address, FaultCertificateUntrusted, "CA's certificate", WithCAPEM(other.pem()))
	checkFault(t, s.address, FaultCertificateUntrusted, "CA's certificate")
	checkFault(t, s.address, FaultCertificateName, "another name", WithCAPEM(ca.pem()), WithServerName("bind.example.com"))

	named := serve(t, ca.serving(t, "bind.example.com"), provider)
	checkFault(t, named.address, FaultCertificateName, "another name", WithCAPEM(ca.pem()))
	checkFault(t, named.address, "", "", WithCAPEM(ca.pem()), WithServerName("bind.example.com"))

	expired := serve(t, ca.servingUntil(t, "127.0.0.1", time.Now().Add(-time.Hour)), provider)
	checkFault(t, expired.address, FaultCertificateExpired, "not valid at this time", WithCAPEM(ca.pem()))
}

func TestAClientCertificateIsPresentedWhereOneIsRequired(t *testing.T) {
	ca, clients, strangers := newAuthority(t), newAuthority(t), newAuthority(t)
	config := ca.serving(t, "127.0.0.1")
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, clients.pool()
	s := serve(t, config, provider)
	hour := time.Now().Add(time.Hour)
	checkFault(t, s.address, "", "", WithCAPEM(ca.pem()), WithClientCertificatePEM(clients.issue(t, "me", hour)))
	const advice = "present a valid one"
	checkFault(t, s.address, FaultClientCertificate, advice, WithCAPEM(ca.pem()))
	checkFault(t, s.address, FaultClientCertificate, advice, WithCAPEM(ca.pem()), WithClientCertificatePEM(strangers.issue(t, "me", hour)))
}

func TestPlaintextIsToldFromTLS(t *testing.T) {
	ca := newAuthority(t)
	plaintext := serve(t, nil, provider)
	secured := strings.Replace(plaintext.address, "http", "https", 1)
	checkFault(t, secured, FaultServerIsPlaintext, "speaks no TLS", WithCAPEM(ca.pem()))
	encrypted := serve(t, ca.serving(t, "127.0.0.1"), provider)
	checkFault(t, strings.Replace(encrypted.address, "https", "http", 1), FaultBroken, "dial https://", WithPlaintext())
}

func TestAServerWithoutHTTP2IsNamed(t *testing.T) {
	ca := newAuthority(t)
	for name, protocols := range map[string][]string{"another protocol": {"http/1.1"}, "no protocol": nil} {
		config := ca.serving(t, "127.0.0.1")
		config.NextProtos = protocols
		t.Run(name, func(t *testing.T) {
			checkFault(t, "https://"+raw(t, config, func(c net.Conn) { c.Close() }), FaultNoHTTP2, "does not speak HTTP/2",
				WithCAPEM(ca.pem()))
		})
	}
}

// raw listens, and passes each connection to a function.
func raw(t *testing.T, config *tls.Config, handle func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				if config != nil {
					secured := tls.Server(connection, config)
					if secured.Handshake() != nil {
						return
					}
					connection = secured
				}
				handle(connection)
				io.Copy(io.Discard, connection)
			}()
		}
	}()
	return listener.Addr().String()
}

// Without TLS nothing is negotiated, so a server of another protocol breaks the connection.
func TestAServerOfAnotherProtocolIsBroken(t *testing.T) {
	for _, text := range []string{"HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"} {
		other := raw(t, nil, func(connection net.Conn) { io.WriteString(connection, text) })
		checkFault(t, "http://"+other, FaultBroken, "broke", WithPlaintext())
	}
}

func TestASilentServerIsGivenUp(t *testing.T) {
	silent := "http://" + raw(t, nil, func(net.Conn) {})
	checkFault(t, silent, FaultConnectTimeout, "no response", WithPlaintext(), WithConnectTimeout(200*time.Millisecond))
}

func TestANameWithoutAddressIsNamed(t *testing.T) {
	checkFault(t, "https://no-such-host.invalid", FaultNameUnknown, "check its spelling", WithConnectTimeout(time.Minute),
		WithTimeout(time.Minute), WithAttemptTimeout(time.Minute))
}

func TestSettingsThatCannotWorkAreRefusedAtOnce(t *testing.T) {
	ca := newAuthority(t)
	chain, key := ca.issue(t, "me", time.Now().Add(time.Hour))
	_, otherKey := ca.issue(t, "me", time.Now().Add(time.Hour))
	const address = "https://bind.example.com"
	for name, check := range map[string]struct {
		address string
		option  Option
		reason  string
	}{
		"fine":                  {address, WithCAPEM(ca.pem()), ""},
		"address":               {"ftp://bind.example.com", WithPlaintext(), "AddressInvalid"},
		"plaintext":             {"http://bind.example.com", WithPlaintext(), "PlaintextRefused"},
		"plaintext elsewhere":   {"http://10.0.0.1:8080", WithPlaintext(), "PlaintextRefused"},
		"plaintext not allowed": {"http://127.0.0.1:8080", WithTimeout(time.Second), "PlaintextRefused"},
		"plaintext allowed":     {"http://[::1]:8080", WithPlaintext(), ""},
		"no CA":                 {address, WithCAPEM([]byte("no certificate")), "CaInvalid"},
		"empty CA":              {address, WithCAPEM(nil), "CaInvalid"},
		"garbage CA":            {address, WithCAPEM([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")), "CaInvalid"},
		"missing CA file":       {address, WithCAFile("/nonexistent/ca.crt"), "CaInvalid"},
		"server name":           {address, WithServerName("not a name"), "TlsSetupFailed"},
		"no time":               {address, WithTimeout(0), "TimeoutInvalid"},
		"negative time":         {address, WithAttemptTimeout(-1), "TimeoutInvalid"},
		"no time to connect":    {address, WithConnectTimeout(0), "TimeoutInvalid"},
		"endless time":          {address, WithTimeout(1<<63 - 1), ""},
		"user agent":            {address, WithUserAgent("line\nbreak"), "UserAgentInvalid"},
		"client certificate":    {address, WithClientCertificatePEM(chain, key), ""},
		"another key":           {address, WithClientCertificatePEM(chain, otherKey), "ClientCertificateInvalid"},
		"no key":                {address, WithClientCertificatePEM(chain, nil), "ClientCertificateInvalid"},
	} {
		client, err := NewClient(check.address, check.option)
		var config *ConfigError
		if errors.As(err, &config) && config.Reason != check.reason || err != nil && check.reason == "" || err == nil && check.reason != "" {
			t.Errorf("%s: %v", name, err)
		}
		if client != nil {
			client.Close()
		}
	}
}
