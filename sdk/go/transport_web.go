package bindery

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/proto"
)

const (
	// webIdleTimeout is how long a connection stays open that no call uses: shorter than common proxies keep it.
	webIdleTimeout = 50 * time.Second
	// webIdleMax is how many connections stay open that no call uses. Each call at the same time has one.
	webIdleMax = 32
)

// webTransport speaks gRPC-Web over HTTP/1.1, for networks whose proxies do not speak HTTP/2. Each call in progress, and each stream,
// has a connection of its own.
type webTransport struct {
	address   Address
	userAgent string
	client    *connect.Client
	http      *http.Transport

	// closed is done when the client is closed.
	closed context.Context
	end    context.CancelFunc
}

func newWebTransport(address Address, tlsConfig *tls.Config, s *settings) *webTransport {
	dialer := webDialer{timeout: s.connectTimeout}
	if tlsConfig != nil {
		dialer.tls = tlsConfig.Clone()
		dialer.tls.NextProtos = []string{"http/1.1"}
	}
	closed, end := context.WithCancel(context.Background())
	t := &webTransport{
		address:   address,
		userAgent: s.fullUserAgent(),
		closed:    closed,
		end:       end,
		http: &http.Transport{
			DialContext:         dialer.dial,
			DialTLSContext:      dialer.dial,
			IdleConnTimeout:     webIdleTimeout,
			MaxIdleConnsPerHost: webIdleMax,
			DisableCompression:  true,

			MaxResponseHeaderBytes: headerReceiveMax,
		},
	}
	t.client = connect.NewClient(connecthttp.NewTransport(t, address.String(),
		connecthttp.WithGRPCWeb(),
		connecthttp.WithCodecs(webCodec{connectproto.NewBinaryCodec()}),
		connecthttp.WithCompressors(),
		connecthttp.WithReadMaxBytes(MessageReceiveMax),
	))
	return t
}

// webCodec sends requests that are encoded already.
type webCodec struct{ connect.Codec }

func (c webCodec) MarshalWrite(ctx context.Context, to io.Writer, message any) error {
	if request, ok := message.(encodedRequest); ok {
		_, err := to.Write(request.body)
		return err
	}
	return c.Codec.MarshalWrite(ctx, to, message)
}

// Do sends a request for Connect. It follows no redirect, which could lead a token elsewhere.
func (t *webTransport) Do(request *http.Request) (*http.Response, error) {
	request.Header.Set("User-Agent", t.userAgent)
	request.Header.Set("X-User-Agent", t.userAgent)
	response, err := t.http.RoundTrip(request)
	if probe, ok := request.Context().Value(webProbeKey{}).(*webProbe); ok {
		probe.note(response, err)
	}
	return response, err
}

// unary makes one attempt, and tells whether the server speaks gRPC-Web.
func (t *webTransport) unary(ctx context.Context, request encodedRequest, response proto.Message) (speaksWeb bool, err error) {
	if t.closed.Err() != nil {
		return false, cancelledError(ErrClosed)
	}
	call, probe, end := t.begin(ctx, request)
	defer end()
	spec := connect.Spec{Procedure: request.method, StreamType: connect.StreamTypeUnary}
	if err := t.client.CallUnary(call, spec, request, response); err != nil {
		return probe.isWeb(), t.failure(ctx, err, probe, request)
	}
	return true, nil
}

// stream opens a stream, and tells whether the server speaks gRPC-Web.
func (t *webTransport) stream(ctx context.Context, request encodedRequest) (opened messageStream, speaksWeb bool, err error) {
	if t.closed.Err() != nil {
		return nil, false, cancelledError(ErrClosed)
	}
	call, probe, end := t.begin(ctx, request)
	s := &webStream{transport: t, ctx: ctx, request: request, probe: probe, end: end}
	spec := connect.Spec{Procedure: request.method, StreamType: connect.StreamTypeServer}
	// Connect returns when the header of the response has come, because a request without a stream is sent as a whole.
	if s.web, err = t.client.CallServerStream(call, spec, request); err != nil {
		end()
		return nil, probe.isWeb(), t.failure(ctx, err, probe, request)
	}
	if !probe.isOpen() {
		// The response has no body with messages: it is an error, or an empty stream.
		if err := s.receive(nil); !errors.Is(err, io.EOF) {
			return nil, probe.isWeb(), err
		}
		s.isEmpty = true
	}
	return s, true, nil
}

// begin makes the context of a call, which the caller has to end.
func (t *webTransport) begin(ctx context.Context, request encodedRequest) (context.Context, *webProbe, func()) {
	probe := &webProbe{}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, webProbeKey{}, probe))
	stop := context.AfterFunc(t.closed, cancel)
	ctx, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set(requestIDHeader, request.requestID)
	if request.authorization != "" {
		info.RequestHeader().Set("authorization", request.authorization)
	}
	return ctx, probe, func() {
		stop()
		cancel()
	}
}

func (t *webTransport) close() {
	t.end()
	t.http.CloseIdleConnections()
}

// webStream is a stream of responses.
type webStream struct {
	transport *webTransport
	ctx       context.Context
	request   encodedRequest
	probe     *webProbe
	web       connect.ClientStream
	end       func()
	// isEmpty is set if the server ended the stream before it began.
	isEmpty bool
}

func (s *webStream) receive(response proto.Message) error {
	if s.isEmpty {
		return io.EOF
	}
	err := s.web.Receive(response)
	if err == nil {
		return nil
	}
	defer s.end()
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return s.transport.failure(s.ctx, err, s.probe, s.request)
}

func (s *webStream) close() { s.end() }

// webDialer makes connections for HTTP/1.1.
type webDialer struct {
	tls     *tls.Config
	timeout time.Duration
}

// dialError is why a connection could not be made.
type dialError struct {
	fault Fault
	cause error
}

func (e *dialError) Error() string { return e.cause.Error() }

func (e *dialError) Unwrap() error { return e.cause }

// dial connects to host:port. Each time, the name is resolved anew.
func (d webDialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	dialer := net.Dialer{KeepAlive: keepAliveInterval}
	raw, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, &dialError{dialFault(err), err}
	}
	if d.tls == nil {
		return raw, nil
	}
	secured := tls.Client(raw, d.tls)
	if err := secured.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, &dialError{tlsFault(err), err}
	}
	return secured, nil
}

// webProbe notes the response to one attempt, which its error does not say.
type webProbe struct {
	mu     sync.Mutex
	status int
	header http.Header
	err    error
}

type webProbeKey struct{}

func (p *webProbe) note(response *http.Response, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	if err == nil {
		p.status, p.header = response.StatusCode, response.Header
	}
}

func (p *webProbe) result() (status int, requestID string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status, p.header.Get(requestIDHeader), p.err
}

// isWeb tells whether the response is one of gRPC-Web.
func (p *webProbe) isWeb() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status == http.StatusOK && strings.HasPrefix(p.header.Get("Content-Type"), "application/grpc-web")
}

// isOpen tells whether the response has begun a stream: its status is not in its header already.
func (p *webProbe) isOpen() bool {
	if !p.isWeb() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.header.Get("Grpc-Status") == ""
}
