package bindery

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// fallbackTransport speaks gRPC, and gRPC-Web over HTTP/1.1 where HTTP/2 does not reach the server: TLS does not negotiate it, or
// something on the way refuses gRPC by an HTTP status. In both cases the server has not seen the call.
type fallbackTransport struct {
	choice protocolChoice
	grpc   *grpcTransport
	web    *webTransport
}

func newTransport(address Address, tlsConfig *tls.Config, s *settings) *fallbackTransport {
	return &fallbackTransport{
		choice: protocolChoice{setting: s.protocol, againIn: grpcAgainAfter},
		grpc:   newGRPCTransport(address, tlsConfig, s),
		web:    newWebTransport(address, tlsConfig, s),
	}
}

func (t *fallbackTransport) unary(ctx context.Context, request encodedRequest, response proto.Message) error {
	plan := t.choice.plan(time.Now())
	if plan == sendByWeb {
		speaksWeb, err := t.web.unary(ctx, request, response)
		if !t.leavesWeb(speaksWeb, err) {
			return err
		}
	}
	first := t.grpc.unary(ctx, request, response)
	if !t.fallsBack(plan, first) {
		return first
	}
	speaksWeb, second := t.web.unary(ctx, request, response)
	return t.fellBack(speaksWeb, first, second)
}

func (t *fallbackTransport) stream(ctx context.Context, request encodedRequest) (messageStream, error) {
	plan := t.choice.plan(time.Now())
	if plan == sendByWeb {
		opened, speaksWeb, err := t.web.stream(ctx, request)
		if !t.leavesWeb(speaksWeb, err) {
			return opened, err
		}
	}
	opened, first := t.grpc.stream(ctx, request)
	if !t.fallsBack(plan, first) {
		return opened, first
	}
	opened, speaksWeb, second := t.web.stream(ctx, request)
	return opened, t.fellBack(speaksWeb, first, second)
}

// leavesWeb notes the outcome of an attempt by gRPC-Web, and tells whether to make it by gRPC in its place: TLS negotiates HTTP/1.1 no
// more.
func (t *fallbackTransport) leavesWeb(speaksWeb bool, err error) bool {
	var failure *Error
	if err == nil || speaksWeb || !errors.As(err, &failure) || failure.Kind == KindCancelled || isOfGateway(err) {
		return false
	}
	t.choice.webFailed()
	return t.choice.setting == ProtocolAuto && failure.Fault == FaultNoHTTP2
}

// fallsBack notes the outcome of an attempt by gRPC, and tells whether to make it by gRPC-Web: HTTP/2 does not reach the server, so that
// the server did nothing.
func (t *fallbackTransport) fallsBack(plan sendPlan, err error) bool {
	if err == nil {
		t.choice.grpcWorked()
		return false
	}
	var failure *Error
	if !errors.As(err, &failure) {
		return false
	}
	if failure.Fault == FaultNoHTTP2 || failure.refusesGRPC {
		return plan == sendByGRPCOrWeb
	}
	if failure.Kind == KindStatus {
		t.choice.grpcWorked()
	}
	return false
}

// fellBack notes the outcome of an attempt by gRPC-Web after one by gRPC, and returns the error to tell. A server that speaks neither is
// told by the first one.
func (t *fallbackTransport) fellBack(speaksWeb bool, first, second error) error {
	if speaksWeb {
		t.choice.webWorked(time.Now())
		return second
	}
	var failure *Error
	isTyped := errors.As(second, &failure)
	if !isTyped || failure.Kind == KindCancelled || isOfGateway(second) || slices.Contains(certificateFaults, failure.Fault) {
		return second
	}
	return first
}

func (t *fallbackTransport) close() error {
	t.web.close()
	return t.grpc.close()
}

// certificateFaults are those of a server that is not trusted. Some show their certificate only to a client that offers HTTP/1.1.
var certificateFaults = []Fault{FaultCertificateUntrusted, FaultCertificateName, FaultCertificateExpired}

// isOfGateway tells whether a proxy speaks for a server that is away or busy: it responded by HTTP status 429, 502, 503 or 504.
func isOfGateway(err error) bool {
	var failure *Error
	return errors.As(err, &failure) && failure.Kind == KindStatus && failure.Code == codes.Unavailable
}

// isRefusalOfGRPC tells whether a proxy refuses gRPC as such by an HTTP status: it took the call by HTTP/2 and passed it on by HTTP/1.1,
// over which there is no gRPC, or does not know its content type.
func isRefusalOfGRPC(httpStatus int) bool {
	// 464 is how some load balancers say that the protocol of the request does not fit the server.
	return slices.Contains([]int{400, 405, 415, 426, 464, 501, 505}, httpStatus)
}
