package kubebindv1alpha2_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

func TestNoVerbShowsAKubeconfigHoweverDeep(t *testing.T) {
	kubeconfig := &pb.Kubeconfig{Kubeconfig: []byte("token: hunter2"), CredentialId: "anchor-1"}
	response := &pb.BindingResourceResponse{Kubeconfig: kubeconfig}
	for _, message := range []any{
		kubeconfig, response, &pb.RenewKubeconfigResponse{Kubeconfig: kubeconfig},
		&pb.CreateBindableResourcesRequestResponse{Response: response},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
			shown := fmt.Sprintf(verb, message)
			if strings.Contains(shown, "hunter2") || !strings.Contains(shown, "14 bytes redacted") ||
				!strings.Contains(shown, "anchor-1") {
				t.Errorf("%T with %s: %s", message, verb, shown)
			}
		}
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("bound", "response", response, "kubeconfig", kubeconfig)
	slog.New(slog.NewTextHandler(&log, nil)).Info("bound", "response", response, "renewed", &pb.RenewKubeconfigResponse{Kubeconfig: kubeconfig})
	if shown := log.String(); strings.Contains(shown, "hunter2") || strings.Contains(shown, "aHVudGVyMg") || strings.Count(shown, "redacted") != 4 {
		t.Error(shown)
	}
	if string(kubeconfig.GetKubeconfig()) != "token: hunter2" {
		t.Error("printing changed the message")
	}
}

// A message that gets a sensitive field, or a field with such a message, must be printed without it.
func TestEachMessageWithASensitiveFieldIsRedacted(t *testing.T) {
	found := 0
	protoregistry.GlobalTypes.RangeMessages(func(message protoreflect.MessageType) bool {
		descriptor := message.Descriptor()
		if descriptor.ParentFile().Package() != "kubebind.v1alpha2" || !holdsSecret(descriptor, map[protoreflect.FullName]bool{}) {
			return true
		}
		found++
		if _, ok := message.New().Interface().(pb.Redacted); !ok {
			t.Errorf("%s holds a sensitive field and is not Redacted", descriptor.FullName())
		}
		return true
	})
	if found != 4 {
		t.Errorf("%d messages hold a sensitive field", found)
	}
}

func holdsSecret(message protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	if seen[message.FullName()] {
		return false
	}
	seen[message.FullName()] = true
	for number := range message.Fields().Len() {
		field := message.Fields().Get(number)
		if options, ok := field.Options().(*descriptorpb.FieldOptions); ok && options.GetDebugRedact() {
			return true
		}
		if field.Message() != nil && holdsSecret(field.Message(), seen) {
			return true
		}
	}
	return false
}
