package bindery

import (
	"crypto/tls"
	"fmt"
	"os"
	"time"

	"kube-bind.io/bindery/sdk/go/internal/timing"
)

// Version is the version of this SDK, as its user agent says.
const Version = "0.1.0"

const (
	// MessageSendMax is the size limit of a request, in bytes; servers refuse larger ones.
	MessageSendMax = 256 * 1024
	// MessageReceiveMax is the size limit of a response, in bytes.
	MessageReceiveMax = 4 * 1024 * 1024

	defaultConnectTimeout = 10 * time.Second
	defaultTimeout        = 30 * time.Second
	defaultAttemptTimeout = 10 * time.Second
	// timeoutMax is the longest time limit; longer ones are shortened to it.
	timeoutMax = 24 * time.Hour
)

// Option is a setting of a client; see [NewClient].
type Option func(*settings) error

// settings are what the options of a client set.
type settings struct {
	caPEM          []byte
	certificate    *tls.Certificate
	serverName     string
	allowPlaintext bool
	tokens         TokenSource
	connectTimeout time.Duration
	timeout        time.Duration
	attemptTimeout time.Duration
	retry          RetryPolicy
	userAgent      string
	protocol       Protocol
	watch          timing.Watch
}

// ConfigError is why a client cannot be made with its settings, or a request cannot be encoded.
type ConfigError struct {
	// Reason is for conditions and metrics, and never changes: AddressInvalid, PlaintextRefused, CaInvalid,
	// ClientCertificateInvalid, TlsSetupFailed, UserAgentInvalid, TimeoutInvalid or RequestInvalid.
	Reason string

	message string
	cause   error
}

// Error says which setting is wrong, and what to do.
func (e *ConfigError) Error() string { return e.message }

// Unwrap returns the error below, such as that of the system.
func (e *ConfigError) Unwrap() error { return e.cause }

// WithTokenSource sends tokens of this source, which must be for [Client.Audience].
func WithTokenSource(tokens TokenSource) Option {
	return func(s *settings) error {
		s.tokens = tokens
		return nil
	}
}

// WithCAFile trusts the CA certificates (PEM) in this file instead of those of the system. The file is read once.
func WithCAFile(path string) Option {
	return func(s *settings) error {
		text, err := os.ReadFile(path)
		if err != nil {
			return &ConfigError{Reason: "CaInvalid", message: fmt.Sprintf("cannot read the CA certificates: %v", err), cause: err}
		}
		s.caPEM = text
		return nil
	}
}

// WithCAPEM trusts these CA certificates (PEM) instead of those of the system.
func WithCAPEM(certificates []byte) Option {
	return func(s *settings) error {
		s.caPEM = append([]byte{}, certificates...)
		return nil
	}
}

// WithClientCertificatePEM presents this certificate (PEM, with its intermediates) and proves that the client has its private key
// (PEM), if the server asks for a client certificate. A token is needed all the same.
func WithClientCertificatePEM(chain, key []byte) Option {
	return func(s *settings) error {
		certificate, err := tls.X509KeyPair(chain, key)
		if err != nil {
			return &ConfigError{
				Reason:  "ClientCertificateInvalid",
				message: fmt.Sprintf("the client certificate cannot be used: %v; give its chain and its private key, both PEM", err),
				cause:   err,
			}
		}
		s.certificate = &certificate
		return nil
	}
}

// WithServerName requires that the server's certificate is for this name instead of the host of the address.
func WithServerName(name string) Option {
	return func(s *settings) error {
		s.serverName = name
		return nil
	}
}

// WithPlaintext allows http:// to a loopback address. It is never allowed to other hosts.
func WithPlaintext() Option {
	return func(s *settings) error {
		s.allowPlaintext = true
		return nil
	}
}

// WithConnectTimeout sets the time limit for connecting, TLS included: more than 0, and at most a day. The default is 10 s.
func WithConnectTimeout(timeout time.Duration) Option {
	return func(s *settings) (err error) {
		s.connectTimeout, err = checkTimeout("for connecting", timeout)
		return err
	}
}

