package bindery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// ErrClosed is wrapped by errors of calls that a closed client makes, or that [Client.Close] ends.
var ErrClosed = errors.New("the client is closed")

// Kind says what failed.
type Kind string

// The kinds of an [Error].
const (
	// KindStatus: the server responded with an error, or did not respond before the deadline.
	KindStatus Kind = "status"
	// KindTransport: the server could not be reached, or the connection broke.
	KindTransport Kind = "transport"
	// KindToken: the token source failed, or returned no token in time.
	KindToken Kind = "token"
	// KindRequestFailed: the server accepted the request to bind and could not fulfill it.
	KindRequestFailed Kind = "requestFailed"
	// KindPending: the request to bind is still pending after the client has waited.
	KindPending Kind = "pending"
	// KindProtocol: the server broke the protocol of the API.
	KindProtocol Kind = "protocol"
	// KindCancelled: the context of the caller was cancelled, or the client was closed.
	KindCancelled Kind = "cancelled"
)

// Error is why a call failed. Kind decides which of the other fields are set.
type Error struct {
	Kind Kind

	// Code is the canonical code of the response. For KindStatus.
	Code codes.Code
	// Reason is the reason of the response; unspecified if the server gave none, or one that this build does not know. For
	// KindStatus.
	Reason pb.ErrorReason
	// UnknownReason is a reason that this build does not know, in the words of the server: do not use it as a label of a metric. For
	// KindStatus.
	UnknownReason string
	// TokenReason says what is wrong with the token: TokenSourceFailed, LoggedOut, TokenFileUnreadable, TokenEmpty, TokenTooLong or
	// TokenMalformed. For KindToken.
	TokenReason string
	// Message is the explanation for people. Control characters of the server are replaced, except for line breaks.
	Message string
	// Metadata holds the variable parts of the message, under lowerCamelCase keys. For KindStatus.
	Metadata map[string]string
	// FieldViolations are the fields of the request that are wrong. For KindStatus.
	FieldViolations []FieldViolation
	// PreconditionViolations are what must be changed before the call can succeed. For KindStatus.
	PreconditionViolations []PreconditionViolation
	// RetryAfter is the delay after which the server asks for a retry; nil if it asks for none. For KindStatus.
	RetryAfter *time.Duration
	// RequestID is the id of the call in the server's log; empty if the server may never have got the call. For KindStatus, and all
	// errors of a watch.
	RequestID string

	// Fault is what failed about the connection. For KindTransport.
	Fault Fault
	// NotSent tells that the server certainly did not process the call. For KindTransport.
	NotSent bool

	// Address of the server. For KindTransport and KindProtocol.
	Address string

	// Request is the request to bind in its last known phase and conditions. For KindRequestFailed and KindPending.
	Request *pb.BindableResourcesRequest
	// Waited is how long the client has waited. For KindPending.
	Waited time.Duration

	// refusesGRPC tells that something on the way refuses gRPC by an HTTP status, so that the server has not seen the call.
	refusesGRPC bool

	cause error
}

// FieldViolation is a field of a request with an invalid value.
type FieldViolation struct {
	// Field is the path of the field, such as bindable_resources_request.metadata.name.
	Field string
	// Description says what is wrong with it.
	Description string
}

// PreconditionViolation is a precondition of a call that does not hold.
type PreconditionViolation struct {
	// Type is the kind of the precondition.
	Type string
	// Subject is the object that it is about.
	Subject string
	// Description says what is wrong with it.
	Description string
}

// Code is a gRPC code as a target of errors.Is: errors.Is(err, bindery.Code(codes.NotFound)).
type Code codes.Code

// Error returns the name of the code, such as NOT_FOUND.
func (c Code) Error() string { return codeName(codes.Code(c)) }

// Reason is a reason of the API as a target of errors.Is.
type Reason pb.ErrorReason

// Error returns the reason as the server spells it, such as TOKEN_EXPIRED.
func (r Reason) Error() string { return reasonName(pb.ErrorReason(r)) }

// Is makes [Code], [Reason] and [Fault] targets of errors.Is. A status DEADLINE_EXCEEDED is also a context.DeadlineExceeded, because
// client and server observe the same deadline.
func (e *Error) Is(target error) bool {
	if target == context.DeadlineExceeded {
		return e.Kind == KindStatus && e.Code == codes.DeadlineExceeded
	}
	switch target := target.(type) {
	case Code:
		return e.Kind == KindStatus && e.Code == codes.Code(target)
	case Reason:
		return e.Kind == KindStatus && e.Reason == pb.ErrorReason(target) && e.Reason != 0
	case Fault:
		return e.Kind == KindTransport && e.Fault == target
	default:
		return false
	}
}

// Unwrap returns the error below, such as that of the context, of the system, or of a token source.
func (e *Error) Unwrap() error { return e.cause }

// GRPCStatus makes status.Code and status.FromError work on the error.
func (e *Error) GRPCStatus() *status.Status {
	code := codes.Unknown
	switch e.Kind {
	case KindStatus:
		code = e.Code
	case KindTransport:
		code = codes.Unavailable
	case KindToken:
		code = codes.Unauthenticated
	case KindRequestFailed:
		code = codes.FailedPrecondition
	case KindPending:
		code = codes.DeadlineExceeded
	case KindProtocol:
		code = codes.Internal
	case KindCancelled:
		code = codes.Canceled
	}
	return status.New(code, e.Error())
}

