package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// backend answers the cases of this test.
type backend struct {
	pb.UnimplementedCatalogServiceServer
	pb.UnimplementedExportServiceServer
	pb.UnimplementedBindingServiceServer
}

func (backend) ListTemplates(context.Context, *pb.ListTemplatesRequest) (*pb.ListTemplatesResponse, error) {
	return &pb.ListTemplatesResponse{Templates: []*pb.Template{{Metadata: &pb.ObjectMeta{Name: "a"}}}}, nil
}

func (backend) GetExport(_ context.Context, request *pb.GetExportRequest) (*pb.GetExportResponse, error) {
	return nil, status.Error(codes.NotFound, "no export "+request.GetName())
}

func (backend) WatchExports(_ *pb.WatchExportsRequest, stream grpc.ServerStreamingServer[pb.WatchExportsResponse]) error {
	return stream.Send(&pb.WatchExportsResponse{Event: &pb.WatchExportsResponse_SnapshotBegin{SnapshotBegin: &pb.SnapshotBegin{}}})
}

func (backend) CreateBindableResourcesRequest(
	context.Context, *pb.CreateBindableResourcesRequestRequest,
) (*pb.CreateBindableResourcesRequestResponse, error) {
	pending := &pb.BindableResourcesRequest{Status: &pb.BindableResourcesRequestStatus{Phase: pb.Phase_PHASE_PENDING}}
	return &pb.CreateBindableResourcesRequestResponse{BindableResourcesRequest: pending}, nil
}

// answers runs lines, and returns what came of each.
func answers(t *testing.T, actions map[string]string) map[string]string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := grpc.NewServer()
	pb.RegisterCatalogServiceServer(served, backend{})
	pb.RegisterExportServiceServer(served, backend{})
	pb.RegisterBindingServiceServer(served, backend{})
	go served.Serve(listener)
	t.Cleanup(served.Stop)
	var input strings.Builder
	for id, action := range actions {
		fmt.Fprintf(&input, `{"id":%q,"client":{"address":"http://%s","allowPlaintext":true,"token":{"static":"hunter2"}},"action":%s}`+"\n",
			id, listener.Addr(), action)
	}
	var output bytes.Buffer
	if err := run(strings.NewReader(input.String()), &output); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(output.String(), "hunter2") {
		t.Error("a token is shown")
	}
	outcomes := map[string]string{}
	for line := range strings.Lines(output.String()) {
		var outcome map[string]any
		if err := json.Unmarshal([]byte(line), &outcome); err != nil {
			t.Fatal(err)
		}
		id := outcome["id"].(string)
		delete(outcome, "id")
		delete(outcome, "shown")
		text, err := json.Marshal(outcome)
		if err != nil {
			t.Fatal(err)
		}
		outcomes[id] = string(text)
	}
	return outcomes
}

func TestEachActionHasItsOutcome(t *testing.T) {
	expect := map[string]string{
		"call":      `{"ok":{"templates":[{"metadata":{"name":"a"}}]}}`,
		"list":      `{"ok":[{"metadata":{"name":"a"}}]}`,
		"watch":     `{"events":[{"connected":{"resumed":false}},{"snapshotBegin":{}}],"resumeToken":""}`,
		"bind":      `{"error":{"kind":"pending","message":"request  is still pending after 0 s; bind again to go on waiting"},"progress":1}`,
		"manifests": `{"error":{"kind":"refusal","message":"refused what the provider wants installed: it names no contract namespace","reason":"NoContract"}}`,
		"unknown":   `{"error":{"kind":"runner","message":"there is no method Fly"}}`,
	}
	got := answers(t, map[string]string{
		"call":      `{"call":"ListTemplates","request":{"pageSize":3}}`,
		"list":      `{"list":"ListTemplates"}`,
		"watch":     `{"watch":"WatchExports","request":{},"events":2}`,
		"bind":      `{"bind":{"template":"cowboys","identity":"x","patienceMs":0}}`,
		"manifests": `{"manifests":{"response":{"bindingName":"west"},"options":{}}}`,
		"unknown":   `{"call":"Fly"}`,
		"error":     `{"call":"GetExport","request":{"name":"b"}}`,
	})
	for id, outcome := range expect {
		if got[id] != outcome {
			t.Errorf("%s: %s", id, got[id])
		}
	}
	if !strings.HasPrefix(got["error"], `{"error":{"code":"NOT_FOUND","kind":"status","message":"no export b (NOT_FOUND, request `) {
		t.Error(got["error"])
	}
}
