package bindery

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errorDomain is ErrorInfo.domain of every error of the API.
const errorDomain = "kube-bind.io"

// statusError reads the status of a response with its details. Malformed details are left out. headerID is the id of the call in the
// header of the response, and sentID the one that was sent.
func statusError(response *status.Status, headerID, sentID string) *Error {
	e := &Error{Kind: KindStatus, Code: response.Code(), Message: printable(response.Message()), RequestID: sentID}
	if e.Code > codes.Unauthenticated {
		e.Code = codes.Unknown
	}
	if headerID != "" {
		e.RequestID = printable(headerID)
	}
	for _, detail := range response.Details() {
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
	if e.Reason = reasonOf(info.GetReason()); e.Reason == 0 {
		e.UnknownReason = printable(info.GetReason())
	}
	if len(info.GetMetadata()) > 0 {
		e.Metadata = make(map[string]string, len(info.GetMetadata()))
	}
	for key, value := range info.GetMetadata() {
		e.Metadata[printable(key)] = printable(value)
	}
}
