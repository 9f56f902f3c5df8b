package bindery

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// conn gives generated stubs the behaviour of a client.
type conn struct{ client *Client }

var _ grpc.ClientConnInterface = conn{}

// Invoke makes a unary call.
func (c conn) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	request, isMessage := args.(proto.Message)
	response, isAlso := reply.(proto.Message)
	if !isMessage || !isAlso || isOption(options) {
		return unsupported(method)
	}
	return c.client.call(ctx, method, request, response)
}

// NewStream makes a stream of answers to one request, which it sends with SendMsg.
func (c conn) NewStream(
	ctx context.Context, description *grpc.StreamDesc, method string, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if description.ClientStreams || isOption(options) {
		return nil, unsupported(method)
	}
	return &clientStream{ctx: ctx, client: c.client, method: method}, nil
}

// isOption tells whether a call has options other than the one that generated code adds to each call, which has no effect.
func isOption(options []grpc.CallOption) bool {
	for _, option := range options {
		if _, static := option.(grpc.StaticMethodCallOption); !static {
			return true
		}
	}
	return false
}

func unsupported(method string) error {
	return fmt.Errorf("%s: %w by this connection; make the call without options", method, errors.ErrUnsupported)
}

// clientStream is a stream of answers for a generated stub.
type clientStream struct {
	ctx    context.Context
	client *Client
	method string
	stream messageStream
}

func (s *clientStream) SendMsg(message any) error {
	request, ok := message.(proto.Message)
	if !ok || s.stream != nil {
		return unsupported(s.method)
	}
	var tokens tokenMemory
	stream, err := s.client.open(s.ctx, s.method, request, &tokens)
	if err != nil {
		return s.failure(err)
	}
	s.stream = stream
	return nil
}

func (s *clientStream) RecvMsg(message any) error {
	response, ok := message.(proto.Message)
	if !ok || s.stream == nil {
		return unsupported(s.method)
	}
	if err := s.stream.receive(response); err != nil {
		return s.failure(err)
	}
	return nil
}

func (s *clientStream) failure(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return s.client.failure(s.ctx, err, s.ctx.Err() != nil, 0, "")
}

func (s *clientStream) CloseSend() error             { return nil }
func (s *clientStream) Context() context.Context     { return s.ctx }
func (s *clientStream) Header() (metadata.MD, error) { return nil, nil }
func (s *clientStream) Trailer() metadata.MD         { return nil }
