package bindery

import (
	"context"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

const (
	// watchOpenTimeout is the time limit on opening a stream.
	watchOpenTimeout = 30 * time.Second
	// watchGoodAfter is how long a stream must last so that the delay before the next one is the shortest.
	watchGoodAfter = 10 * time.Second
	// watchRetryAfterMax limits the delay that a server may ask for.
	watchRetryAfterMax = 5 * time.Minute
)

// WatchEventType says which event a [WatchEvent] is.
type WatchEventType string

// The types of events.
const (
	// WatchConnected: a stream is open. If it resumed, changes follow, otherwise a snapshot.
	WatchConnected WatchEventType = "Connected"
	// WatchSnapshotBegin: a snapshot begins. The objects of an unfinished snapshot before it exist, but objects that it lacks may
	// exist too.
	WatchSnapshotBegin WatchEventType = "SnapshotBegin"
	// WatchApplied: an object exists or has changed. A new UID under the same name means that the former object is gone.
	WatchApplied WatchEventType = "Applied"
	// WatchRemoved: an object is gone.
	WatchRemoved WatchEventType = "Removed"
	// WatchSnapshotComplete: the snapshot is complete, and its count agrees. Objects that it lacks are gone.
	WatchSnapshotComplete WatchEventType = "SnapshotComplete"
	// WatchDisconnected: the stream ended; the watch will open another one.
	WatchDisconnected WatchEventType = "Disconnected"
)

// WatchEvent is an event of a watch. Type decides which of the other fields are set.
type WatchEvent[T any] struct {
	Type WatchEventType

	// Resumed tells whether the stream goes on where the last one ended. For WatchConnected.
	Resumed bool
	// ResumeRefused tells whether the server refused to resume. For WatchSnapshotBegin.
	ResumeRefused bool
	// RefusedReason is why the server refused to resume, for people. For WatchSnapshotBegin.
	RefusedReason string
	// Object is the whole object. For WatchApplied.
	Object T
	// Removed names the object. For WatchRemoved.
	Removed *pb.Removed
	// Err is why the stream ended; nil if the server ended it in good order. For WatchDisconnected.
	Err *Error
	// RetryIn is the delay before the next attempt. For WatchDisconnected.
	RetryIn time.Duration
}

// The events of the three watches.
type (
	// ExportEvent is an event of [Client.WatchExports].
	ExportEvent = WatchEvent[*pb.Export]
	// RequestEvent is an event of [Client.WatchBindableResourcesRequests].
	RequestEvent = WatchEvent[*pb.BindableResourcesRequest]
	// ContractEvent is an event of [Client.WatchContracts].
	ContractEvent = WatchEvent[*pb.Contract]
)

// Watch follows objects across disconnects. Range over [Watch.Events]. A watch must not be used by several goroutines at a time.
type Watch[T any] struct {
	client *Client
	source watchSource[T]
	// acted is the resume token of the last event that was processed.
	acted string
}

// watchSource is one of the watch methods.
type watchSource[T any] struct {
	method string
	// request makes the request with a resume token.
	request func(token string) proto.Message
	// answer makes an empty answer.
	answer func() watchAnswer
	// split takes an answer apart.
	split func(answer watchAnswer) incoming[T]
}

// watchAnswer is an answer of a watch method.
type watchAnswer interface {
	proto.Message
	GetResumeToken() string
	GetSnapshotBegin() *pb.SnapshotBegin
	GetRemoved() *pb.Removed
	GetSnapshotComplete() *pb.SnapshotComplete
}

// WatchExports watches exports. The resume token of the request may be that of an earlier watch with the same filter.
func (c *Client) WatchExports(request *pb.WatchExportsRequest) *Watch[*pb.Export] {
	return newWatch(c, watchSource[*pb.Export]{
		method:  pb.ExportService_WatchExports_FullMethodName,
		request: withResumeToken(request, func(r *pb.WatchExportsRequest, token string) { r.ResumeToken = token }),
		answer:  func() watchAnswer { return new(pb.WatchExportsResponse) },
		split:   splitBy((*pb.WatchExportsResponse).GetApplied),
	}, request.GetResumeToken())
}

// WatchContracts watches the contracts that the caller may see.
func (c *Client) WatchContracts(request *pb.WatchContractsRequest) *Watch[*pb.Contract] {
	return newWatch(c, watchSource[*pb.Contract]{
		method:  pb.ContractService_WatchContracts_FullMethodName,
		request: withResumeToken(request, func(r *pb.WatchContractsRequest, token string) { r.ResumeToken = token }),
		answer:  func() watchAnswer { return new(pb.WatchContractsResponse) },
		split:   splitBy((*pb.WatchContractsResponse).GetApplied),
	}, request.GetResumeToken())
}

// WatchBindableResourcesRequests watches the caller's requests.
func (c *Client) WatchBindableResourcesRequests(
	request *pb.WatchBindableResourcesRequestsRequest,
) *Watch[*pb.BindableResourcesRequest] {
	return newWatch(c, watchSource[*pb.BindableResourcesRequest]{
		method: pb.BindingService_WatchBindableResourcesRequests_FullMethodName,
		request: withResumeToken(request, func(r *pb.WatchBindableResourcesRequestsRequest, token string) {
			r.ResumeToken = token
		}),
		answer: func() watchAnswer { return new(pb.WatchBindableResourcesRequestsResponse) },
		split:  splitBy((*pb.WatchBindableResourcesRequestsResponse).GetApplied),
	}, request.GetResumeToken())
}

func newWatch[T any](client *Client, source watchSource[T], token string) *Watch[T] {
	return &Watch[T]{client: client, source: source, acted: token}
}

func withResumeToken[R interface {
	proto.Message
	comparable
}](request R, set func(R, string)) func(string) proto.Message {
	var none R
	if request == none {
		request = request.ProtoReflect().Type().New().Interface().(R)
	}
	return func(token string) proto.Message {
		clone := proto.CloneOf(request)
		set(clone, token)
		return clone
	}
}

func splitBy[A watchAnswer, T interface {
	proto.Message
	comparable
}](applied func(A) T) func(watchAnswer) incoming[T] {
	return func(answer watchAnswer) incoming[T] {
		in := incoming[T]{
			begin:    answer.GetSnapshotBegin(),
			removed:  answer.GetRemoved(),
			complete: answer.GetSnapshotComplete(),
		}
		var none T
		if object := applied(answer.(A)); object != none {
			in.applied = &object
		}
		return in
	}
}

// ResumeToken returns the token with which another watch with the same filter can resume, also with other credentials. It is empty
// until a snapshot is complete. An event counts as processed when the loop over the events asks for the next one.
func (w *Watch[T]) ResumeToken() string { return w.acted }

// Events returns the events until the context ends. It reconnects with a resume token after random delays. It yields an error, of
// type [*Error], and ends only where a retry cannot help: the token is refused, a right is missing, the contract does not exist,
// or the context has ended. A second loop goes on after the last event that the first one processed.
func (w *Watch[T]) Events(ctx context.Context) iter.Seq2[WatchEvent[T], error] {
	return func(yield func(WatchEvent[T], error) bool) {
		run := watchRun[T]{
			watch:   w,
			ctx:     ctx,
			tracker: tracker[T]{token: w.acted},
		}
		defer func() { run.close() }()
		for {
			event, err := run.next()
			if err != nil {
				yield(WatchEvent[T]{}, err)
				return
			}
			if !yield(*event, nil) {
				return
			}
			w.acted = run.tracker.token
		}
	}
}

// watchRun is the state of a loop over events.
type watchRun[T any] struct {
	watch   *Watch[T]
	ctx     context.Context
	tracker tracker[T]
	tokens  tokenMemory
	// failures is the number of streams in a row that failed early.
	failures int
	// delay is the time to wait before a stream is opened.
	delay time.Duration

	// The open stream; nil if there is none.
	stream messageStream
	since  time.Time
	cancel context.CancelCauseFunc
	// silence ends the stream when it has been silent for too long. It runs while the watch waits.
	silence *time.Timer
}

// errSilent and errNotOpened end the context of a stream.
var (
	errSilent    = errors.New("the stream is silent")
	errNotOpened = errors.New("the stream was not opened in time")
)

func (r *watchRun[T]) next() (*WatchEvent[T], *Error) {
	if r.stream == nil {
		if !sleep(r.ctx, r.delay) {
			return nil, r.ended()
		}
		resumed, err := r.open()
		if err != nil {
			return r.fail(err)
		}
		return &WatchEvent[T]{Type: WatchConnected, Resumed: resumed}, nil
	}
	for {
		answer := r.watch.source.answer()
		// Only waiting counts as silence, not what the caller does between two events.
		r.silence.Reset(r.watch.client.settings.watch.Silence)
		err := r.stream.receive(answer)
		r.silence.Stop()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return r.disconnect(nil), nil
			}
			return r.fail(err)
		}
		event, err := r.tracker.step(r.watch.source.split(answer), answer.GetResumeToken())
		if err != nil {
			return r.fail(protocolError(r.watch.client.address, err.Error()))
		}
		if event != nil {
			return event, nil
		}
	}
}

