package bindery

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// tlsConfig returns nil for plaintext.
func (s *settings) tlsConfig(address Address) (*tls.Config, error) {
	if address.Plaintext() {
		return nil, nil
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"},
		ServerName: address.Host(),
	}
	if s.serverName != "" {
		if _, err := parseHost(s.serverName); err != nil {
			return nil, &ConfigError{
				Reason:  "TlsSetupFailed",
				message: fmt.Sprintf("TLS for %s cannot be set up: %q is no name of a server", address, s.serverName),
			}
		}
		config.ServerName = s.serverName
	}
	if s.certificate != nil {
		config.Certificates = []tls.Certificate{*s.certificate}
	}
	if s.caPEM != nil {
		roots, err := parseRoots(s.caPEM)
		if err != nil {
			return nil, &ConfigError{
				Reason: "CaInvalid",
				message: fmt.Sprintf(
					"the CA certificates for %s cannot be used: %v; give one or more PEM blocks of type CERTIFICATE", address, err),
				cause: err,
			}
		}
		config.RootCAs = roots
	}
	return config, nil
}

// parseRoots reads certificates. Unlike x509.CertPool.AppendCertsFromPEM it skips none that is invalid.
func parseRoots(text []byte) (*x509.CertPool, error) {
	roots, count := x509.NewCertPool(), 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		roots.AddCert(certificate)
		count++
	}
	if count == 0 {
		return nil, errors.New("there is none")
	}
	return roots, nil
}
