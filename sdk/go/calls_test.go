package bindery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

func TestACallCarriesTokenIDDeadlineAndAgent(t *testing.T) {
	s := serve(t, nil, func(context.Context, int, any) (any, error) {
		return &pb.GetExportResponse{Export: &pb.Export{Metadata: &pb.ObjectMeta{Name: "cowboys"}}}, nil
	})
	client := s.client(t, WithTokenSource(StaticToken("hunter2")), WithUserAgent("my-job/1.2"))
	export, err := client.GetExport(t.Context(), "kube-bind-x", "cowboys")
	if err != nil || export.GetMetadata().GetName() != "cowboys" {
		t.Fatal(export, err)
	}
	got := s.attempts()[0]
	if request := got.request.(*pb.GetExportRequest); request.GetContract() != "kube-bind-x" || request.GetName() != "cowboys" {
		t.Error(request)
	}
	if token := first(got.header["authorization"]); token != "Bearer hunter2" {
		t.Error(token)
	}
	if id := first(got.header[requestIDHeader]); len(id) != 32 {
		t.Error(id)
	}
	if agent := first(got.header["user-agent"]); !strings.HasPrefix(agent, "my-job/1.2 bindery-sdk-go/"+Version) {
		t.Error(agent)
	}
	if got.left < 9*time.Second || got.left > 10*time.Second {
		t.Error(got.left)
	}
}

func TestGetProviderSendsNoToken(t *testing.T) {
	s := serve(t, nil, func(context.Context, int, any) (any, error) {
		return &pb.GetProviderResponse{Provider: &pb.Provider{PrettyName: "West"}}, nil
	})
	broken := TokenFunc(func(context.Context) (string, error) { return "", errors.New("broken") })
	provider, err := s.client(t, WithTokenSource(broken)).GetProvider(t.Context())
	if err != nil || provider.GetPrettyName() != "West" {
		t.Fatal(provider, err)
	}
	if sent := s.attempts()[0].header["authorization"]; sent != nil {
		t.Error(sent)
	}
}

func TestFailuresAreTriedAgainWithTheSameID(t *testing.T) {
	s := serve(t, nil, func(_ context.Context, n int, _ any) (any, error) {
		if n < 4 {
			return nil, failing(codes.Unavailable, pb.ErrorReason_ERROR_REASON_OVERLOADED)
		}
		return &pb.RenewKubeconfigResponse{Kubeconfig: &pb.Kubeconfig{}}, nil
	})
	if _, err := s.client(t).RenewKubeconfig(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	attempts := s.attempts()
	if len(attempts) != 5 {
		t.Fatal(len(attempts))
	}
	for _, attempt := range attempts {
		if first(attempt.header[requestIDHeader]) != first(attempts[0].header[requestIDHeader]) {
			t.Error("the request id changed")
		}
	}
}

func TestOneAttemptIsOneAttempt(t *testing.T) {
	s := serve(t, nil, func(context.Context, int, any) (any, error) {
		return nil, failing(codes.Unavailable, pb.ErrorReason_ERROR_REASON_OVERLOADED, time.Hour)
	})
	for _, client := range []*Client{s.client(t, WithRetry(RetryPolicy{Attempts: 1})), s.client(t)} {
		before := len(s.attempts())
		_, err := client.GetCaller(t.Context())
		if !errors.Is(err, Reason(pb.ErrorReason_ERROR_REASON_OVERLOADED)) || len(s.attempts()) != before+1 {
			t.Errorf("%d attempts: %v", len(s.attempts())-before, err)
		}
	}
}

func TestATokenIsReplacedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, "stale")
	tokens := []string{"fresh", "fresher"}
	s := serve(t, nil, func(_ context.Context, n int, _ any) (any, error) {
		if n < len(tokens) {
			writeUnseen(t, path, tokens[n])
		}
		return nil, failing(codes.Unauthenticated, pb.ErrorReason_ERROR_REASON_TOKEN_EXPIRED)
	})
	_, err := s.client(t, WithTokenSource(TokenFile(path))).GetCaller(t.Context())
	if !errors.Is(err, Reason(pb.ErrorReason_ERROR_REASON_TOKEN_EXPIRED)) {
		t.Error(err)
	}
	var sent []string
	for _, attempt := range s.attempts() {
		sent = append(sent, first(attempt.header["authorization"]))
	}
	if fmt.Sprint(sent) != "[Bearer stale Bearer fresh]" {
		t.Error(sent)
	}
}

