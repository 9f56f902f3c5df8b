package bindery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// script is a transport whose streams a test writes, one after another. The last one hangs.
type script struct {
	streams [][]step

	mu    sync.Mutex
	asked []string
	sent  []string
}

// step is what a stream does next: it sends an answer, fails, waits, or ends in good order if it is empty.
type step struct {
	answer *pb.WatchExportsResponse
	err    error
	wait   time.Duration
}

func (s *script) unary(context.Context, string, metadata.MD, proto.Message, proto.Message) error {
	return errors.ErrUnsupported
}

func (s *script) close() error { return nil }

func (s *script) stream(ctx context.Context, _ string, header metadata.MD, request proto.Message) (messageStream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number := len(s.asked)
	s.asked = append(s.asked, request.(*pb.WatchExportsRequest).GetResumeToken())
	s.sent = append(s.sent, first(header["authorization"]))
	if number >= len(s.streams) {
		return &scriptStream{ctx: ctx, steps: []step{{wait: time.Hour * 1e5}}}, nil
	}
	steps := s.streams[number]
	if len(steps) > 0 && steps[0].err != nil {
		return nil, steps[0].err
	}
	return &scriptStream{ctx: ctx, steps: steps}, nil
}

type scriptStream struct {
	ctx   context.Context
	steps []step
}

func (s *scriptStream) receive(response proto.Message) error {
	for len(s.steps) > 0 {
		next := s.steps[0]
		s.steps = s.steps[1:]
		switch {
		case next.err != nil:
			return next.err
		case next.answer != nil:
			proto.Merge(response, next.answer)
			return nil
		case !sleep(s.ctx, next.wait):
			return context.Cause(s.ctx)
		}
	}
	return io.EOF
}

func begin() step {
	return step{answer: &pb.WatchExportsResponse{Event: &pb.WatchExportsResponse_SnapshotBegin{SnapshotBegin: &pb.SnapshotBegin{}}}}
}

func refused(reason string) step {
	begin := &pb.SnapshotBegin{ResumeRefused: true, Reason: reason}
	return step{answer: &pb.WatchExportsResponse{Event: &pb.WatchExportsResponse_SnapshotBegin{SnapshotBegin: begin}}}
}

func applied(name, token string) step {
	export := &pb.Export{Metadata: &pb.ObjectMeta{Name: name}}
	return step{answer: &pb.WatchExportsResponse{Event: &pb.WatchExportsResponse_Applied{Applied: export}, ResumeToken: token}}
}

func removed(name, token string) step {
	gone := &pb.Removed{Name: name}
	return step{answer: &pb.WatchExportsResponse{Event: &pb.WatchExportsResponse_Removed{Removed: gone}, ResumeToken: token}}
}

func complete(count int32, token string) step {
	end := &pb.SnapshotComplete{ObjectCount: count}
	return step{answer: &pb.WatchExportsResponse{Event: &pb.WatchExportsResponse_SnapshotComplete{SnapshotComplete: end}, ResumeToken: token}}
}

// unknown is a heartbeat, or an event that this build does not know.
func unknown(token string) step {
	return step{answer: &pb.WatchExportsResponse{ResumeToken: token}}
}

func broken() step { return step{err: &Error{Kind: KindTransport, Fault: FaultBroken}} }

func denied(code codes.Code, reason pb.ErrorReason, retryAfter ...time.Duration) step {
	err := answered(code, retryAfter...)
	err.Reason, err.ReasonName = reason, reasonName(reason)
	return step{err: err}
}

func (s *script) client(options ...Option) *Client {
	set, err := newSettings(options)
	if err != nil {
		panic(err)
	}
	return newClient(Address{host: "bind.example.com", port: 443}, set, s)
}

// word is an event in short.
func word(event ExportEvent) string {
	switch event.Type {
	case WatchConnected:
		if event.Resumed {
			return "resumed"
		}
		return "connected"
	case WatchSnapshotBegin:
		if event.ResumeRefused {
			return "refused " + event.RefusedReason
		}
		return "begin"
	case WatchApplied:
		return "+" + event.Object.GetMetadata().GetName()
	case WatchRemoved:
		return "-" + event.Removed.GetName()
	case WatchSnapshotComplete:
		return "complete"
	default:
		if event.Err != nil {
			return "lost " + event.Err.ReasonString()
		}
		return "ended"
	}
}

// words are the next events in short; an error ends them.
func words(ctx context.Context, watch *Watch[*pb.Export], count int) []string {
	var words []string
	for event, err := range watch.Events(ctx) {
		if err != nil {
			return append(words, "error "+err.(*Error).ReasonString())
		}
		if words = append(words, word(event)); len(words) == count {
			break
		}
	}
	return words
}

