package bindery

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"kube-bind.io/bindery/sdk/go/internal/timing"
	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// exports is a server that streams what the resume token says.
type exports struct {
	pb.UnimplementedExportServiceServer
}

func (exports) WatchExports(request *pb.WatchExportsRequest, stream grpc.ServerStreamingServer[pb.WatchExportsResponse]) error {
	steps := []step{begin(), applied("a", ""), complete(1, "t1")}
	switch request.GetResumeToken() {
	case "t1":
		steps = []step{applied("b", "t2")}
	case "t2":
		return failing(codes.PermissionDenied, pb.ErrorReason_ERROR_REASON_CONTRACT_DENIED)
	}
	for _, step := range steps {
		if err := stream.Send(step.answer); err != nil {
			return err
		}
	}
	return nil
}

// streaming serves exports, and returns a client that reconnects at once.
func streaming(t *testing.T) *Client {
	t.Helper()
	s := serveWith(t, func(backend *grpc.Server) { pb.RegisterExportServiceServer(backend, exports{}) })
	times := timing.Watch{ReconnectBase: 1, ReconnectCap: 1, Silence: time.Minute}
	return s.client(t, WithWatchTiming(times))
}

func TestAWatchResumesOverConnections(t *testing.T) {
	got := words(t.Context(), streaming(t).WatchExports(nil), 99)
	expect := []string{"connected", "begin", "+a", "complete", "ended", "resumed", "+b", "ended", "error CONTRACT_DENIED"}
	if !reflect.DeepEqual(got, expect) {
		t.Errorf("%q", got)
	}
}

func TestAStubStreamsWithTheErrorsOfTheClient(t *testing.T) {
	stub := pb.NewExportServiceClient(streaming(t).Conn())
	stream, err := stub.WatchExports(t.Context(), &pb.WatchExportsRequest{ResumeToken: "t2"})
	if err == nil {
		_, err = stream.Recv()
	}
	if !errors.Is(err, Reason(pb.ErrorReason_ERROR_REASON_CONTRACT_DENIED)) {
		t.Error(err)
	}
	if _, err := stub.GetExport(t.Context(), &pb.GetExportRequest{}, grpc.WaitForReady(true)); !errors.Is(err, errors.ErrUnsupported) {
		t.Error("an option has no effect:", err)
	}
}

func TestALeftLoopEndsItsStream(t *testing.T) {
	ended := make(chan struct{})
	s := serveWith(t, func(backend *grpc.Server) { pb.RegisterExportServiceServer(backend, holding{ended: ended}) })
	client := s.client(t)
	for range client.WatchExports(nil).Events(t.Context()) {
		break
	}
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the stream goes on")
	}
}

// holding keeps each stream open, and tells when one ends.
type holding struct {
	pb.UnimplementedExportServiceServer
	ended chan struct{}
}

func (h holding) WatchExports(_ *pb.WatchExportsRequest, stream grpc.ServerStreamingServer[pb.WatchExportsResponse]) error {
	if err := stream.Send(begin().answer); err != nil {
		return err
	}
	<-stream.Context().Done()
	close(h.ended)
	return context.Cause(stream.Context())
}
