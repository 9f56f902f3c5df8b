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

func bound() *bindery.Bound {
	request := &pb.BindableResourcesRequest{
		Metadata: &pb.ObjectMeta{Name: "west"},
		Spec:     &pb.BindableResourcesRequestSpec{TemplateRef: &pb.NameRef{Name: "cowboys"}},
	}
	return bindery.NewBound(request, answer())
}

func TestNoResultShowsAKubeconfig(t *testing.T) {
	bound := bound()
	manifests, err := bound.Manifests(bindery.ManifestOptions{})
	if err != nil {
		t.Fatal(err)
	}
	renewed := bindery.Renewed{Kubeconfig: bindery.Hide([]byte("hunter2"))}
	inside := struct {
		Bound     *bindery.Bound
		Manifests bindery.ManifestList
		Secret    bindery.Manifest
		Renewed   bindery.Renewed
		Response  *pb.BindingResourceResponse
	}{bound, manifests, manifests[2], renewed, answer()}
	for _, value := range []any{
		bound, *bound, manifests, []bindery.Manifest(manifests), manifests[2], renewed, &renewed, renewed.Kubeconfig, inside, &inside, answer(),
	} {
		var shown strings.Builder
		fmt.Fprintf(&shown, "%v %+v %#v %s %q %x", value, value, value, value, value, value)
		if text, err := json.Marshal(value); err != nil {
			t.Error(err)
		} else {
			shown.Write(text)
		}
		slog.New(slog.NewJSONHandler(&shown, nil)).Info("made", "value", value, "inside", map[string]any{"value": value})
		slog.New(slog.NewTextHandler(&shown, nil)).Info("made", "value", value, "inside", map[string]any{"value": value})
		for _, spelling := range []string{"hunter2", "aHVudGVyMg", "0x68, 0x75", "68756e74657232", "104 117", "104,117"} {
			if strings.Contains(shown.String(), spelling) {
				t.Errorf("%T is shown as %s", value, shown.String())
			}
		}
	}
	if got := string(bound.Kubeconfig.Bytes()) + string(renewed.Kubeconfig.Bytes()); got != "hunter2hunter2" {
		t.Error(got)
	}
	if logged := fmt.Sprint(manifests.LogValue()); !strings.Contains(logged, "Secret kube-bind/kubeconfig-west") {
		t.Error(logged)
	}
}

func TestABoundKnowsWhatWasAskedFor(t *testing.T) {
	manifests, err := bound().Manifests(bindery.ManifestOptions{})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := bindery.Manifests(answer(), bindery.ManifestOptions{Name: "west", Template: "cowboys"})
	if err != nil {
		t.Fatal(err)
	}
	var got, expect bytes.Buffer
	manifests.WriteTo(&got)
	whole.WriteTo(&expect)
	if got.String() != expect.String() || !strings.Contains(got.String(), `"kube-bind.io/template":"cowboys"`) ||
		!strings.Contains(got.String(), `"kubeconfig":"aHVudGVyMg=="`) {
		t.Errorf("got\n%s\ninstead of\n%s", got.String(), expect.String())
	}
	other := answer()
	other.BindingName, other.Requests[0].Name = "east", "east"
	_, err = bindery.NewBound(bound().Request, other).Manifests(bindery.ManifestOptions{})
	var refusal *bindery.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != "OtherBinding" {
		t.Error(err)
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