// checkWatch runs a watch in a bubble with a clock of its own.
func checkWatch(t *testing.T, request *pb.WatchExportsRequest, streams [][]step, expect, asked []string, options ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &script{streams: streams}
		got := words(t.Context(), s.client(options...).WatchExports(request), len(expect))
		if !reflect.DeepEqual(got, expect) {
			t.Errorf("got %q instead of %q", got, expect)
		}
		if !reflect.DeepEqual(s.asked, asked) {
			t.Errorf("asked for %q instead of %q", s.asked, asked)
		}
	})
}

func TestAWatchGoesOnWhereItWas(t *testing.T) {
	checkWatch(t, nil, [][]step{
		{begin(), applied("a", ""), complete(1, "t1"), applied("b", "t2"), unknown("t3")},
		{removed("a", "t4"), broken()},
	}, []string{
		"connected", "begin", "+a", "complete", "+b", "ended", "resumed", "-a", "lost ConnectionBroken", "resumed",
	}, []string{"", "t3", "t4"})
}

func TestASnapshotThatBreaksIsVoid(t *testing.T) {
	checkWatch(t, nil, [][]step{
		{begin(), applied("a", "early"), broken()},
		{begin(), applied("b", ""), complete(2, "wrong")},
		{begin(), applied("b", ""), complete(1, "t1")},
	}, []string{
		"connected", "begin", "+a", "lost ConnectionBroken",
		"connected", "begin", "+b", "lost ProtocolViolation",
		"connected", "begin", "+b", "complete",
	}, []string{"", "", ""})
}

func TestBreachesOfTheRulesAreFound(t *testing.T) {
	for name, streams := range map[string][]step{
		"a change first":             {applied("a", "")},
		"a removal first":            {removed("a", "")},
		"an end first":               {complete(0, "t")},
		"a removal in a snapshot":    {begin(), removed("a", "")},
		"a second end of a snapshot": {begin(), complete(0, "t"), complete(0, "t")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{streams: [][]step{streams}}
				got := words(t.Context(), s.client().WatchExports(nil), len(streams)+2)
				if got[len(got)-2] != "lost ProtocolViolation" || got[len(got)-1] != "connected" {
					t.Errorf("%q", got)
				}
			})
		})
	}
}

func TestARefusedTokenMeansASnapshot(t *testing.T) {
	request := &pb.WatchExportsRequest{ResumeToken: "t0"}
	checkWatch(t, request, [][]step{{refused("too old"), broken()}, {begin(), complete(0, "t1")}},
		[]string{"resumed", "refused too old", "lost ConnectionBroken", "connected", "begin", "complete"}, []string{"t0", ""})
	malformed := denied(codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_RESUME_TOKEN_INVALID)
	checkWatch(t, request, [][]step{{malformed}, {begin(), complete(0, "t1")}},
		[]string{"lost RESUME_TOKEN_INVALID", "connected", "begin", "complete"}, []string{"t0", ""})
	if request.GetResumeToken() != "t0" {
		t.Error("the caller's request was changed")
	}
}

func TestSilenceEndsAStreamAndHeartbeatsDoNot(t *testing.T) {
	minute := step{wait: time.Minute}
	synctest.Test(t, func(t *testing.T) {
		s := &script{streams: [][]step{
			{begin(), complete(0, "t1"), minute, unknown("t2"), minute, unknown("t3"), {wait: time.Hour}},
		}}
		watch := s.client().WatchExports(nil)
		start := time.Now()
		got := words(t.Context(), watch, 5)
		if !reflect.DeepEqual(got, []string{"connected", "begin", "complete", "lost StreamSilent", "resumed"}) {
			t.Errorf("%q", got)
		}
		if lived := time.Since(start); lived < 210*time.Second || lived > 212*time.Second {
			t.Errorf("two minutes with heartbeats, 90 s without and a delay of at most one: %v", lived)
		}
		if s.asked[1] != "t3" {
			t.Errorf("%q", s.asked)
		}
	})
}

func TestACallerWhoIsSlowIsNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{streams: [][]step{{begin(), applied("a", ""), complete(1, "t1")}}}
		var got []string
		for event, err := range s.client().WatchExports(nil).Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, word(event))
			if len(got) == 5 {
				break
			}
			time.Sleep(10 * time.Minute)
		}
		if !reflect.DeepEqual(got, []string{"connected", "begin", "+a", "complete", "ended"}) {
			t.Errorf("%q", got)
		}
	})
}

