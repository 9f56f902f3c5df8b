package bindery

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// tokenLengthMax is the length limit of a token in bytes, so that it fits the headers that a server accepts.
const tokenLengthMax = 15 * 1024

// ErrLoggedOut is for token sources that have no token until the user logs in again. A watch whose source returns an error that wraps
// it ends.
var ErrLoggedOut = errors.New("the user is logged out")

// TokenSource provides the token of each call. A call asks before each attempt, possibly beside other calls, so the source should
// remember its token; such a source also implements [TokenForgetter]. A call does not wait for a source beyond the deadline of the call
// with all its attempts, nor a watch for longer than a minute. The text of a source's error is not part of the call's error, which
// wraps it.
type TokenSource interface {
	// Token returns the token to send now, without "Bearer". Its audience must be [Client.Audience].
	Token(ctx context.Context) (string, error)
}

// TokenForgetter is a token source that remembers its token.
type TokenForgetter interface {
	// ForgetToken drops the remembered token if it is still this one: the server said that it has expired, or is not valid any
	// more. The call asks for another one at once.
	ForgetToken(token string)
}

// TokenFunc is a token source made of a function, which is called for each attempt.
type TokenFunc func(ctx context.Context) (string, error)

// Token calls the function.
func (f TokenFunc) Token(ctx context.Context) (string, error) { return f(ctx) }

// secret keeps a token out of what fmt prints: a function is printed as its address.
type secret func() string

func newSecret(token string) secret { return func() string { return token } }

// staticToken always returns the same token.
type staticToken struct{ token secret }

// StaticToken returns a token source that always returns this token.
func StaticToken(token string) TokenSource { return staticToken{newSecret(token)} }

func (s staticToken) Token(context.Context) (string, error) { return s.token(), nil }

// String keeps the token out of messages.
func (staticToken) String() string { return "StaticToken" }

// GoString keeps the token out of messages.
func (staticToken) GoString() string { return "bindery.StaticToken(…)" }

// bearer is the value of the header authorization.
func bearer(token string) (string, *Error) {
	switch {
	case token == "":
		return "", tokenError("TokenEmpty", "the token is empty; give one that is for the audience of the backend", nil)
	case len(token) > tokenLengthMax:
		return "", tokenError("TokenTooLong", fmt.Sprintf("the token has %d bytes, which is more than %d", len(token), tokenLengthMax), nil)
	}
	for _, char := range []byte(token) {
		if char <= ' ' || char > '~' {
			return "", tokenError("TokenMalformed",
				"the token holds spaces, line breaks or other characters that no token has", nil)
		}
	}
	return "Bearer " + token, nil
}

func tokenError(reason, message string, cause error) *Error {
	return &Error{Kind: KindToken, TokenReason: reason, Message: message, cause: cause}
}

// sourceFailed is for a source of this package, whose errors show no token.
func sourceFailed(message string, cause error) *Error {
	return tokenError("TokenSourceFailed", "cannot get a token: "+message, cause)
}

// sourceError makes an error of one that a token source returned. The text of the user's error can hold anything, so it is not shown.
func sourceError(err error) *Error {
	var typed *Error
	switch {
	case errors.As(err, &typed) && typed.Kind == KindToken:
		return typed
	case errors.Is(err, ErrLoggedOut):
		return tokenError("LoggedOut", "there is no token: the user is logged out; log in again", err)
	default:
		return sourceFailed("the token source returned an error, which this one wraps", err)
	}
}

// askSource asks a source for a token until the deadline, or until the context ends. Sources that ignore their context go on in the
// background. An error is of type [*Error].
func askSource(caller context.Context, deadline time.Time, source TokenSource) (string, error) {
	if static, ok := source.(staticToken); ok {
		return static.token(), nil
	}
	began := time.Now()
	ctx, cancel := context.WithDeadline(caller, deadline)
	defer cancel()
	token, err := callSource(ctx, source)
	switch {
	case err == nil:
		return token, nil
	case errors.Is(caller.Err(), context.Canceled):
		return "", cancelledBy(caller)
	case hasEnded(ctx):
		waited := time.Since(began).Seconds()
		return "", sourceFailed(fmt.Sprintf("the token source returned none within %.1f s", waited), context.DeadlineExceeded)
	default:
		return "", sourceError(err)
	}
}

// callSource calls a source in the background, and waits until it returns or the context ends.
func callSource(ctx context.Context, source TokenSource) (string, error) {
	type result struct {
		token    string
		err      error
		panicked any
	}
	done := make(chan result, 1)
	go func() {
		var got result
		defer func() {
			got.panicked = recover()
			done <- got
		}()
		got.token, got.err = source.Token(ctx)
	}()
	select {
	case got := <-done:
		if got.panicked != nil {
			panic(got.panicked)
		}
		return got.token, got.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
