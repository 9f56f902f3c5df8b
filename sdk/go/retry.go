package bindery

import (
	"math"
	"time"

	"google.golang.org/grpc/codes"
)

// RetryPolicy is how often and how soon a failed call is retried.
//
// Retried are UNAVAILABLE, after the delay that the server asks for, and connections that could not be made. For idempotent
// methods, connections that broke, DEADLINE_EXCEEDED, and RESOURCE_EXHAUSTED with a RetryInfo are retried too. No retry is sent
// after the deadline of the call.
type RetryPolicy struct {
	// Attempts is the number of attempts at most, the first included; 1 means no retry.
	Attempts int
	// Base is the upper limit of the first random delay; it doubles with each attempt.
	Base time.Duration
	// Cap is the upper limit of a random delay, to which the delay that the server asks for is added.
	Cap time.Duration
}

// DefaultRetryPolicy returns the policy of clients that set none: 5 attempts, 200 ms, 5 s.
func DefaultRetryPolicy() RetryPolicy {
	return RetryPolicy{Attempts: 5, Base: 200 * time.Millisecond, Cap: 5 * time.Second}
}

// delay is the delay after so many failures: what the server asks for, plus a random part (0 to 1) of a time that doubles.
func (p RetryPolicy) delay(failures int, least time.Duration, random float64) time.Duration {
	window := p.Base
	for range failures - 1 {
		if window >= p.Cap {
			break
		}
		window *= 2
	}
	window = max(0, min(window, p.Cap))
	part := time.Duration(float64(window) * min(max(random, 0), 1))
	if least > math.MaxInt64-part {
		return math.MaxInt64
	}
	return least + part
}

// next is the delay before the next attempt; false if there is none.
func (p RetryPolicy) next(err *Error, idempotent bool, attemptsMade int, left time.Duration, random float64) (time.Duration, bool) {
	if attemptsMade >= p.Attempts {
		return 0, false
	}
	least, ok := retryable(err, idempotent)
	if !ok {
		return 0, false
	}
	delay := p.delay(attemptsMade, least, random)
	return delay, delay < left
}

// retryable is the shortest delay before a retry can help; false if it cannot.
func retryable(err *Error, idempotent bool) (time.Duration, bool) {
	switch err.Kind {
	case KindStatus:
		var least time.Duration
		if err.RetryAfter != nil {
			least = *err.RetryAfter
		}
		switch err.Code {
		case codes.Unavailable:
			return least, true
		case codes.DeadlineExceeded:
			return least, idempotent
		case codes.ResourceExhausted:
			return least, idempotent && err.RetryAfter != nil
		default:
			return 0, false
		}
	case KindTransport:
		return 0, !err.Fault.NeedsMending() && (idempotent || err.NotSent)
	default:
		return 0, false
	}
}