// open opens a stream, and tells whether it resumes.
func (r *watchRun[T]) open() (bool, error) {
	resumed := r.tracker.connect()
	ctx, cancel := context.WithCancelCause(r.ctx)
	r.cancel = cancel
	r.silence = time.AfterFunc(watchOpenTimeout, func() { cancel(errNotOpened) })
	stream, err := r.watch.client.open(ctx, r.watch.source.method, r.watch.source.request(r.tracker.token), &r.tokens)
	if err != nil {
		return false, err
	}
	r.silence.Stop()
	r.silence = time.AfterFunc(r.watch.client.settings.watch.Silence, func() { cancel(errSilent) })
	r.silence.Stop()
	r.stream, r.since = stream, time.Now()
	r.tokens.accepted()
	return resumed, nil
}

// close ends the stream, if there is one.
func (r *watchRun[T]) close() {
	if r.cancel != nil {
		r.silence.Stop()
		r.cancel(nil)
	}
	r.stream, r.cancel, r.silence = nil, nil, nil
}

// fail decides after a failed stream whether to open another one or to end the watch.
func (r *watchRun[T]) fail(cause error) (*WatchEvent[T], *Error) {
	if hasEnded(r.ctx) {
		return nil, r.ended()
	}
	client := r.watch.client
	var err *Error
	switch {
	case errors.Is(cause, errSilent):
		err = &Error{Kind: KindTransport, Fault: FaultSilent, Address: client.address.String()}
	case errors.Is(cause, errNotOpened):
		err = deadlineError(client.address, watchOpenTimeout, "")
	default:
		err = client.failure(r.ctx, cause, false, 0, "")
	}
	if err.Reason == pb.ErrorReason_ERROR_REASON_RESUME_TOKEN_INVALID && r.tracker.token != "" {
		r.tracker.forget()
		return r.disconnect(err), nil
	}
	again, rejected := client.refresh(&r.tokens, err)
	switch {
	case again:
		return r.disconnect(nil), nil
	case rejected != nil, isFinal(err):
		return nil, err
	default:
		return r.disconnect(err), nil
	}
}

