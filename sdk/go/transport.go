package bindery

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// grpcAgainAfter is how long a client speaks gRPC-Web before it tries gRPC again.
const grpcAgainAfter = 10 * time.Minute

// fallbackTransport speaks gRPC, and gRPC-Web over HTTP/1.1 where HTTP/2 cannot be had: TLS does not negotiate it, or a proxy responds
// by HTTP/1.1. It remembers that for a time if the server speaks gRPC-Web. A call falls back only if nothing was sent by gRPC.
type fallbackTransport struct {
	protocol Protocol
	grpc     *grpcTransport
	web      *webTransport
	// againIn is how long the transport speaks gRPC-Web before it tries gRPC again.
	againIn time.Duration

	mu sync.Mutex
	// webUntil is until when calls are sent by gRPC-Web.
	webUntil time.Time
}

func newTransport(address Address, tlsConfig *tls.Config, s *settings) *fallbackTransport {
	return &fallbackTransport{
		protocol: s.protocol,
		grpc:     newGRPCTransport(address, tlsConfig, s),
		web:      newWebTransport(address, tlsConfig, s),
		againIn:  grpcAgainAfter,
	}
}

func (t *fallbackTransport) unary(ctx context.Context, request encodedRequest, response proto.Message) error {
	return t.send(
		func() error { return t.grpc.unary(ctx, request, response) },
		func() (bool, error) { return t.web.unary(ctx, request, response) },
	)
}

func (t *fallbackTransport) stream(ctx context.Context, request encodedRequest) (opened messageStream, err error) {
	err = t.send(
		func() (err error) {
			opened, err = t.grpc.stream(ctx, request)
			return err
		},
		func() (speaksWeb bool, err error) {
			opened, speaksWeb, err = t.web.stream(ctx, request)
			return speaksWeb, err
		},
	)
	return opened, err
}

// send makes an attempt by one of the protocols, and by the other one if HTTP/2 cannot be had, or HTTP/1.1 any more. byWeb also tells
// whether the server speaks gRPC-Web.
func (t *fallbackTransport) send(byGRPC func() error, byWeb func() (bool, error)) error {
	switch t.protocol {
	case ProtocolGRPC:
		return byGRPC()
	case ProtocolGRPCWeb:
		_, err := byWeb()
		return err
	}
	if t.usesWeb() {
		_, err := byWeb()
		if !errors.Is(err, FaultNoHTTP2) {
			return err
		}
		t.useWeb(time.Time{})
		return byGRPC()
	}
	first := byGRPC()
	if !errors.Is(first, FaultNoHTTP2) {
		return first
	}
	speaksWeb, err := byWeb()
	if speaksWeb {
		t.useWeb(time.Now().Add(t.againIn))
		return err
	}
	var failure *Error
	isOfProxy := errors.As(err, &failure) && failure.Kind == KindStatus && failure.Code == codes.Unavailable
	if isOfProxy || failure == nil || failure.Kind == KindCancelled {
		// The proxy cannot reach the server at the moment, or the time is over.
		return err
	}
	// A server that speaks neither protocol is described by the first error.
	return first
}

func (t *fallbackTransport) usesWeb() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Before(t.webUntil)
}

func (t *fallbackTransport) useWeb(until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.webUntil = until
}

func (t *fallbackTransport) close() error {
	t.web.close()
	return t.grpc.close()
}
