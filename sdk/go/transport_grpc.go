package bindery

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
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