// WithTimeout sets the time limit of a call with all its attempts and its token: more than 0, and at most a day. The default is 30 s,
// and longer for calls that wait for a controller. The deadline of a call's context counts as well.
func WithTimeout(timeout time.Duration) Option {
	return func(s *settings) (err error) {
		s.timeout, err = checkTimeout("of a call", timeout)
		return err
	}
}

// WithAttemptTimeout sets the time limit of one attempt, which begins when its token is there: more than 0, and at most a day. The
// default is 10 s, and longer for calls that wait for a controller.
func WithAttemptTimeout(timeout time.Duration) Option {
	return func(s *settings) (err error) {
		s.attemptTimeout, err = checkTimeout("of an attempt", timeout)
		return err
	}
}

func checkTimeout(what string, timeout time.Duration) (time.Duration, error) {
	if timeout <= 0 {
		return 0, &ConfigError{
			Reason:  "TimeoutInvalid",
			message: fmt.Sprintf("the time limit %s is %s; give one that is more than 0", what, timeout),
		}
	}
	return min(timeout, timeoutMax), nil
}

// WithRetry sets how often and how soon failed calls are retried.
func WithRetry(policy RetryPolicy) Option {
	return func(s *settings) error {
		s.retry = policy
		return nil
	}
}

// WithUserAgent sets the user agent, which precedes the SDK's own in the server's log.
func WithUserAgent(name string) Option {
	return func(s *settings) error {
		for _, char := range []byte(name) {
			if char < ' ' || char > '~' {
				return &ConfigError{
					Reason:  "UserAgentInvalid",
					message: fmt.Sprintf("the user agent %q cannot stand in a header; use printable ASCII characters", name),
				}
			}
		}
		s.userAgent = name
		return nil
	}
}

// Protocol is how calls are sent.
type Protocol int

const (
	// ProtocolAuto is gRPC, and gRPC-Web where HTTP/2 does not reach the server. It is the default.
	// Without TLS a server of HTTP/1.1 cannot be recognized: choose ProtocolGRPCWeb for it.
	ProtocolAuto Protocol = iota
	// ProtocolGRPC is gRPC over HTTP/2, without a fallback.
	ProtocolGRPC
	// ProtocolGRPCWeb is gRPC-Web over HTTP/1.1 alone.
	ProtocolGRPCWeb
)

// WithProtocol sets the protocol of all calls and watches.
func WithProtocol(protocol Protocol) Option {
	return func(s *settings) error {
		s.protocol = protocol
		return nil
	}
}

// fullUserAgent is the user's own user agent and that of the SDK.
func (s *settings) fullUserAgent() string {
	own := "bindery-sdk-go/" + Version
	if s.userAgent == "" {
		return own
	}
	return s.userAgent + " " + own
}

// WithWatchTiming sets the times of watches. Only tests of this module can make its argument.
func WithWatchTiming(times timing.Watch) Option {
	return func(s *settings) error {
		s.watch = times
		return nil
	}
}

func newSettings(options []Option) (*settings, error) {
	s := &settings{
		connectTimeout: defaultConnectTimeout,
		retry:          DefaultRetryPolicy(),
		watch:          timing.Default(),
	}
	for _, option := range options {
		if err := option(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// checkPlaintext refuses to send tokens where others could read them.
func (s *settings) checkPlaintext(address Address) error {
	if !address.Plaintext() {
		return nil
	}
	advice := "dial https://, plaintext is for loopback addresses alone"
	if address.Loopback() {
		if s.allowPlaintext {
			return nil
		}
		advice = "dial https://, or allow plaintext explicitly"
	}
	return &ConfigError{
		Reason:  "PlaintextRefused",
		message: fmt.Sprintf("%s is plaintext, over which tokens could be read; %s", address, advice),
	}
}
