package bindery_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bindery "kube-bind.io/bindery/sdk/go"
	"kube-bind.io/bindery/sdk/go/internal/golden"
	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

func TestManifestsAreThoseOfAllSDKs(t *testing.T) {
	const folder = "../contract/manifests"
	if _, err := os.Stat(folder); err != nil {
		t.Skip("the golden files are part of the repository, not of the module")
	}
	paths, err := filepath.Glob(folder + "/*.json")
	if err != nil || len(paths) < 50 {
		t.Fatalf("%d golden files: %v", len(paths), err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var file golden.File
		if err := json.Unmarshal(text, &file); err != nil {
			t.Fatal(path, err)
		}
		t.Run(file.Name, func(t *testing.T) { checkGolden(t, file) })
	}
}

func checkGolden(t *testing.T, file golden.File) {
	if file.Canonical == "" && file.Refusal.Reason == "" {
		t.Fatal("the file has neither documents nor a refusal")
	}
	manifests, err := file.Input.Manifests()
	var refusal *bindery.Refusal
	if errors.As(err, &refusal) {
		if refusal.Reason != file.Refusal.Reason {
			t.Errorf("refused for %s instead of %q: %v", refusal.Reason, file.Refusal.Reason, refusal)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := golden.Text(manifests); text != file.Canonical {
		t.Errorf("got\n%s\ninstead of\n%s", text, file.Canonical)
	}
}

func answer() *pb.BindingResourceResponse {
	return &pb.BindingResourceResponse{
		ProviderNamespace: "kube-bind-x",
		BindingName:       "west",
		Kubeconfig:        &pb.Kubeconfig{Kubeconfig: []byte("hunter2")},
		Requests: []*pb.ExportRequest{{
			Name:             "west",
			Resources:        []*pb.Resource{{Group: "wildwest.dev", Resource: "cowboys"}},
			PermissionClaims: []*pb.PermissionClaim{{Resource: "secrets"}},
		}},
	}
}

func TestManifestsAreWholeAndInOrder(t *testing.T) {
	manifests, err := bindery.Manifests(answer(), bindery.ManifestOptions{Template: "cowboys", WithNamespace: true})
	if err != nil {
		t.Fatal(err)
	}
	const names = "[Namespace kube-bind ClusterRole kube-bind-konnector-west ClusterRoleBinding kube-bind-konnector-west " +
		"Secret kube-bind/kubeconfig-west APIServiceBinding west]"
	if got := fmt.Sprint(manifests); got != names {
		t.Error(got)
	}
	for _, manifest := range manifests {
		object := manifest.Object()
		metadata := object["metadata"].(map[string]any)
		if object["kind"] != manifest.Kind || object["apiVersion"] != manifest.APIVersion || metadata["name"] != manifest.Name {
			t.Errorf("%s: %v", manifest, object)
		}
		// What is made of an object does not change the manifest.
		metadata["name"] = "other"
		if strings.Contains(string(manifest.JSON()), `"other"`) {
			t.Errorf("%s was changed", manifest)
		}
	}
	const binding = `{"apiVersion":"kube-bind.io/v1alpha2","kind":"APIServiceBinding","metadata":{"annotations":` +
		`{"kube-bind.io/accepted-claims":"[{\"resource\":\"secrets\",\"selector\":{}}]","kube-bind.io/resources":"cowboys.wildwest.dev",` +
		`"kube-bind.io/template":"cowboys"},"labels":{"app.kubernetes.io/managed-by":"kubectl-bind"},"name":"west"},` +
		`"spec":{"kubeconfigSecretRef":{"key":"kubeconfig","name":"kubeconfig-west","namespace":"kube-bind"}}}`
	if got := string(manifests[4].JSON()); got != binding {
		t.Error(got)
	}
}

func TestManifestsShowNoKubeconfig(t *testing.T) {
	manifests, err := bindery.Manifests(answer(), bindery.ManifestOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bound := &bindery.Bound{Response: answer()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		shown := fmt.Sprintf(verb+verb+verb, manifests, bound, *bound)
		if strings.Contains(shown, "hunter2") || strings.Contains(shown, "aHVudGVyMg") || strings.Contains(shown, "0x68, 0x75") {
			t.Errorf("%s: %s", verb, shown)
		}
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("bound", "bound", bound, "secret", manifests[2])
	logged := log.String()
	if strings.Contains(logged, "hunter2") || strings.Contains(logged, "aHVudGVyMg") || !strings.Contains(logged, "kubeconfig-west") {
		t.Error(logged)
	}
	if got := string(bound.Kubeconfig()); got != "hunter2" {
		t.Error(got)
	}
}

func TestARefusalNamesWhatIsRefused(t *testing.T) {
	hostile := answer()
	hostile.Requests[0].Resources = append(hostile.Requests[0].Resources, &pb.Resource{Group: "apps", Resource: "deploy\x1bments"})
	_, err := bindery.Manifests(hostile, bindery.ManifestOptions{})
	var refusal *bindery.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != "ForeignApi" || refusal.Resource.Group != "apps" ||
		!strings.Contains(err.Error(), "deploy ments.apps") {
		t.Error(err)
	}
}

func TestNoAnswerMakesItPanic(t *testing.T) {
	if manifests, err := bindery.Manifests(nil, bindery.ManifestOptions{}); err == nil {
		t.Error(manifests)
	}
}