// ended is for a context that has ended.
func (r *watchRun[T]) ended() *Error {
	if errors.Is(r.ctx.Err(), context.Canceled) {
		return cancelledBy(r.ctx)
	}
	return &Error{
		Kind: KindStatus, Code: codes.DeadlineExceeded, Reason: pb.ErrorReason_ERROR_REASON_DEADLINE,
		ReasonName: reasonName(pb.ErrorReason_ERROR_REASON_DEADLINE),
		Message:    "the deadline of the watch has passed", cause: context.DeadlineExceeded,
	}
}

func (r *watchRun[T]) disconnect(err *Error) *WatchEvent[T] {
	isGood := r.stream != nil && time.Since(r.since) >= watchGoodAfter
	r.close()
	r.failures++
	if isGood {
		r.failures = 1
	}
	var least time.Duration
	if err != nil && err.RetryAfter != nil {
		least = min(*err.RetryAfter, watchRetryAfterMax)
	}
	times := r.watch.client.settings.watch
	r.delay = RetryPolicy{Base: times.ReconnectBase, Cap: times.ReconnectCap}.delay(r.failures, least, rand.Float64())
	return &WatchEvent[T]{Type: WatchDisconnected, Err: err, RetryIn: r.delay}
}

// isFinal tells whether a retry cannot help.
func isFinal(err *Error) bool {
	switch err.Kind {
	case KindToken:
		return errors.Is(err, ErrLoggedOut)
	case KindCancelled:
		return true
	case KindStatus:
		switch err.Code {
		case codes.Unauthenticated, codes.PermissionDenied, codes.NotFound, codes.InvalidArgument, codes.FailedPrecondition,
			codes.Unimplemented:
			return true
		}
	}
	return false
}
