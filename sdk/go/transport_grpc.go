package bindery

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	keepAliveInterval = 30 * time.Second
	keepAliveTimeout  = 20 * time.Second
)

// grpcTransport speaks gRPC over HTTP/2.
//
// A channel of grpc-go that has failed to connect tries again in the background, in its own time, and answers calls with the former
// failure meanwhile. Here a call connects when it is made: a channel that has failed is replaced by the next attempt, and closed
// when its last call has ended.
type grpcTransport struct {
	address Address
	target  string
	options []grpc.DialOption
	tls     *tls.Config
	connect time.Duration

	mu      sync.Mutex
	current *channel
	closed  bool
}

// channel is a channel of grpc-go, and the calls that use it.
type channel struct {
	*connector
	grpc *grpc.ClientConn

	// Guarded by the mutex of the transport.
	uses    int
	retired bool
}

func newGRPCTransport(address Address, tlsConfig *tls.Config, s *settings) *grpcTransport {
	userAgent := "bindery-sdk-go/" + Version
	if s.userAgent != "" {
		userAgent = s.userAgent + " " + userAgent
	}
	connectAgain := backoff.Config{BaseDelay: s.connectTimeout, Multiplier: 1, MaxDelay: s.connectTimeout}
	host := net.JoinHostPort(address.Host(), strconv.Itoa(int(address.Port())))
	_, authority, _ := strings.Cut(strings.TrimSuffix(address.String(), address.prefix), "://")
	return &grpcTransport{
		address: address,
		target:  "passthrough:///" + host,
		tls:     tlsConfig,
		connect: s.connectTimeout,
		options: []grpc.DialOption{
			grpc.WithAuthority(authority),
			grpc.WithUserAgent(userAgent),
			grpc.WithDisableRetry(),
			grpc.WithDisableServiceConfig(),
			grpc.WithStatsHandler(probes{}),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: connectAgain, MinConnectTimeout: s.connectTimeout}),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepAliveInterval, Timeout: keepAliveTimeout}),
			grpc.WithDefaultCallOptions(
				grpc.MaxCallRecvMsgSize(MessageReceiveMax),
				grpc.MaxCallSendMsgSize(MessageSendMax),
				// Without a buffer, grpc-go sends no call a second time.
				grpc.MaxRetryRPCBufferSize(0),
			),
		},
	}
}

func (t *grpcTransport) unary(ctx context.Context, method string, header metadata.MD, request, response proto.Message) error {
	channel, err := t.acquire()
	if err != nil {
		return err
	}
	defer t.release(channel)
	probe := &probe{}
	outgoing := metadata.NewOutgoingContext(context.WithValue(ctx, probeKey{}, probe), header)
	err = channel.grpc.Invoke(outgoing, t.address.prefix+method, request, response)
	if err != nil {
		return t.failure(ctx, err, probe, channel, header)
	}
	return nil
}

func (t *grpcTransport) stream(
	ctx context.Context, method string, header metadata.MD, request proto.Message,
) (messageStream, error) {
	channel, err := t.acquire()
	if err != nil {
		return nil, err
	}
	s := &grpcStream{transport: t, channel: channel, ctx: ctx, header: header}
	s.stop = context.AfterFunc(ctx, func() { s.released.Do(func() { t.release(channel) }) })
	outgoing := metadata.NewOutgoingContext(context.WithValue(ctx, probeKey{}, &s.probe), header)
	description := &grpc.StreamDesc{ServerStreams: true}
	s.grpc, err = channel.grpc.NewStream(outgoing, description, t.address.prefix+method)
	if err == nil {
		err = s.start(request)
	}
	if err != nil {
		return nil, s.end(err)
	}
	return s, nil
}

// grpcStream is a stream of answers. It uses its channel until it has ended, or its context has.
type grpcStream struct {
	transport *grpcTransport
	channel   *channel
	ctx       context.Context
	header    metadata.MD
	probe     probe
	grpc      grpc.ClientStream
	// empty is set if the server ended the stream before it began.
	empty bool

	stop     func() bool
	released sync.Once
}

// start sends the request and waits for the header of the answer.
func (s *grpcStream) start(request proto.Message) error {
	// The true error of a failed send is that of the answer.
	if err := s.grpc.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := s.grpc.CloseSend(); err != nil {
		return err
	}
	header, err := s.grpc.Header()
	if err != nil {
		return err
	}
	if header == nil {
		// An answer without a header is an error, or an empty stream.
		if err := s.grpc.RecvMsg(new(emptypb.Empty)); !errors.Is(err, io.EOF) {
			return err
		}
		s.empty = true
	}
	return nil
}

func (s *grpcStream) receive(response proto.Message) error {
	if s.empty {
		return s.end(io.EOF)
	}
	if err := s.grpc.RecvMsg(response); err != nil {
		return s.end(err)
	}
	return nil
}

// end gives the channel back and makes the error.
func (s *grpcStream) end(err error) error {
	if !errors.Is(err, io.EOF) {
		err = s.transport.failure(s.ctx, err, &s.probe, s.channel, s.header)
	}
	s.stop()
	s.released.Do(func() { s.transport.release(s.channel) })
	return err
}

// acquire returns a channel for one call, which has to release it.
func (t *grpcTransport) acquire() (*channel, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, cancelledError(ErrClosed)
	}
	if t.current != nil && t.current.hasFailed() {
		if idle := t.retire(); idle != nil {
			defer idle.Close()
		}
	}
	if t.current == nil {
		made, err := t.newChannel()
		if err != nil {
			return nil, err
		}
		t.current = made
	}
	t.current.uses++
	return t.current, nil
}

