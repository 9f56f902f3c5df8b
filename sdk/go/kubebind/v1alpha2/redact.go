// Package kubebindv1alpha2 holds the messages of the API and the stubs of its services, generated from their definitions. Package
// bindery is the client that adds tokens, deadlines, retries and typed errors.
package kubebindv1alpha2

import (
	"fmt"
	"log/slog"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Messages that hold a kubeconfig print its length in its place: by fmt whatever the verb, by log/slog, and by logr. This file is not
// generated.

// Redacted is a message that is printed and logged without its secrets.
type Redacted interface {
	proto.Message
	fmt.Formatter
	slog.LogValuer
	// MarshalLog is the value that logr logs.
	MarshalLog() any
}

var (
	_ Redacted = (*Kubeconfig)(nil)
	_ Redacted = (*BindingResourceResponse)(nil)
	_ Redacted = (*CreateBindableResourcesRequestResponse)(nil)
	_ Redacted = (*RenewKubeconfigResponse)(nil)
)

// Format prints the message without its kubeconfig.
func (x *Kubeconfig) Format(state fmt.State, _ rune) { fmt.Fprint(state, redacted(x)) }

// LogValue is the message without its kubeconfig.
func (x *Kubeconfig) LogValue() slog.Value { return slog.StringValue(redacted(x)) }

// MarshalLog is the message without its kubeconfig.
func (x *Kubeconfig) MarshalLog() any { return redacted(x) }

// Format prints the message without its kubeconfig.
func (x *BindingResourceResponse) Format(state fmt.State, _ rune) { fmt.Fprint(state, redacted(x)) }

// LogValue is the message without its kubeconfig.
func (x *BindingResourceResponse) LogValue() slog.Value { return slog.StringValue(redacted(x)) }

// MarshalLog is the message without its kubeconfig.
func (x *BindingResourceResponse) MarshalLog() any { return redacted(x) }

// Format prints the message without its kubeconfig.
func (x *CreateBindableResourcesRequestResponse) Format(state fmt.State, _ rune) {
	fmt.Fprint(state, redacted(x))
}

// LogValue is the message without its kubeconfig.
func (x *CreateBindableResourcesRequestResponse) LogValue() slog.Value {
	return slog.StringValue(redacted(x))
}

// MarshalLog is the message without its kubeconfig.
func (x *CreateBindableResourcesRequestResponse) MarshalLog() any { return redacted(x) }

// Format prints the message without its kubeconfig.
func (x *RenewKubeconfigResponse) Format(state fmt.State, _ rune) { fmt.Fprint(state, redacted(x)) }

// LogValue is the message without its kubeconfig.
func (x *RenewKubeconfigResponse) LogValue() slog.Value { return slog.StringValue(redacted(x)) }

// MarshalLog is the message without its kubeconfig.
func (x *RenewKubeconfigResponse) MarshalLog() any { return redacted(x) }

func redacted(message proto.Message) string {
	shown := proto.Clone(message)
	redact(shown.ProtoReflect())
	return prototext.MarshalOptions{}.Format(shown)
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
