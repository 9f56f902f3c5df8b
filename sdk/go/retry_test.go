package bindery

import (
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

func answered(code codes.Code, retryAfter ...time.Duration) *Error {
	err := &Error{Kind: KindStatus, Code: code}
	if len(retryAfter) > 0 {
		err.RetryAfter = &retryAfter[0]
	}
	return err
}

func TestRetriesAreDecidedByErrorAndMethod(t *testing.T) {
	for name, check := range map[string]struct {
		err        *Error
		idempotent bool
		// expect is negative for no retry.
		expect time.Duration
	}{
		"unavailable":                  {answered(codes.Unavailable), false, 0},
		"unavailable with a delay":     {answered(codes.Unavailable, 3), false, 3},
		"deadline":                     {answered(codes.DeadlineExceeded), true, 0},
		"deadline of a call once":      {answered(codes.DeadlineExceeded), false, -1},
		"exhausted with a delay":       {answered(codes.ResourceExhausted, 2), true, 2},
		"exhausted, called once":       {answered(codes.ResourceExhausted, 2), false, -1},
		"exhausted":                    {answered(codes.ResourceExhausted), true, -1},
		"not found":                    {answered(codes.NotFound, 1), true, -1},
		"internal":                     {answered(codes.Internal, 1), true, -1},
		"unauthenticated":              {answered(codes.Unauthenticated, 1), true, -1},
		"refused":                      {&Error{Kind: KindTransport, Fault: FaultRefused, NotSent: true}, false, 0},
		"broken":                       {&Error{Kind: KindTransport, Fault: FaultBroken}, true, 0},
		"broken, called once":          {&Error{Kind: KindTransport, Fault: FaultBroken}, false, -1},
		"untrusted":                    {&Error{Kind: KindTransport, Fault: FaultCertificateUntrusted, NotSent: true}, true, -1},
		"no token":                     {&Error{Kind: KindToken}, true, -1},
		"cancelled":                    {&Error{Kind: KindCancelled}, true, -1},
		"a breach of the rules":        {&Error{Kind: KindProtocol}, true, -1},
		"a request that cannot be met": {&Error{Kind: KindRequestFailed}, true, -1},
	} {
		delay, ok := DefaultRetryPolicy().next(check.err, check.idempotent, 1, time.Hour, 0)
		if ok != (check.expect >= 0) || ok && delay != check.expect {
			t.Errorf("%s: %v, %v", name, delay, ok)
		}
	}
}

func TestAttemptsAndTimeEnd(t *testing.T) {
	policy, err := DefaultRetryPolicy(), answered(codes.Unavailable, 3*time.Second)
	if _, ok := policy.next(err, true, 4, time.Hour, 0.5); !ok {
		t.Error("the fifth attempt is missing")
	}
	if _, ok := policy.next(err, true, 5, time.Hour, 0.5); ok {
		t.Error("a sixth attempt")
	}
	if _, ok := policy.next(err, true, 1, 2*time.Second, 0.5); ok {
		t.Error("the delay outlasts the deadline")
	}
}

func TestDelaysAreBoundedAndNeverShorterThanAsked(t *testing.T) {
	policy := DefaultRetryPolicy()
	for range 10_000 {
		failures, least := rand.IntN(1<<30), time.Duration(rand.Int64N(int64(time.Hour)))
		delay := policy.delay(failures, least, rand.Float64())
		if delay < least || delay > least+policy.Cap {
			t.Fatalf("%v after %d failures and %v", delay, failures, least)
		}
	}
	if delay := policy.delay(1, 1<<63-1, 1); delay != 1<<63-1 {
		t.Errorf("overflow: %v", delay)
	}
	if first, second := policy.delay(1, 0, 1), policy.delay(2, 0, 1); first != policy.Base || second != 2*policy.Base {
		t.Errorf("%v, %v", first, second)
	}
}

func TestIdempotencyIsThatOfTheDescriptors(t *testing.T) {
	for method, expect := range map[string]bool{
		pb.ExportService_GetExport_FullMethodName:                       true,
		pb.ExportService_DeleteExport_FullMethodName:                    true,
		pb.BindingService_CreateBindableResourcesRequest_FullMethodName: true,
		pb.CredentialService_RenewKubeconfig_FullMethodName:             false,
		"/kubebind.v1alpha2.ExportService/NoSuchMethod":                 false,
		"/kubebind.v1alpha2.ExportService":                              false,
	} {
		if isIdempotent(method) != expect {
			t.Errorf("%s: %v", method, !expect)
		}
	}
}

func TestLimitsFollowTheWaitUnlessTheyAreSet(t *testing.T) {
	for _, check := range []struct{ total, attempt, wait, expectTotal, expectAttempt time.Duration }{
		{0, 0, 0, 30, 10},
		{0, 0, 60, 90, 70},
		{5, 0, 60, 5, 5},
		{50, 7, 60, 50, 7},
	} {
		s := settings{timeout: check.total * time.Second, attemptTimeout: check.attempt * time.Second}
		total, attempt := s.limits(check.wait * time.Second)
		if total != check.expectTotal*time.Second || attempt != check.expectAttempt*time.Second {
			t.Errorf("%+v: %v, %v", check, total, attempt)
		}
	}
}
