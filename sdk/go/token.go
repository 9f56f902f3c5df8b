package bindery

import (
	"context"
	"errors"
	"fmt"
)

// tokenLengthMax is the length limit of a token in bytes, so that it fits the headers that a server accepts.
const tokenLengthMax = 15 * 1024

// ErrLoggedOut is for token sources that have no token until somebody logs in again. A watch whose source returns an error that
// wraps it ends.
var ErrLoggedOut = errors.New("nobody is logged in")

// TokenSource provides the token of each call. It is asked once per attempt, possibly by several goroutines at a time, so it should
// answer from memory. A source that remembers tokens also implements [TokenForgetter].
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
	return &Error{Kind: KindToken, ReasonName: reason, Message: message, cause: cause}
}

// sourceError makes an error of one that a token source returned.
func sourceError(err error) *Error {
	var typed *Error
	switch {
	case errors.As(err, &typed) && typed.Kind == KindToken:
		return typed
	case errors.Is(err, ErrLoggedOut):
		return tokenError("LoggedOut", fmt.Sprintf("there is no token: %v", err), err)
	default:
		return tokenError("TokenSourceFailed", fmt.Sprintf("cannot get a token: %v", err), err)
	}
}
