package bindery

import (
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

const (
	// serverWait is how long the server waits for its controller if a request does not say.
	serverWait = 30 * time.Second
	// streamTokenTimeout is how long a stream waits for its token: as long as a command may run.
	streamTokenTimeout = time.Minute
)

// encodedRequest is a request as it is sent: encoded once, for all attempts.
type encodedRequest struct {
	method    string
	requestID string
	body      []byte
	// authorization is the value of the header authorization of one attempt; empty for none.
	authorization string
}

// encode makes a request ready to be sent. The error is the caller's fault, and final.
func encode(method string, request proto.Message) (encodedRequest, error) {
	encoded := encodedRequest{method: method, requestID: newRequestID()}
	var err error
	if encoded.body, err = proto.Marshal(request); err != nil {
		return encoded, &ConfigError{
			Reason:  "RequestInvalid",
			message: fmt.Sprintf("the request of %s cannot be encoded: %v", method, err),
			cause:   err,
		}
	}
	if size := len(encoded.body); size > MessageSendMax {
		text := fmt.Sprintf("the request has %d bytes, more than the %d that a server takes", size, MessageSendMax)
		return encoded, tooLargeError(text, encoded.requestID)
	}
	return encoded, nil
}

// call makes a unary call with token, request id, deadline and retries.
func (c *Client) call(ctx context.Context, method string, request, response proto.Message) error {
	encoded, err := encode(method, request)
	if err != nil {
		return err
	}
	total, limit := c.settings.limits(waitOf(request))
	start := time.Now()
	deadline := start.Add(total)
	var tokens tokenMemory
	for attempts := 1; ; attempts++ {
		// The token has the whole time of the call, and the attempt begins with it.
		if err := c.authorize(ctx, deadline, &encoded, &tokens); err != nil {
			return err
		}
		attemptCtx, cancelAttempt := context.WithDeadline(ctx, earlier(deadline, time.Now().Add(limit)))
		err := c.transport.unary(attemptCtx, encoded, response)
		expired := err != nil && hasEnded(attemptCtx)
		cancelAttempt()
		if err == nil {
			return nil
		}
		failure := c.failure(ctx, err, expired, time.Since(start), encoded.requestID)
		if again, rejected := c.refresh(&tokens, failure); again {
			continue
		} else if rejected != nil {
			return rejected
		}
		left := time.Until(deadline)
		if ofCaller, ok := ctx.Deadline(); ok {
			left = min(left, time.Until(ofCaller))
		}
		delay, retry := c.settings.retry.next(failure, isIdempotent(method), attempts, left, rand.Float64())
		if !retry {
			return failure
		}
		if !sleep(ctx, delay) {
			return c.failure(ctx, context.Cause(ctx), true, time.Since(start), encoded.requestID)
		}
	}
}

func earlier(one, other time.Time) time.Time {
	if other.Before(one) {
		return other
	}
	return one
}

// authorize gives a request the token for one attempt. It waits for the token until the deadline, or until the context ends. An error
// is of type [*Error].
func (c *Client) authorize(ctx context.Context, deadline time.Time, request *encodedRequest, tokens *tokenMemory) error {
	// Callers who ask how to log in have no token, or an expired one.
	if c.settings.tokens == nil || request.method == pb.ProviderService_GetProvider_FullMethodName {
		return nil
	}
	token, err := askSource(ctx, deadline, c.settings.tokens)
	if err != nil {
		return err
	}
	value, malformed := bearer(token)
	if malformed != nil {
		return malformed
	}
	if rejected := tokens.send(token); rejected != nil {
		return rejected
	}
	request.authorization = value
	return nil
}

// authorizeStream gives the request of a stream its token, for which a stream has a time limit of its own.
func (c *Client) authorizeStream(ctx context.Context, request *encodedRequest, tokens *tokenMemory) error {
	return c.authorize(ctx, time.Now().Add(streamTokenTimeout), request, tokens)
}

// failure makes the error of a failed attempt. What the server returned counts, also if the time was over then.
func (c *Client) failure(ctx context.Context, err error, expired bool, waited time.Duration, requestID string) *Error {
	var typed *Error
	if errors.As(err, &typed) && (typed.Kind != KindTransport || !expired) {
		return typed
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return cancelledBy(ctx)
	case expired, errors.Is(err, context.DeadlineExceeded):
		return deadlineError(c.address, waited, requestID)
	case typed != nil:
		return typed
	default:
		return cancelledError(err)
	}
}

// tokenMemory is the token that was last sent, and the server's error that called it expired or invalid, if any.
type tokenMemory struct {
	last      secret
	rejected  *Error
	refreshed bool
}

// send notes the token to send. It fails if that is the one which the server just refused.
func (m *tokenMemory) send(token string) *Error {
	rejected, last := m.rejected, m.last
	m.rejected, m.last = nil, newSecret(token)
	if rejected != nil && last != nil && last() == token {
		return rejected
	}
	return nil
}

// accepted notes that the server accepted the token, so that its expiry causes another refresh.
func (m *tokenMemory) accepted() { m.refreshed = false }

// refresh makes the token source forget a token that the server called expired or invalid, once per token, and tells whether to try
// again at once. A second refusal in a row is returned. A token also becomes invalid before its time when its issuer changes its keys.
func (c *Client) refresh(tokens *tokenMemory, err *Error) (again bool, rejected *Error) {
	isRejected := err.Kind == KindStatus &&
		(err.Reason == pb.ErrorReason_ERROR_REASON_TOKEN_EXPIRED || err.Reason == pb.ErrorReason_ERROR_REASON_TOKEN_INVALID)
	if c.settings.tokens == nil || !isRejected {
		return false, nil
	}
	if tokens.refreshed || tokens.last == nil {
		return false, err
	}
	tokens.refreshed, tokens.rejected = true, err
	if source, ok := c.settings.tokens.(TokenForgetter); ok {
		source.ForgetToken(tokens.last())
	}
	return true, nil
}

const requestIDHeader = "x-request-id"

// newRequestID makes the id under which the server logs a call.
func newRequestID() string {
	var id [16]byte
	crand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// waitOf returns how long the server may wait before it responds, at most a day: 30 s if a request that can say so does not.
func waitOf(request proto.Message) time.Duration {
	waiting, ok := request.(interface{ GetWait() *durationpb.Duration })
	if !ok {
		return 0
	}
	if wait := waiting.GetWait(); wait.CheckValid() == nil && wait.AsDuration() >= 0 {
		return min(wait.AsDuration(), timeoutMax)
	}
	return serverWait
}

// isIdempotent tells whether a call may be repeated when it is unknown whether the server executed it, as the descriptor of the
// method says.
func isIdempotent(method string) bool {
	name := strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", ".")
	descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return false
	}
	options, ok := descriptor.Options().(*descriptorpb.MethodOptions)
	return ok && options.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN
}

// hasEnded tells whether a context has ended. A server can observe a deadline a moment before the timer of the context does.
func hasEnded(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// sleep waits, and tells whether the time passed before the context ended.
func sleep(ctx context.Context, delay time.Duration) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
