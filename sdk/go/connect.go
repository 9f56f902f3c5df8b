package bindery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
)

// lastWordsTimeout limits how long a broken connection is read for an alert.
const lastWordsTimeout = time.Second

// connector makes the connections of a channel, and keeps why the last one failed: grpc-go tells calls only a text.
type connector struct {
	tls     *tls.Config
	timeout time.Duration

	mu     sync.Mutex
	fault  Fault
	detail string
}

// dial connects to host:port. Each time, the name is resolved anew.
func (c *connector) dial(ctx context.Context, address string) (net.Conn, error) {
	c.note("", "")
	dialer := net.Dialer{Timeout: c.timeout, KeepAlive: keepAliveInterval}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		c.note(dialFault(err), err.Error())
		return nil, err
	}
	return connection, nil
}

// failed returns why the last connection failed; empty if it did not.
func (c *connector) failed() (Fault, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault, c.detail
}

func (c *connector) note(fault Fault, detail string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault, c.detail = fault, detail
}

// handshaker makes TLS connections for grpc-go.
type handshaker struct{ *connector }

var _ credentials.TransportCredentials = handshaker{}

// ClientHandshake requires HTTP/2, which grpc-go's own credentials do as well.
func (h handshaker) ClientHandshake(ctx context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	connection := tls.Client(raw, h.tls)
	if err := connection.HandshakeContext(ctx); err != nil {
		raw.Close()
		h.note(tlsFault(err), err.Error())
		return nil, nil, err
	}
	state := connection.ConnectionState()
	if state.NegotiatedProtocol != "h2" {
		connection.Close()
		h.note(FaultNoHTTP2, "HTTP/2 was not negotiated")
		return nil, nil, errors.New("HTTP/2 was not negotiated")
	}
	info := credentials.TLSInfo{
		State:          state,
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}
	return &tlsConn{Conn: connection, connector: h.connector}, info, nil
}

func (handshaker) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.ErrUnsupported
}

func (handshaker) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (h handshaker) Clone() credentials.TransportCredentials { return h }

func (handshaker) OverrideServerName(string) error { return errors.ErrUnsupported }

// tlsConn notes the server's refusal of a client certificate. In TLS 1.3 the server says so when the client's end of the handshake
// is over already.
type tlsConn struct {
	*tls.Conn
	connector *connector
}

func (c *tlsConn) Read(data []byte) (int, error) {
	n, err := c.Conn.Read(data)
	if err != nil {
		c.noteAlert(err)
	}
	return n, err
}

func (c *tlsConn) noteAlert(err error) {
	if isAlert(err) {
		c.connector.note(tlsFault(err), err.Error())
	}
}

// Write reads what the server said when it closed a connection: its alert, which can come before the first write.
func (c *tlsConn) Write(data []byte) (int, error) {
	n, err := c.Conn.Write(data)
	if err == nil {
		return n, nil
	}
	if c.Conn.SetReadDeadline(time.Now().Add(lastWordsTimeout)) == nil {
		var discarded [1]byte
		// Another goroutine may be reading, too.
		if _, last := c.Conn.Read(discarded[:]); isAlert(last) {
			c.noteAlert(last)
			err = last
		}
	}
	return n, err
}

func dialFault(err error) Fault {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && !dns.IsTimeout:
		return FaultNameUnknown
	case errors.Is(err, syscall.ECONNREFUSED):
		return FaultRefused
	case isTimeout(err):
		return FaultConnectTimeout
	default:
		return FaultBroken
	}
}

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT) ||
		os.IsTimeout(err)
}

func tlsFault(err error) Fault {
	var (
		noTLS       tls.RecordHeaderError
		certificate *tls.CertificateVerificationError
		name        x509.HostnameError
		invalid     x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &noTLS):
		return FaultServerIsPlaintext
	case errors.As(err, &name):
		return FaultCertificateName
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return FaultCertificateExpired
	case errors.As(err, &certificate):
		return FaultCertificateUntrusted
	case isAlert(err):
		return alertFault(err)
	case isTimeout(err):
		return FaultConnectTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return FaultBroken
	default:
		return FaultTLS
	}
}

// isAlert recognizes an alert of the server. Its type is private to crypto/tls.
func isAlert(err error) bool {
	var operation *net.OpError
	return errors.As(err, &operation) && operation.Op == "remote error"
}

func alertFault(err error) Fault {
	_, alert, _ := strings.Cut(err.Error(), "tls: ")
	switch alert {
	case "no application protocol":
		return FaultNoHTTP2
	case "certificate required", "bad certificate", "unsupported certificate", "revoked certificate", "expired certificate",
		"unknown certificate", "unknown certificate authority", "access denied",
		// Its signature is not that of the CA which it names: a CA of the same name signed it.
		"error decrypting message":
		return FaultClientCertificate
	default:
		return FaultTLS
	}
}
