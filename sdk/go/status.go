package bindery

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errorDomain is ErrorInfo.domain of every error of the API.
const errorDomain = "kube-bind.io"

// statusError reads an answer of the server with its details. Malformed details are left out. headerID is the id of the call as
// the header of the answer gives it, and sentID the one that was sent.
func statusError(answer *status.Status, headerID, sentID string) *Error {
	e := &Error{Kind: KindStatus, Code: answer.Code(), Message: printable(answer.Message()), RequestID: sentID}
	if e.Code > codes.Unauthenticated {
		e.Code = codes.Unknown
	}
	if headerID != "" {
		e.RequestID = printable(headerID)
	}
	for _, detail := range answer.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			e.addInfo(detail)
		case *errdetails.BadRequest:
			for _, violation := range detail.GetFieldViolations() {
				e.FieldViolations = append(e.FieldViolations, FieldViolation{
					Field:       printable(violation.GetField()),
					Description: printable(violation.GetDescription()),
				})
			}
		case *errdetails.PreconditionFailure:
			for _, violation := range detail.GetViolations() {
				e.PreconditionViolations = append(e.PreconditionViolations, PreconditionViolation{
					Type:        printable(violation.GetType()),
					Subject:     printable(violation.GetSubject()),
					Description: printable(violation.GetDescription()),
				})
			}
		case *errdetails.RetryInfo:
			if delay := detail.GetRetryDelay(); delay.CheckValid() == nil && delay.AsDuration() >= 0 {
				after := delay.AsDuration()
				e.RetryAfter = &after
			}
		case *errdetails.RequestInfo:
			if id := detail.GetRequestId(); id != "" {
				e.RequestID = printable(id)
			}
		}
	}
	return e
}

// addInfo takes the reason, unless another service than ours gave it.
func (e *Error) addInfo(info *errdetails.ErrorInfo) {
	if info.GetDomain() != errorDomain {
		return
	}
	e.ReasonName = printable(info.GetReason())
	e.Reason = reasonOf(info.GetReason())
	if len(info.GetMetadata()) > 0 {
		e.Metadata = make(map[string]string, len(info.GetMetadata()))
	}
	for key, value := range info.GetMetadata() {
		e.Metadata[printable(key)] = printable(value)
	}
}
