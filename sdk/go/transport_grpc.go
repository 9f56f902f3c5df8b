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
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	keepAliveInterval = 30 * time.Second
	keepAliveTimeout  = 20 * time.Second
	// headerReceiveMax is the size limit of the header of a response, and of its trailers, in bytes. Details of errors are in these.
	headerReceiveMax = 64 * 1024
)

// grpcTransport speaks gRPC over HTTP/2.
//
// A channel of grpc-go that has failed to connect tries again in the background, in its own time, and fails calls with the former
// failure meanwhile. Here a call connects when it is made: a channel that has failed is replaced by the next attempt, and closed
// when its last call has ended.
type grpcTransport struct {
	address Address
	target  string
	options []grpc.DialOption
	tls     *tls.Config
	connect time.Duration

	mu sync.Mutex
	// forCalls holds the channel of unary calls, if there is one.
	forCalls []*channel
	// forStreams holds the channels of streams.
	forStreams []*channel
	// retired are the channels that get no more calls, and are closed when their last call has ended.
	retired map[*channel]bool
	closed  bool
	// closing counts the channels that are being closed.
	closing sync.WaitGroup
}

func newGRPCTransport(address Address, tlsConfig *tls.Config, s *settings) *grpcTransport {
	connectAgain := backoff.Config{BaseDelay: s.connectTimeout, Multiplier: 1, MaxDelay: s.connectTimeout}
	host := net.JoinHostPort(address.Host(), strconv.Itoa(int(address.Port())))
	_, authority, _ := strings.Cut(strings.TrimSuffix(address.String(), address.prefix), "://")
	return &grpcTransport{
		address: address,
		target:  "passthrough:///" + host,
		tls:     tlsConfig,
		connect: s.connectTimeout,
		retired: map[*channel]bool{},
		options: []grpc.DialOption{
			grpc.WithAuthority(authority),
			grpc.WithUserAgent(s.fullUserAgent()),
			grpc.WithDisableRetry(),
			grpc.WithDisableServiceConfig(),
			grpc.WithStatsHandler(probes{}),
			grpc.WithMaxHeaderListSize(headerReceiveMax),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: connectAgain, MinConnectTimeout: s.connectTimeout}),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepAliveInterval, Timeout: keepAliveTimeout}),
			grpc.WithDefaultCallOptions(
				grpc.MaxCallRecvMsgSize(MessageReceiveMax),
				grpc.MaxCallSendMsgSize(MessageSendMax),
				// Without a buffer, grpc-go sends no call a second time.
				grpc.MaxRetryRPCBufferSize(0),
				grpc.ForceCodecV2(encodedCodec{encoding.GetCodecV2(proto.Name)}),
			),
		},
	}
}

// encodedCodec sends requests that are encoded already, and decodes responses as the codec of gRPC does.
type encodedCodec struct{ encoding.CodecV2 }

func (c encodedCodec) Marshal(message any) (mem.BufferSlice, error) {
	if request, ok := message.(encodedRequest); ok {
		return mem.BufferSlice{mem.SliceBuffer(request.body)}, nil
	}
	return c.CodecV2.Marshal(message)
}

// Name is empty so that the content type is application/grpc, without a suffix.
func (encodedCodec) Name() string { return "" }

func (t *grpcTransport) unary(ctx context.Context, request encodedRequest, response protobuf.Message) error {
	channel, err := t.acquireForCall()
	if err != nil {
		return err
	}
	defer t.release(channel)
	probe := &probe{}
	outgoing := withHeader(context.WithValue(ctx, probeKey{}, probe), request)
	err = channel.grpc.Invoke(outgoing, t.address.prefix+request.method, request, response)
	if err != nil {
		return t.failure(ctx, err, probe, channel, request.requestID)
	}
	return nil
}

func (t *grpcTransport) stream(ctx context.Context, request encodedRequest) (messageStream, error) {
	channel, err := t.acquireForStream()
	if err != nil {
		return nil, err
	}
	s := &grpcStream{transport: t, channel: channel, ctx: ctx, requestID: request.requestID}
	outgoing := withHeader(context.WithValue(ctx, probeKey{}, &s.probe), request)
	description := &grpc.StreamDesc{ServerStreams: true}
	s.grpc, err = channel.grpc.NewStream(outgoing, description, t.address.prefix+request.method)
	if err == nil {
		err = s.start(request)
	}
	if err != nil {
		return nil, s.end(err)
	}
	return s, nil
}

// withHeader makes the context of a call with the header that it sends. Metadata of the user's are not sent.
func withHeader(ctx context.Context, request encodedRequest) context.Context {
	if _, isOfUser := metadata.FromOutgoingContext(ctx); isOfUser {
		ctx = metadata.NewOutgoingContext(ctx, nil)
	}
	if request.authorization == "" {
		return metadata.AppendToOutgoingContext(ctx, requestIDHeader, request.requestID)
	}
	return metadata.AppendToOutgoingContext(ctx, requestIDHeader, request.requestID, "authorization", request.authorization)
}

// grpcStream is a stream of responses. It uses its channel until it has ended, or is closed.
type grpcStream struct {
	transport *grpcTransport
	channel   *channel
	ctx       context.Context
	requestID string
	probe     probe
	grpc      grpc.ClientStream
	// empty is set if the server ended the stream before it began.
	empty bool

	released sync.Once
}

// start sends the request and waits for the header of the response.
func (s *grpcStream) start(request encodedRequest) error {
	// The true error of a failed send is that of the response.
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
		// A response without a header is an error, or an empty stream.
		if err := s.grpc.RecvMsg(new(emptypb.Empty)); !errors.Is(err, io.EOF) {
			return err
		}
		s.empty = true
	}
	return nil
}

func (s *grpcStream) receive(response protobuf.Message) error {
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
		err = s.transport.failure(s.ctx, err, &s.probe, s.channel, s.requestID)
	}
	s.close()
	return err
}

func (s *grpcStream) close() {
	s.released.Do(func() { s.transport.release(s.channel) })
}
