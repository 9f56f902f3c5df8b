package tenant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bindery "kube-bind.io/bindery/sdk/go"

	"kube-bind.io/bindery/sdk/go/examples/tenant-controller/api/v1alpha1"
)

const (
	// fieldOwner is the field manager of what the controller applies on a tenant's cluster.
	fieldOwner = client.FieldOwner("tenant-controller")
	// clusterTimeout is the time limit of a request to a tenant's cluster.
	clusterTimeout = 10 * time.Second
)

// bindingKind is the kind of bindings, whose types the controller does not need.
var bindingKind = schema.GroupVersionKind{Group: "kube-bind.io", Version: "v1alpha2", Kind: "APIServiceBinding"}

// errNoKubeconfig is for a Tenant without a Secret, as after its cluster was deleted.
var errNoKubeconfig = errors.New("there is no kubeconfig of the tenant's cluster")

// Connect makes a client of a tenant's cluster from a kubeconfig.
func Connect(kubeconfig []byte) (client.Client, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Timeout = clusterTimeout
	return client.New(config, client.Options{})
}

// connect makes a client of the cluster of a Tenant.
func (r *Reconciler) connect(ctx context.Context, tenant *v1alpha1.Tenant) (client.Client, error) {
	name, key := secretOf(tenant)
	secret := new(corev1.Secret)
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: tenant.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: Secret %s/%s does not exist", errNoKubeconfig, tenant.Namespace, name)
	}
	if err != nil {
		return nil, err
	}
	if len(secret.Data[key]) == 0 {
		return nil, fmt.Errorf("%w: Secret %s/%s has no key %q", errNoKubeconfig, tenant.Namespace, name, key)
	}
	return r.Connect(secret.Data[key])
}

// secretOf returns the Secret with the kubeconfig of a Tenant's cluster, and its key.
func secretOf(tenant *v1alpha1.Tenant) (name, key string) {
	reference := tenant.Spec.KubeconfigSecretRef
	return cmp.Or(reference.Name, tenant.Name+"-kubeconfig"), cmp.Or(reference.Key, "value")
}

// identify returns the identity of a cluster: the UID of its namespace kube-system.
func identify(ctx context.Context, cluster client.Client) (string, error) {
	namespace := new(corev1.Namespace)
	if err := cluster.Get(ctx, types.NamespacedName{Name: "kube-system"}, namespace); err != nil {
		return "", err
	}
	return string(namespace.UID), nil
}

// getBinding returns a binding of a tenant's cluster; nil if there is none.
func getBinding(ctx context.Context, cluster client.Client, name string) (*unstructured.Unstructured, error) {
	binding := new(unstructured.Unstructured)
	binding.SetGroupVersionKind(bindingKind)
	err := cluster.Get(ctx, types.NamespacedName{Name: name}, binding)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return binding, err
}

// apply applies the objects of a bind in their order. The binding comes last, because the konnector acts on it.
func apply(ctx context.Context, cluster client.Client, manifests []bindery.Manifest) error {
	for _, manifest := range manifests {
		object := &unstructured.Unstructured{Object: manifest.Object()}
		configuration := client.ApplyConfigurationFromUnstructured(object)
		if err := cluster.Apply(ctx, configuration, fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("cannot apply %s: %w", manifest, err)
		}
	}
	return nil
}

// conditionOf returns the status and the message of a condition of a binding; Unknown if the binding has no such condition.
func conditionOf(binding *unstructured.Unstructured, conditionType string) (status, message string) {
	conditions, _, _ := unstructured.NestedSlice(binding.Object, "status", "conditions")
	for _, item := range conditions {
		condition, ok := item.(map[string]any)
		if ok && condition["type"] == conditionType {
			status, _ = condition["status"].(string)
			message, _ = condition["message"].(string)
			return status, message
		}
	}
	return "Unknown", "the konnector has not looked at it yet"
}

// needsCredential tells whether a binding has to be bound anew: there is none, or the konnector reports that its credential does not
// work. Each bind mints a kubeconfig, which the konnector then renews by itself.
func needsCredential(binding *unstructured.Unstructured) bool {
	if binding == nil {
		return true
	}
	for _, conditionType := range []string{"SecretValid", "Connected", "Heartbeating"} {
		if status, _ := conditionOf(binding, conditionType); status == "False" {
			return true
		}
	}
	return false
}
