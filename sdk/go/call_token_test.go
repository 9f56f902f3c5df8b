package bindery

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

func TestASlowTokenSourceIsNotTheFaultOfTheServer(t *testing.T) {
	s := serve(t, nil, func(context.Context, int, any) (any, error) { return &pb.GetCallerResponse{Caller: &pb.Caller{}}, nil })
	var runs atomic.Int32
	never := TokenFunc(func(context.Context) (string, error) {
		runs.Add(1)
		select {}
	})
	client := s.client(t, WithTokenSource(never), WithTimeout(200*time.Millisecond), WithAttemptTimeout(50*time.Millisecond))
	_, err := client.GetCaller(t.Context())
	var failure *Error
	if !errors.As(err, &failure) || failure.Kind != KindToken || failure.ReasonString() != "TokenSourceFailed" || runs.Load() != 1 {
		t.Errorf("%d runs, %v", runs.Load(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := client.GetCaller(ctx); !errors.As(err, &failure) || failure.Kind != KindCancelled {
		t.Error(err)
	}
	if len(s.attempts()) != 0 {
		t.Error("a call was sent without a token")
	}
}

func TestATokenHasTheTimeOfTheCallAndNotOfTheAttempt(t *testing.T) {
	s := serve(t, nil, func(context.Context, int, any) (any, error) { return &pb.GetCallerResponse{Caller: &pb.Caller{}}, nil })
	slow := TokenFunc(func(context.Context) (string, error) {
		time.Sleep(600 * time.Millisecond)
		return "hunter2", nil
	})
	client := s.client(t, WithTokenSource(slow), WithTimeout(20*time.Second), WithAttemptTimeout(500*time.Millisecond))
	if _, err := client.GetCaller(t.Context()); err != nil {
		t.Error(err)
	}
	if got := s.attempts(); len(got) != 1 || got[0].left < 300*time.Millisecond {
		t.Error(got)
	}
}

func TestAnErrorOfTheUsersIsNeverRetried(t *testing.T) {
	s := serve(t, nil, func(context.Context, int, any) (any, error) { return nil, nil })
	runs := 0
	throws := TokenFunc(func(context.Context) (string, error) {
		runs++
		return "", fmt.Errorf("hunter2: %w", context.DeadlineExceeded)
	})
	_, err := s.client(t, WithTokenSource(throws)).GetCaller(t.Context())
	var failure *Error
	if !errors.As(err, &failure) || failure.Kind != KindToken || runs != 1 || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%d runs, %v", runs, err)
	}
}

func TestAPanicOfTheUsersReachesTheCaller(t *testing.T) {
	s := serve(t, nil, func(context.Context, int, any) (any, error) { return nil, nil })
	client := s.client(t, WithTokenSource(TokenFunc(func(context.Context) (string, error) { panic("mine") })))
	defer func() {
		if got := recover(); got != "mine" {
			t.Error(got)
		}
	}()
	client.GetCaller(t.Context())
}

// Many calls with one expired token run the command twice: once for it, and once after.
func TestManyRefusedCallsRunTheCommandTwice(t *testing.T) {
	const calls = 40
	var refused sync.WaitGroup
	refused.Add(calls)
	s := serve(t, nil, func(ctx context.Context, _ int, _ any) (any, error) {
		header, _ := metadata.FromIncomingContext(ctx)
		if first(header["authorization"]) == "Bearer t-1" {
			refused.Done()
			refused.Wait()
			return nil, failing(codes.Unauthenticated, pb.ErrorReason_ERROR_REASON_TOKEN_EXPIRED)
		}
		return &pb.GetCallerResponse{Caller: &pb.Caller{}}, nil
	})
	file := filepath.Join(t.TempDir(), "runs")
	source := TokenCommand("sh", "-c", `echo x >> "$1"; echo "t-$(wc -l < "$1")"`, "sh", file)
	client := s.client(t, WithTokenSource(source))
	var running sync.WaitGroup
	for range calls {
		running.Go(func() {
			if _, err := client.GetCaller(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	expectToken(t, source, "t-2")
	if got := len(s.attempts()); got != 2*calls {
		t.Error(got)
	}
}

func TestAWatchWithoutATokenGoesOn(t *testing.T) {
	never := TokenFunc(func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for event, err := range (&script{}).client(WithTokenSource(never)).WatchExports(nil).Events(t.Context()) {
			if err != nil || event.Type != WatchDisconnected || event.Err.Kind != KindToken || event.Err.RequestID == "" {
				t.Error(event, err)
			}
			break
		}
		if waited := time.Since(start); waited != streamTokenTimeout {
			t.Error(waited)
		}
	})
}