func (t *grpcTransport) release(used *channel) {
	t.mu.Lock()
	defer t.mu.Unlock()
	used.uses--
	switch {
	case used.uses > 0:
	case used.retired:
		used.grpc.Close()
	case used.hasFailed():
		t.current = nil
		used.grpc.Close()
	}
}

// retire takes the current channel out of use. It returns the channel if no call uses it, so that it is to be closed. The mutex
// is held.
func (t *grpcTransport) retire() *grpc.ClientConn {
	retired := t.current
	t.current = nil
	retired.retired = true
	if retired.uses > 0 {
		return nil
	}
	return retired.grpc
}

// giveUp makes the next attempt connect anew. A call can learn that its channel has failed before the channel says so.
func (t *grpcTransport) giveUp(failed *channel) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current == failed {
		t.retire()
	}
}

func (t *grpcTransport) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.current == nil {
		return nil
	}
	closing := t.current.grpc
	t.retire()
	return closing.Close()
}

func (t *grpcTransport) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// hasFailed tells whether the channel could not connect. A channel whose connection was lost connects again with its next call.
func (c *channel) hasFailed() bool { return c.grpc.GetState() == connectivity.TransientFailure }

func (t *grpcTransport) newChannel() (*channel, error) {
	made := &channel{connector: &connector{tls: t.tls, timeout: t.connect}}
	options := append([]grpc.DialOption{grpc.WithContextDialer(made.dial)}, t.options...)
	if t.tls == nil {
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	} else {
		options = append(options, grpc.WithTransportCredentials(handshaker{made.connector}))
	}
	var err error
	if made.grpc, err = grpc.NewClient(t.target, options...); err != nil {
		return nil, &Error{Kind: KindTransport, Fault: FaultBroken, NotSent: true, Address: t.address.String(), Message: err.Error()}
	}
	return made, nil
}

// failure tells an answer of the server from what grpc-go itself says about the connection.
func (t *grpcTransport) failure(ctx context.Context, err error, probe *probe, channel *channel, header metadata.MD) error {
	answer := status.Convert(err)
	sent, answered, headerID := probe.result()
	sent = sent && !isUnprocessed(answer.Message())
	sentID := first(header[requestIDHeader])
	text := answer.Message()
	switch {
	case strings.HasPrefix(text, "grpc: received message larger than max"):
		return tooLargeError(fmt.Sprintf("the answer has more than the %d bytes that a client takes", MessageReceiveMax), sentID)
	case isMalformed(text):
		return protocolError(t.address, printable(text))
	case answered:
		return statusError(answer, headerID, sentID)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case t.isClosed():
		return cancelledError(ErrClosed)
	case strings.HasPrefix(text, "unexpected HTTP status code received from server"):
		return statusError(answer, headerID, sentID)
	case answer.Code() == codes.Unavailable, isBroken(text):
		return t.broken(sent, text, channel)
	default:
		return protocolError(t.address, printable(text))
	}
}

// isMalformed recognizes an answer that is none of the method, which can come with a good status.
func isMalformed(text string) bool {
	return strings.HasPrefix(text, "grpc: failed to unmarshal") || strings.HasPrefix(text, "cardinality violation")
}

// broken makes the error of a connection that could not be made, or broke.
func (t *grpcTransport) broken(sent bool, text string, channel *channel) *Error {
	e := &Error{Kind: KindTransport, Fault: FaultBroken, NotSent: !sent, Address: t.address.String(), Message: printable(text)}
	if !sent {
		t.giveUp(channel)
	}
	if fault, detail := channel.failed(); fault != "" && !sent {
		e.Fault, e.Message = fault, printable(detail)
	} else if !sent && isSilent(text) {
		e.Fault = FaultConnectTimeout
	}
	return e
}

// isUnprocessed recognizes a call that the server has certainly not looked at, because it goes away or has too much to do.
func isUnprocessed(text string) bool {
	return strings.Contains(text, "draining the connection") || strings.Contains(text, "the connection is draining") ||
		strings.Contains(text, "RST_STREAM with error code: REFUSED_STREAM")
}

// isSilent recognizes a connection on which the server said nothing in time, so that grpc-go closed it.
func isSilent(text string) bool {
	return strings.Contains(text, "failed to receive server preface within timeout") ||
		strings.Contains(text, "error reading server preface") && strings.Contains(text, net.ErrClosed.Error())
}

// isBroken recognizes a stream that the server broke off.
func isBroken(text string) bool {
	return strings.HasPrefix(text, "stream terminated by RST_STREAM") ||
		strings.HasPrefix(text, "server closed the stream without sending trailers") ||
		strings.Contains(text, "unexpected EOF") || text == "EOF"
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// probe notes how far one attempt came, which its error does not say.
type probe struct {
	mu        sync.Mutex
	sent      bool
	answered  bool
	requestID string
}

type probeKey struct{}

func (p *probe) result() (sent, answered bool, requestID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent, p.answered, p.requestID
}

// probes fills the probes of calls.
type probes struct{}

var _ stats.Handler = probes{}

func (probes) HandleRPC(ctx context.Context, event stats.RPCStats) {
	probe, ok := ctx.Value(probeKey{}).(*probe)
	if !ok {
		return
	}
	switch event := event.(type) {
	case *stats.OutHeader:
		probe.mu.Lock()
		probe.sent = true
		probe.mu.Unlock()
	case *stats.InHeader:
		probe.note(false, event.Header)
	case *stats.InTrailer:
		probe.note(true, event.Trailer)
	}
}

func (p *probe) note(answered bool, header metadata.MD) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answered = p.answered || answered
	if id := first(header[requestIDHeader]); id != "" {
		p.requestID = id
	}
}

func (probes) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (probes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (probes) HandleConn(context.Context, stats.ConnStats)                       {}
