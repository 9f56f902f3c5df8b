package bindery

import "strings"

// Fault is what failed about a connection, told apart by what the user has to do. It is a target of errors.Is, and its text is
// the reason for conditions and metrics, which never changes.
type Fault string

// The faults of a connection.
const (
	// FaultRefused: the connection was refused.
	FaultRefused Fault = "ConnectionRefused"
	// FaultNameUnknown: the host name cannot be resolved.
	FaultNameUnknown Fault = "NameUnknown"
	// FaultConnectTimeout: the attempt to connect was not answered in time.
	FaultConnectTimeout Fault = "ConnectTimeout"
	// FaultCertificateUntrusted: the server's certificate is signed by a CA that is not trusted.
	FaultCertificateUntrusted Fault = "CertificateUntrusted"
	// FaultCertificateName: the server's certificate is for another name.
	FaultCertificateName Fault = "CertificateNameMismatch"
	// FaultCertificateExpired: the server's certificate has expired, or is not valid yet.
	FaultCertificateExpired Fault = "CertificateExpired"
	// FaultClientCertificate: the server requires a client certificate and got none, or does not accept the one that it got.
	FaultClientCertificate Fault = "ClientCertificateRefused"
	// FaultTLS: the TLS handshake failed for another reason.
	FaultTLS Fault = "TlsFailed"
	// FaultServerIsPlaintext: the server does not speak TLS.
	FaultServerIsPlaintext Fault = "ServerIsPlaintext"
	// FaultNoHTTP2: the server speaks TLS, but not HTTP/2.
	FaultNoHTTP2 Fault = "NoHttp2"
	// FaultBroken: the connection broke.
	FaultBroken Fault = "ConnectionBroken"
	// FaultSilent: the stream had no message, not even a heartbeat, for 90 s.
	FaultSilent Fault = "StreamSilent"
)

// Error returns the reason, so that a fault is a target of errors.Is.
func (f Fault) Error() string { return string(f) }

// NeedsMending tells whether a retry cannot succeed until somebody has changed the configuration of client or server.
func (f Fault) NeedsMending() bool {
	switch f {
	case FaultCertificateUntrusted, FaultCertificateName, FaultCertificateExpired, FaultClientCertificate, FaultTLS,
		FaultServerIsPlaintext, FaultNoHTTP2:
		return true
	default:
		return false
	}
}

func (f Fault) mend(address string) string {
	switch f {
	case FaultRefused:
		return "nobody listens there; check host and port, and that the server runs"
	case FaultNameUnknown:
		return "the name has no address; check its spelling and the DNS"
	case FaultConnectTimeout:
		return "no answer; check host and port, and firewalls and network policies on the way"
	case FaultCertificateUntrusted:
		return "its certificate is signed by a CA that is not trusted here; give that CA's certificate"
	case FaultCertificateName:
		return "its certificate is for another name; dial that name, or give it as the server's name"
	case FaultCertificateExpired:
		return "its certificate is not valid at this time; renew it, and check the clocks"
	case FaultClientCertificate:
		return "it accepts only clients with a certificate that its CAs signed; present a valid one"
	case FaultTLS:
		return "TLS failed"
	case FaultServerIsPlaintext:
		return "it speaks no TLS; check the port (plaintext is allowed on loopback alone, as http://)"
	case FaultNoHTTP2:
		return "it speaks TLS but not HTTP/2; a proxy in front of it must pass gRPC through"
	case FaultSilent:
		return "it has been silent for longer than a live stream is"
	default:
		if strings.HasPrefix(address, "http://") {
			return "the connection broke; if the server speaks TLS, dial https://"
		}
		return "the connection broke"
	}
}