func TestTheSameTokenIsNotSentAgain(t *testing.T) {
	s := serve(t, nil, func(context.Context, int, any) (any, error) {
		return nil, failing(codes.Unauthenticated, pb.ErrorReason_ERROR_REASON_TOKEN_INVALID)
	})
	_, err := s.client(t, WithTokenSource(StaticToken("hunter2"))).GetCaller(t.Context())
	if !errors.Is(err, Code(codes.Unauthenticated)) || len(s.attempts()) != 1 {
		t.Errorf("%d attempts: %v", len(s.attempts()), err)
	}
}

// hang answers when the caller has given up.
func hang(ctx context.Context, _ int, _ any) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestTheEarlierDeadlineCounts(t *testing.T) {
	s := serve(t, nil, hang)
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for name, call := range map[string]func() error{
		"of the context": func() error { _, err := s.client(t).GetCaller(short); return err },
		"of the client": func() error {
			_, err := s.client(t, WithTimeout(200*time.Millisecond)).GetCaller(t.Context())
			return err
		},
		"of a call that counts": func() error {
			_, err := s.client(t, WithAttemptTimeout(200*time.Millisecond)).RenewKubeconfig(t.Context(), "")
			return err
		},
	} {
		err := call()
		// The server observes the same deadline, and can be the first to say so.
		if !errors.Is(err, Code(codes.DeadlineExceeded)) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, attempt := range s.attempts() {
		if attempt.left > 200*time.Millisecond {
			t.Errorf("the server was told %v", attempt.left)
		}
	}
}

func TestAnAttemptThatStallsIsTriedAgain(t *testing.T) {
	s := serve(t, nil, func(ctx context.Context, n int, request any) (any, error) {
		if n == 0 {
			return hang(ctx, n, request)
		}
		return &pb.GetCallerResponse{Caller: &pb.Caller{Username: "me"}}, nil
	})
	caller, err := s.client(t, WithAttemptTimeout(300*time.Millisecond)).GetCaller(t.Context())
	if err != nil || caller.GetUsername() != "me" || len(s.attempts()) != 2 {
		t.Error(caller, err)
	}
}

func TestACancelledCallEndsAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(t, nil, func(ctx context.Context, n int, request any) (any, error) {
		cancel()
		return hang(ctx, n, request)
	})
	_, err := s.client(t).GetCaller(ctx)
	var failure *Error
	if !errors.As(err, &failure) || failure.Kind != KindCancelled || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestACallThatWaitsForItsNextAttemptIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(t, nil, func(context.Context, int, any) (any, error) {
		time.AfterFunc(50*time.Millisecond, cancel)
		return nil, failing(codes.Unavailable, pb.ErrorReason_ERROR_REASON_OVERLOADED, 20*time.Second)
	})
	if _, err := s.client(t).GetCaller(ctx); !errors.Is(err, context.Canceled) || len(s.attempts()) != 1 {
		t.Error(err)
	}
}