// ReasonString returns the reason for conditions and metrics, in UpperCamelCase or UPPER_SNAKE_CASE. It is never a text of the server:
// for a reason that this build does not know it is the gRPC code. For KindRequestFailed it is the reason of the condition, which the
// provider's controller sets.
func (e *Error) ReasonString() string {
	switch e.Kind {
	case KindStatus:
		if e.Reason != 0 {
			return reasonName(e.Reason)
		}
		return codeName(e.Code)
	case KindTransport:
		return string(e.Fault)
	case KindToken:
		return e.TokenReason
	case KindRequestFailed:
		if condition := e.Condition(); condition != nil && condition.GetReason() != "" {
			return condition.GetReason()
		}
		return "RequestFailed"
	case KindPending:
		return "RequestPending"
	case KindProtocol:
		return "ProtocolViolation"
	default:
		return "Cancelled"
	}
}

// Condition returns the condition that says why a request to bind failed: the first one that is false. Nil if there is none.
func (e *Error) Condition() *pb.Condition {
	for _, condition := range e.Request.GetStatus().GetConditions() {
		if condition.GetStatus() == "False" {
			return condition
		}
	}
	return nil
}

// Error says in one line what is wrong with which object, then what to do.
func (e *Error) Error() string { return oneLine(e.text()) }

// GoString is the text of the error: the error below it could show what a token source printed.
func (e *Error) GoString() string { return fmt.Sprintf("bindery.Error(%s: %s)", e.Kind, e) }

func (e *Error) text() string {
	switch e.Kind {
	case KindStatus:
		return e.statusText()
	case KindTransport:
		text := fmt.Sprintf("cannot reach the server at %s: %s", e.Address, e.Fault.advice(e.Address))
		if e.Message != "" {
			text += " (" + e.Message + ")"
		}
		return text
	case KindRequestFailed:
		name := printable(e.Request.GetMetadata().GetName())
		condition := e.Condition()
		if condition == nil {
			return fmt.Sprintf("request %s failed and has no condition that says why", name)
		}
		return fmt.Sprintf("request %s failed: %s (%s)", name, printable(condition.GetMessage()), printable(condition.GetReason()))
	case KindPending:
		return fmt.Sprintf("request %s is still pending after %d s; bind again to go on waiting",
			printable(e.Request.GetMetadata().GetName()), int(e.Waited.Seconds()))
	case KindProtocol:
		return fmt.Sprintf("the server at %s broke the rules of its API: %s", e.Address, e.Message)
	default:
		return e.Message
	}
}

func (e *Error) statusText() string {
	var text strings.Builder
	if e.Message == "" {
		text.WriteString("the server returned " + codeName(e.Code))
	} else {
		text.WriteString(e.Message)
	}
	for _, violation := range e.FieldViolations {
		text.WriteString("; " + violation.Field + ": " + violation.Description)
	}
	for _, violation := range e.PreconditionViolations {
		text.WriteString("; " + violation.Subject + ": " + violation.Description)
	}
	text.WriteString(" (" + e.ReasonString())
	if e.RequestID != "" {
		text.WriteString(", request " + e.RequestID)
	}
	text.WriteString(")")
	return text.String()
}

func protocolError(address Address, fault string) *Error {
	return &Error{Kind: KindProtocol, Address: address.String(), Message: fault}
}

// deadlineError is for a deadline that passed on the client; the server may still work on the call.
func deadlineError(address Address, waited time.Duration, requestID string) *Error {
	return &Error{
		Kind:      KindStatus,
		Code:      codes.DeadlineExceeded,
		Reason:    pb.ErrorReason_ERROR_REASON_DEADLINE,
		Message:   fmt.Sprintf("no response from %s within %.1f s", address, waited.Seconds()),
		RequestID: requestID,
		cause:     context.DeadlineExceeded,
	}
}

// tooLargeError is for a message beyond the limits of the client.
func tooLargeError(message, requestID string) *Error {
	return &Error{
		Kind:      KindStatus,
		Code:      codes.ResourceExhausted,
		Reason:    pb.ErrorReason_ERROR_REASON_MESSAGE_TOO_LARGE,
		Message:   message,
		RequestID: requestID,
	}
}

func cancelledError(cause error) *Error {
	return &Error{Kind: KindCancelled, Message: fmt.Sprintf("the call was cancelled: %v", cause), cause: cause}
}

// cancelledBy is for a context that the caller has cancelled.
func cancelledBy(ctx context.Context) *Error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return cancelledError(fmt.Errorf("%w: %w", ctx.Err(), cause))
	}
	return cancelledError(ctx.Err())
}

// oneLine replaces what could begin another line of a log.
func oneLine(text string) string {
	return strings.Map(func(char rune) rune {
		if unicode.IsControl(char) || char == '\u2028' || char == '\u2029' {
			return ' '
		}
		return char
	}, text)
}

// printable replaces the control characters in a text of the server, which could rewrite a terminal. Line breaks stay.
func printable(text string) string {
	return strings.Map(func(char rune) rune {
		if char != '\n' && unicode.IsControl(char) {
			return ' '
		}
		return char
	}, text)
}

// codeName spells a code as gRPC does, such as NOT_FOUND.
func codeName(code codes.Code) string {
	names := [...]string{
		"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
		"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
		"INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
	}
	if int(code) < len(names) {
		return names[code]
	}
	return "UNKNOWN"
}

const reasonPrefix = "ERROR_REASON_"

// reasonName spells a reason as ErrorInfo.reason does, such as TOKEN_EXPIRED.
func reasonName(reason pb.ErrorReason) string {
	return strings.TrimPrefix(reason.String(), reasonPrefix)
}

// reasonOf reads ErrorInfo.reason; unspecified for a reason that this build does not know.
func reasonOf(name string) pb.ErrorReason {
	return pb.ErrorReason(pb.ErrorReason_value[reasonPrefix+name])
}
