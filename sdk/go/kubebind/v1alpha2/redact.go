// Package kubebindv1alpha2 holds the messages of the API and the stubs of its services, generated from their definitions. Package
// bindery is the client that adds tokens, deadlines, retries and typed errors.
package kubebindv1alpha2

import (
	"fmt"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Messages that hold a kubeconfig print its length in its place, whatever the verb. This file is not generated.

var (
	_ fmt.Formatter = (*Kubeconfig)(nil)
	_ fmt.Formatter = (*BindingResourceResponse)(nil)
	_ fmt.Formatter = (*CreateBindableResourcesRequestResponse)(nil)
	_ fmt.Formatter = (*RenewKubeconfigResponse)(nil)
)

// Format prints the message without its kubeconfig.
func (x *Kubeconfig) Format(state fmt.State, _ rune) { format(state, x) }

// Format prints the message without its kubeconfig.
func (x *BindingResourceResponse) Format(state fmt.State, _ rune) { format(state, x) }

// Format prints the message without its kubeconfig.
func (x *CreateBindableResourcesRequestResponse) Format(state fmt.State, _ rune) { format(state, x) }

// Format prints the message without its kubeconfig.
func (x *RenewKubeconfigResponse) Format(state fmt.State, _ rune) { format(state, x) }

func format(state fmt.State, message proto.Message) {
	shown := proto.Clone(message)
	redact(shown.ProtoReflect())
	fmt.Fprint(state, prototext.MarshalOptions{}.Format(shown))
}

// redact replaces the content of fields that the API calls sensitive, however deep.
func redact(message protoreflect.Message) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case isSensitive(field):
			text := fmt.Sprintf("[%d bytes redacted]", len(value.Bytes()))
			message.Set(field, protoreflect.ValueOfBytes([]byte(text)))
		case field.IsMap() || field.Message() == nil:
		case field.IsList():
			for number := range value.List().Len() {
				redact(value.List().Get(number).Message())
			}
		default:
			redact(value.Message())
		}
		return true
	})
}

func isSensitive(field protoreflect.FieldDescriptor) bool {
	options, ok := field.Options().(*descriptorpb.FieldOptions)
	return ok && options.GetDebugRedact()
}