func TestWhatOnlyOthersCanMendEndsAWatch(t *testing.T) {
	for code, reason := range map[codes.Code]pb.ErrorReason{
		codes.Unauthenticated:  pb.ErrorReason_ERROR_REASON_CREDENTIAL_REVOKED,
		codes.PermissionDenied: pb.ErrorReason_ERROR_REASON_CONTRACT_DENIED,
		codes.NotFound:         pb.ErrorReason_ERROR_REASON_CONTRACT_NOT_FOUND,
	} {
		checkWatch(t, nil, [][]step{{begin(), complete(0, "t1"), denied(code, reason)}},
			[]string{"connected", "begin", "complete", "error " + reasonName(reason)}, []string{""})
	}
}

func TestTroubleThatPassesIsToldAndWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{streams: [][]step{
			{denied(codes.Unavailable, pb.ErrorReason_ERROR_REASON_CACHE_NOT_READY, 20*time.Second)},
			{denied(codes.Internal, pb.ErrorReason_ERROR_REASON_INTERNAL)},
			{denied(codes.ResourceExhausted, pb.ErrorReason_ERROR_REASON_STREAM_LIMIT, 10*time.Hour)},
		}}
		start := time.Now()
		got := words(t.Context(), s.client().WatchExports(nil), 4)
		if !reflect.DeepEqual(got, []string{"lost CACHE_NOT_READY", "lost INTERNAL", "lost STREAM_LIMIT", "connected"}) {
			t.Errorf("%q", got)
		}
		if waited := time.Since(start); waited < 320*time.Second || waited > 330*time.Second {
			t.Errorf("a wait that a server asks for is limited: %v", waited)
		}
	})
}

func TestAnExpiredTokenIsReplacedOncePerStream(t *testing.T) {
	expired := denied(codes.Unauthenticated, pb.ErrorReason_ERROR_REASON_TOKEN_EXPIRED)
	number := 0
	tokens := TokenFunc(func(context.Context) (string, error) {
		number++
		return fmt.Sprintf("token-%d", number), nil
	})
	checkWatch(t, nil, [][]step{{begin(), complete(0, "t1"), expired}, {expired}},
		[]string{"connected", "begin", "complete", "ended", "error TOKEN_EXPIRED"}, []string{"", "t1"}, WithTokenSource(tokens))
}

func TestAWatchEndsWhenItsUserHasLoggedOutAndNotBefore(t *testing.T) {
	number := 0
	tokens := TokenFunc(func(context.Context) (string, error) {
		number++
		switch number {
		case 1:
			return "token", nil
		case 2:
			return "", errors.New("the issuer is away")
		default:
			return "", fmt.Errorf("the user is gone: %w", ErrLoggedOut)
		}
	})
	checkWatch(t, nil, [][]step{{begin(), complete(0, "t1")}},
		[]string{"connected", "begin", "complete", "ended", "lost TokenSourceFailed", "error LoggedOut"}, []string{""},
		WithTokenSource(tokens))
}

func TestAnEventCountsWhenTheNextOneIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{streams: [][]step{{begin(), complete(0, "t1"), applied("a", "t2"), applied("b", "t3")}}}
		watch := s.client().WatchExports(nil)
		if got := words(t.Context(), watch, 4); got[3] != "+a" {
			t.Errorf("%q", got)
		}
		if token := watch.ResumeToken(); token != "t1" {
			t.Errorf("the last event was not acted upon: %q", token)
		}
		// Another loop goes on with what was not acted upon.
		if got := words(t.Context(), watch, 1); got[0] != "resumed" || s.asked[1] != "t1" {
			t.Errorf("%q, asked for %q", got, s.asked)
		}
	})
}

func TestAWatchEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancelled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		if got := words(cancelled, (&script{}).client().WatchExports(nil), 9); !reflect.DeepEqual(got, []string{"connected", "error Cancelled"}) {
			t.Errorf("%q", got)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got := words(short, (&script{}).client().WatchExports(nil), 9); !reflect.DeepEqual(got, []string{"connected", "error DEADLINE"}) {
			t.Errorf("%q", got)
		}
	})
}

func TestDelaysStartAnewAfterAStreamThatLasted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var streams [][]step
		for range 8 {
			streams = append(streams, []step{broken()})
		}
		streams = append(streams, []step{begin(), complete(0, "t1"), {wait: watchGoodAfter}, broken()})
		var last time.Duration
		for event, err := range (&script{streams: streams}).client().WatchExports(nil).Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if event.Type == WatchDisconnected {
				last = event.RetryIn
			}
			if event.Type == WatchConnected && event.Resumed {
				break
			}
		}
		if last > time.Second {
			t.Errorf("%v", last)
		}
	})
}
