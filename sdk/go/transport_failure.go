package bindery

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// failure tells an answer of the server from what grpc-go itself says about the connection.
func (t *grpcTransport) failure(ctx context.Context, err error, probe *probe, channel *channel, header metadata.MD) error {
	answer := status.Convert(err)
	sent, answered, headerID := probe.result()
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
