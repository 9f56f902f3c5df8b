package bindery

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

func detailed(t *testing.T, code codes.Code, message string, details ...protoadapt.MessageV1) *status.Status {
	t.Helper()
	answer, err := status.New(code, message).WithDetails(details...)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestDetailsBecomeFields(t *testing.T) {
	err := statusError(detailed(t, codes.InvalidArgument, "the request is wrong",
		&errdetails.ErrorInfo{Reason: "FIELD_INVALID", Domain: errorDomain, Metadata: map[string]string{"field": "name"}},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: "metadata.name", Description: "must not be empty"},
		}},
		&errdetails.PreconditionFailure{Violations: []*errdetails.PreconditionFailure_Violation{
			{Type: "TEMPLATE", Subject: "cowboys", Description: "is not ready"},
		}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)},
		&errdetails.RequestInfo{RequestId: "got-1"},
	), "header-1", "sent-1")
	if err.Reason != pb.ErrorReason_ERROR_REASON_FIELD_INVALID || err.Metadata["field"] != "name" || *err.RetryAfter != time.Second ||
		err.FieldViolations[0].Field != "metadata.name" || err.PreconditionViolations[0].Type != "TEMPLATE" {
		t.Errorf("%#v", err)
	}
	const text = "the request is wrong; metadata.name: must not be empty; cowboys: is not ready (FIELD_INVALID, request got-1)"
	if err.Error() != text {
		t.Error(err)
	}
}

func TestReasonsOfOthersAndNewerOnesAreNoReason(t *testing.T) {
	other := detailed(t, codes.Unauthenticated, "no", &errdetails.ErrorInfo{Reason: "TOKEN_EXPIRED", Domain: "example.com"})
	newer := detailed(t, codes.Unauthenticated, "no", &errdetails.ErrorInfo{Reason: "SOMETHING_NEWER", Domain: errorDomain})
	for answer, name := range map[*status.Status]string{other: "", newer: "SOMETHING_NEWER"} {
		err := statusError(answer, "", "sent-1")
		if err.Reason != 0 || err.ReasonName != name || err.Error() != "no (UNAUTHENTICATED, request sent-1)" {
			t.Errorf("%q %v", err.ReasonName, err)
		}
	}
}

func TestWhatAServerSaysCannotRewriteATerminal(t *testing.T) {
	err := statusError(status.New(codes.Internal, "all \x1b[2Jgood\x07"), "\x1b", "")
	if err.Message != "all  [2Jgood " || err.RequestID != " " {
		t.Errorf("%q", err.Message)
	}
}

func TestEachReasonReadsBackAsItself(t *testing.T) {
	for number := range pb.ErrorReason_name {
		reason := pb.ErrorReason(number)
		if reasonOf(reasonName(reason)) != reason {
			t.Error(reason)
		}
	}
	for _, name := range []string{"", "token_expired", "ERROR_REASON_TOKEN_EXPIRED", "SOMETHING_NEWER"} {
		if reasonOf(name) != 0 {
			t.Error(name)
		}
	}
}

func TestErrorsAreFoundByCodeReasonAndFault(t *testing.T) {
	denied := fmt.Errorf("binding: %w", &Error{
		Kind: KindStatus, Code: codes.PermissionDenied, Reason: pb.ErrorReason_ERROR_REASON_TEMPLATE_BIND_DENIED,
	})
	untrusted := &Error{Kind: KindTransport, Fault: FaultCertificateUntrusted}
	for name, check := range map[string]struct {
		err, target error
		expect      bool
	}{
		"code":              {denied, Code(codes.PermissionDenied), true},
		"other code":        {denied, Code(codes.NotFound), false},
		"reason":            {denied, Reason(pb.ErrorReason_ERROR_REASON_TEMPLATE_BIND_DENIED), true},
		"other reason":      {denied, Reason(pb.ErrorReason_ERROR_REASON_INTERNAL), false},
		"fault":             {untrusted, FaultCertificateUntrusted, true},
		"other fault":       {untrusted, FaultBroken, false},
		"code of no status": {untrusted, Code(codes.OK), false},
		"no reason":         {&Error{Kind: KindStatus}, Reason(0), false},
		"deadline":          {deadlineError(Address{}, 0, ""), context.DeadlineExceeded, true},
		"closed":            {cancelledError(ErrClosed), ErrClosed, true},
	} {
		if errors.Is(check.err, check.target) != check.expect {
			t.Errorf("%s: %v", name, check.err)
		}
	}
	if code := status.Code(denied); code != codes.PermissionDenied {
		t.Error("status.Code:", code)
	}
}

func TestACancelledContextKeepsItsCause(t *testing.T) {
	cause := errors.New("the operator shuts down")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	err := cancelledBy(ctx)
	if !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAFailedRequestSaysWhy(t *testing.T) {
	request := &pb.BindableResourcesRequest{
		Metadata: &pb.ObjectMeta{Name: "cowboys"},
		Status: &pb.BindableResourcesRequestStatus{Conditions: []*pb.Condition{
			{Type: "A", Status: "True", Reason: "Fine"}, {Type: "B", Status: "False", Reason: "TemplateGone", Message: "it is gone"},
		}},
	}
	failed := &Error{Kind: KindRequestFailed, Request: request}
	if failed.Error() != "request cowboys failed: it is gone (TemplateGone)" || failed.ReasonString() != "TemplateGone" {
		t.Error(failed)
	}
	bare := &Error{Kind: KindRequestFailed, Request: &pb.BindableResourcesRequest{}}
	if bare.ReasonString() != "RequestFailed" || bare.Condition() != nil {
		t.Error(bare)
	}
}