func TestAClosedClientSaysSo(t *testing.T) {
	started := make(chan struct{})
	s := serve(t, nil, func(ctx context.Context, n int, request any) (any, error) {
		close(started)
		return hang(ctx, n, request)
	})
	client := s.client(t)
	go func() {
		<-started
		client.Close()
	}()
	for range 2 {
		if _, err := client.GetCaller(t.Context()); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
}

func TestNothingTooLargeIsSentOrTaken(t *testing.T) {
	s := serve(t, nil, func(context.Context, int, any) (any, error) {
		return &pb.GetCallerResponse{Caller: &pb.Caller{Username: strings.Repeat("x", MessageReceiveMax)}}, nil
	})
	client := s.client(t)
	if _, err := client.GetExport(t.Context(), "", strings.Repeat("x", MessageSendMax)); !isTooLarge(err) || len(s.attempts()) != 0 {
		t.Error(err)
	}
	if _, err := client.GetCaller(t.Context()); !isTooLarge(err) || len(s.attempts()) != 1 {
		t.Error(err)
	}
}

func isTooLarge(err error) bool {
	return errors.Is(err, Reason(pb.ErrorReason_ERROR_REASON_MESSAGE_TOO_LARGE)) && errors.Is(err, Code(codes.ResourceExhausted))
}

func TestAnAnswerWithoutItsMainFieldBreaksTheRules(t *testing.T) {
	s := serve(t, nil, func(context.Context, int, any) (any, error) { return &pb.GetCallerResponse{}, nil })
	_, err := s.client(t).GetCaller(t.Context())
	var failure *Error
	if !errors.As(err, &failure) || failure.Kind != KindProtocol || !strings.Contains(err.Error(), "no caller") {
		t.Error(err)
	}
}

// pageServer serves pages by number: the token is the index of the page.
func pageServer(t *testing.T, pages ...*pb.ListTemplatesResponse) *server {
	return serve(t, nil, func(_ context.Context, _ int, request any) (any, error) {
		number := 0
		if token := request.(*pb.ListTemplatesRequest).GetPageToken(); token != "" {
			fmt.Sscan(token, &number)
		}
		return pages[number], nil
	})
}

func page(next string, names ...string) *pb.ListTemplatesResponse {
	answer := &pb.ListTemplatesResponse{NextPageToken: next}
	for _, name := range names {
		answer.Templates = append(answer.Templates, &pb.Template{Metadata: &pb.ObjectMeta{Name: name}})
	}
	return answer
}

func TestAListGoesOnOverEmptyPages(t *testing.T) {
	s := pageServer(t, page("1", "a", "b"), page("2"), page("", "c"))
	request := &pb.ListTemplatesRequest{PageSize: 2}
	templates, err := Collect(s.client(t).ListTemplates(t.Context(), request))
	if err != nil || len(templates) != 3 || templates[2].GetMetadata().GetName() != "c" {
		t.Error(templates, err)
	}
	for _, attempt := range s.attempts() {
		if attempt.request.(*pb.ListTemplatesRequest).GetPageSize() != 2 {
			t.Error("the filter is lost")
		}
	}
	if request.GetPageToken() != "" {
		t.Error("the caller's request was changed")
	}
	if templates, err := Collect(s.client(t).ListTemplates(t.Context(), nil)); err != nil || len(templates) != 3 {
		t.Error(templates, err)
	}
}

func TestAListThatIsLeftReadsNoFurther(t *testing.T) {
	s := pageServer(t, page("1", "a", "b"), page("", "c"))
	for range s.client(t).ListTemplates(t.Context(), nil) {
		break
	}
	if len(s.attempts()) != 1 {
		t.Error(len(s.attempts()))
	}
}

func TestAListThatNeverEndsIsAnError(t *testing.T) {
	s := pageServer(t, page("1", "a"), page("1", "b"))
	if _, err := Collect(s.client(t).ListTemplates(t.Context(), nil)); err == nil || !strings.Contains(err.Error(), "names itself") {
		t.Error(err)
	}
}

func request(phase pb.Phase) *pb.BindableResourcesRequest {
	return &pb.BindableResourcesRequest{
		Metadata: &pb.ObjectMeta{Name: "cowboys"}, Status: &pb.BindableResourcesRequestStatus{Phase: phase},
	}
}

func TestBindWaitsAndReportsProgress(t *testing.T) {
	s := serve(t, nil, func(_ context.Context, n int, _ any) (any, error) {
		if n == 0 {
			return &pb.CreateBindableResourcesRequestResponse{BindableResourcesRequest: request(pb.Phase_PHASE_PENDING)}, nil
		}
		return &pb.CreateBindableResourcesRequestResponse{
			BindableResourcesRequest: request(pb.Phase_PHASE_SUCCEEDED),
			Response:                 &pb.BindingResourceResponse{BindingName: "west", Kubeconfig: &pb.Kubeconfig{Kubeconfig: []byte("k")}},
		}, nil
	})
	progress := 0
	bound, err := s.client(t).Bind(t.Context(), BindRequest{
		Template: "cowboys", ClusterIdentity: "uid", Name: "west", PrettyName: "West", Wait: time.Second,
		Progress: func(*pb.BindableResourcesRequest) { progress++ },
	})
	if err != nil || string(bound.Kubeconfig()) != "k" || progress != 1 {
		t.Fatal(bound, progress, err)
	}
	sent := s.attempts()[0]
	message := sent.request.(*pb.CreateBindableResourcesRequestRequest)
	spec := message.GetBindableResourcesRequest().GetSpec()
	if message.GetBindableResourcesRequest().GetMetadata().GetName() != "west" || spec.GetTemplateRef().GetName() != "cowboys" ||
		spec.GetClusterIdentity().GetIdentity() != "uid" || spec.GetClusterIdentity().GetPrettyName() != "West" {
		t.Error(message)
	}
	if sent.left < 10*time.Second || sent.left > 11*time.Second {
		t.Error("the wait is not part of the deadline:", sent.left)
	}
}

func TestBindSaysWhyItHasNothing(t *testing.T) {
	for phase, kind := range map[pb.Phase]Kind{
		pb.Phase_PHASE_PENDING: KindPending, pb.Phase_PHASE_FAILED: KindRequestFailed, pb.Phase_PHASE_SUCCEEDED: KindProtocol,
	} {
		s := serve(t, nil, func(context.Context, int, any) (any, error) {
			return &pb.CreateBindableResourcesRequestResponse{BindableResourcesRequest: request(phase)}, nil
		})
		_, err := s.client(t).Bind(t.Context(), BindRequest{Template: "cowboys", ClusterIdentity: "uid", Patience: 1})
		var failure *Error
		if !errors.As(err, &failure) || failure.Kind != kind {
			t.Errorf("%s: %v", phase, err)
		}
	}
}

func TestStubsHaveTheBehaviourOfTheClient(t *testing.T) {
	s := serve(t, nil, func(_ context.Context, n int, _ any) (any, error) {
		if n == 0 {
			return nil, failing(codes.Unavailable, pb.ErrorReason_ERROR_REASON_OVERLOADED)
		}
		return page("next", "a"), nil
	})
	stub := pb.NewCatalogServiceClient(s.client(t).Conn())
	answer, err := stub.ListTemplates(t.Context(), &pb.ListTemplatesRequest{})
	if err != nil || answer.GetNextPageToken() != "next" {
		t.Error(answer, err)
	}
}

func TestManyCallsAtATimeAllEnd(t *testing.T) {
	s := serve(t, nil, func(context.Context, int, any) (any, error) {
		return &pb.GetCallerResponse{Caller: &pb.Caller{}}, nil
	})
	client := s.client(t)
	var calls sync.WaitGroup
	for range 64 {
		calls.Go(func() {
			if _, err := client.GetCaller(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
}

func TestAServerThatComesLateIsFound(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + listener.Addr().String()
	listener.Close()
	client, err := NewClient(address, WithPlaintext(), WithRetry(RetryPolicy{Attempts: 3, Base: 1, Cap: 1}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = client.GetCaller(t.Context())
	var failure *Error
	if !errors.As(err, &failure) || failure.Fault != FaultRefused || !failure.NotSent || !strings.Contains(err.Error(), address) {
		t.Fatal(err)
	}
	late := serve(t, nil, func(context.Context, int, any) (any, error) {
		return &pb.GetCallerResponse{Caller: &pb.Caller{}}, nil
	})
	// The next call connects at once, not when a backoff is over.
	moved := client.transport.(*grpcTransport)
	moved.target = "passthrough:///" + strings.TrimPrefix(late.address, "http://")
	if _, err := client.GetCaller(t.Context()); err != nil {
		t.Error(err)
	}
}
