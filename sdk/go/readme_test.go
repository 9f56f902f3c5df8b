package bindery

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// readmeLinesMax is how long the program of the README may be, without package clause, imports and empty lines.
const readmeLinesMax = 12

// The program of the README is built in an empty module, from the zip of this module, without a network, and binds.
func TestTheProgramOfTheReadmeWorks(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	program := readmeProgram(t)
	ca := newAuthority(t)
	s := serve(t, ca.serving(t, "127.0.0.1"), bindAnything)
	folder := t.TempDir()
	environment := moduleEnvironment(t)
	write(t, filepath.Join(folder, "main.go"), program)
	write(t, filepath.Join(folder, "ca.crt"), string(ca.pem()))
	write(t, filepath.Join(folder, "token"), "hunter2\n")
	goRun := func(arguments ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), "go", arguments...)
		command.Dir = folder
		command.Env = append(environment,
			"BIND_SERVER="+s.address, "BIND_CA_FILE=ca.crt", "BIND_TOKEN_FILE=token", "BIND_TEMPLATE=cowboys", "BIND_CLUSTER_IDENTITY=x")
		var errors bytes.Buffer
		command.Stderr = &errors
		output, err := command.Output()
		if err != nil {
			t.Fatalf("go %v: %v\n%s", arguments, err, errors.String())
		}
		return string(output)
	}
	goRun("mod", "init", "example.com/bind")
	goRun("get", "kube-bind.io/bindery/sdk/go@v"+Version)
	output := goRun("run", ".")
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if len(lines) != 4 || !strings.Contains(lines[3], `"kind":"APIServiceBinding","metadata":{`) ||
		!strings.Contains(lines[3], `"kube-bind.io/template":"cowboys"`) {
		t.Errorf("%s", output)
	}
	if got := first(s.attempts()[0].header["authorization"]); got != "Bearer hunter2" {
		t.Error(got)
	}
}

func readmeProgram(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(text), "```go\n")
	program, _, found := strings.Cut(program, "```")
	if !found {
		t.Fatal("the README has no program")
	}
	_, body, _ := strings.Cut(program, "\n)\n")
	lines := 0
	for line := range strings.Lines(body) {
		if strings.TrimSpace(line) != "" {
			lines++
		}
	}
	if lines > readmeLinesMax {
		t.Errorf("the program of the README has %d lines", lines)
	}
	return program
}

// moduleEnvironment is an environment in which go finds this module as a file, and all others in the cache of this machine.
func moduleEnvironment(t *testing.T) []string {
	t.Helper()
	proxy, cache := t.TempDir(), t.TempDir()
	pack := exec.CommandContext(t.Context(), "go", "run", ".", "-module", "../..", "-version", "v"+Version, "-out", proxy)
	pack.Dir = "tools/modproxy"
	pack.Env = append(os.Environ(), "GOWORK=off")
	if output, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	downloaded, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw -buildvcs=false", "GOSUMDB=off", "GOTOOLCHAIN=local", "GOMODCACHE="+cache,
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(strings.TrimSpace(string(downloaded)), "cache", "download"))
}

func bindAnything(_ context.Context, _ int, request any) (any, error) {
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
}
