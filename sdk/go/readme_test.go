package bindery

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// The program of the README is built in an empty folder, and binds.
func TestTheProgramOfTheReadmeWorks(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(text), "```go\n")
	program, _, found := strings.Cut(program, "```")
	if !found {
		t.Fatal("the README has no program")
	}
	ca := newAuthority(t)
	s := serve(t, ca.serving(t, "127.0.0.1"), func(_ context.Context, _ int, request any) (any, error) {
		sent := request.(*pb.CreateBindableResourcesRequestRequest).GetBindableResourcesRequest()
		return &pb.CreateBindableResourcesRequestResponse{
			BindableResourcesRequest: sent,
			Response: &pb.BindingResourceResponse{
				ProviderNamespace: "kube-bind-" + sent.GetSpec().GetClusterIdentity().GetIdentity(),
				BindingName:       sent.GetMetadata().GetName(),
				Kubeconfig:        &pb.Kubeconfig{Kubeconfig: []byte("k")},
				Requests: []*pb.ExportRequest{{
					Name: sent.GetMetadata().GetName(), Resources: []*pb.Resource{{Group: "wildwest.dev", Resource: "cowboys"}},
				}},
			},
		}, nil
	})
	folder := t.TempDir()
	sdk, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "go.mod"), "module example.com/bind\n\ngo 1.26.0\n\n"+
		"require kube-bind.io/bindery/sdk/go v0.0.0\n\nreplace kube-bind.io/bindery/sdk/go => "+sdk+"\n")
	write(t, filepath.Join(folder, "go.sum"), string(sums))
	write(t, filepath.Join(folder, "main.go"), program)
	write(t, filepath.Join(folder, "ca.crt"), string(ca.pem()))
	write(t, filepath.Join(folder, "token"), "hunter2\n")
	run := exec.CommandContext(t.Context(), "go", "run", "-mod=mod", ".")
	run.Dir = folder
	run.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false", "GOPROXY=off",
		"BIND_SERVER="+s.address, "BIND_CA_FILE=ca.crt", "BIND_TOKEN_FILE=token", "BIND_TEMPLATE=cowboys", "BIND_CLUSTER_IDENTITY=x")
	output, err := run.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, err.(*exec.ExitError).Stderr)
	}
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	if len(lines) != 4 || !strings.Contains(lines[3], `"kind":"APIServiceBinding","metadata":{`) {
		t.Errorf("%s", output)
	}
	if got := first(s.attempts()[0].header["authorization"]); got != "Bearer hunter2" {
		t.Error(got)
	}
}
