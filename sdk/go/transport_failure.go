package bindery

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// failure tells a response of the server from what grpc-go itself says about the connection.
func (t *grpcTransport) failure(ctx context.Context, err error, probe *probe, channel *channel, sentID string) error {
	response := status.Convert(err)
	sent, responded, headerID := probe.result()
	text := response.Message()
	switch {
	case strings.HasPrefix(text, "grpc: received message larger than max"):
		return tooLargeError(fmt.Sprintf("the response has more than the %d bytes that a client takes", MessageReceiveMax), sentID)
	case isMalformed(text):
		return protocolError(t.address, printable(text))
	case responded:
		return statusError(response, headerID, sentID)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case t.isClosed():
		return cancelledError(ErrClosed)
	case strings.HasPrefix(text, unexpectedStatus):
		failure := statusError(response, headerID, sentID)
		failure.refusesGRPC = isRefusalOfGRPC(httpStatus(text))
		return failure
	case response.Code() == codes.Unavailable, isBroken(text):
		return t.broken(sent, text, channel)
	default:
		return protocolError(t.address, printable(text))
	}
}

// unexpectedStatus begins what grpc-go says of a response that is not gRPC. Its HTTP status follows.
const unexpectedStatus = "unexpected HTTP status code received from server: "

// httpStatus returns the HTTP status of a response that is not gRPC; 0 if grpc-go does not tell it.
func httpStatus(text string) int {
	digits, _, _ := strings.Cut(strings.TrimPrefix(text, unexpectedStatus), " ")
	status, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return status
}

// isMalformed recognizes a response that is no message of the method, which can come with a good status.
func isMalformed(text string) bool {
	return strings.HasPrefix(text, "grpc: failed to unmarshal") || strings.HasPrefix(text, "cardinality violation")
}

// broken makes the error of a connection that could not be made, or broke.
func (t *grpcTransport) broken(sent bool, text string, channel *channel) *Error {
	e := &Error{Kind: KindTransport, Fault: FaultBroken, Address: t.address.String(), Message: printable(text)}
	if sent {
		e.NotSent = isUnprocessed(text)
		return e
	}
	e.NotSent = true
	t.giveUp(channel)
	if fault, detail := channel.failed(); fault != "" {
		e.Fault, e.Message = fault, printable(detail)
	} else if isSilent(text) {
		e.Fault = FaultConnectTimeout
	}
	return e
}

// isUnprocessed recognizes a call that the server has certainly not processed, because it goes away or has too much to do.
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
	responded bool
	requestID string
}

type probeKey struct{}

func (p *probe) result() (sent, responded bool, requestID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent, p.responded, p.requestID
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

func (p *probe) note(responded bool, header metadata.MD) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.responded = p.responded || responded
	if id := first(header[requestIDHeader]); id != "" {
		p.requestID = id
	}
}

func (probes) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (probes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (probes) HandleConn(context.Context, stats.ConnStats)                       {}
