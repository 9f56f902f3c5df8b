package bindery

import (
	"encoding/json"
	"fmt"
	"log/slog"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// Hidden holds secret bytes, such as a kubeconfig. Only [Hidden.Bytes] returns them: fmt, encoding/json, log/slog and logr get their
// number instead.
type Hidden struct{ content func() []byte }

// Hide makes a [Hidden] of secret bytes.
func Hide(content []byte) Hidden { return Hidden{func() []byte { return content }} }

// Bytes returns the secret bytes; nil if there are none.
func (h Hidden) Bytes() []byte {
	if h.content == nil {
		return nil
	}
	return h.content()
}

// String returns the number of bytes, such as "[1024 bytes redacted]".
func (h Hidden) String() string { return fmt.Sprintf("[%d bytes redacted]", len(h.Bytes())) }

// GoString returns the number of bytes.
func (h Hidden) GoString() string { return fmt.Sprintf("bindery.Hidden(%s)", h) }

// MarshalJSON returns the number of bytes as a JSON string, such as "[1024 bytes redacted]".
func (h Hidden) MarshalJSON() ([]byte, error) { return json.Marshal(h.String()) }

// LogValue is what log/slog logs: the number of bytes.
func (h Hidden) LogValue() slog.Value { return slog.StringValue(h.String()) }

// MarshalLog is what logr logs: the number of bytes.
func (h Hidden) MarshalLog() any { return h.String() }

// takeKubeconfig takes the file out of a credential, whose other fields are not secret.
func takeKubeconfig(credential *pb.Kubeconfig) Hidden {
	content := credential.GetKubeconfig()
	if len(content) == 0 {
		return Hidden{}
	}
	credential.Kubeconfig = nil
	return Hide(content)
}
