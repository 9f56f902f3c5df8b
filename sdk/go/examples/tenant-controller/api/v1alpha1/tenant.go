// Package v1alpha1 holds the resource Tenant.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of Tenant.
var GroupVersion = schema.GroupVersion{Group: "platform.example.com", Version: "v1alpha1"}

// Types of conditions.
const (
	// ConditionReachable: the tenant's cluster answers with the kubeconfig of the Secret.
	ConditionReachable = "Reachable"
	// ConditionBound: all templates are bound, and the objects are applied on the tenant's cluster.
	ConditionBound = "Bound"
	// ConditionReady: the konnector of the tenant's cluster serves all bindings.
	ConditionReady = "Ready"
)

// Tenant is a cluster of a tenant, and the templates of a provider that it gets.
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TenantSpec   `json:"spec"`
	Status TenantStatus `json:"status,omitempty"`
}

// TenantSpec is what the tenant gets.
type TenantSpec struct {
	// KubeconfigSecretRef names the Secret, in the namespace of the Tenant, with a kubeconfig of the tenant's cluster. The defaults
	// fit Cluster API: Secret NAME-kubeconfig, key value.
	KubeconfigSecretRef SecretKeyRef `json:"kubeconfigSecretRef,omitempty"`
	// Templates that are bound on the tenant's cluster.
	Templates []Template `json:"templates"`
	// UnbindPolicy says what becomes of the bindings when the Tenant is deleted.
	UnbindPolicy UnbindPolicy `json:"unbindPolicy,omitempty"`
}

// SecretKeyRef names an entry of a Secret.
type SecretKeyRef struct {
	// Name of the Secret; NAME-kubeconfig if it is empty.
	Name string `json:"name,omitempty"`
	// Key in its data; value if it is empty.
	Key string `json:"key,omitempty"`
}

// Template is a template to bind.
type Template struct {
	// Name of the template, and of the binding.
	Name string `json:"name"`
	// AcceptClaims names the claimed resources that are accepted, such as secrets; all others are rejected.
	AcceptClaims []string `json:"acceptClaims,omitempty"`
}

// UnbindPolicy says what becomes of bindings when their Tenant is deleted.
type UnbindPolicy string

const (
	// UnbindOrphan leaves the bindings as they are. It is the default, because unbinding deletes objects.
	UnbindOrphan UnbindPolicy = "Orphan"
	// UnbindDelete deletes the bindings, and with them the objects of the bound APIs on both sides. If the tenant's cluster is gone,
	// the exports are unbound at the provider.
	UnbindDelete UnbindPolicy = "Delete"
)

// TenantStatus is what the controller has seen.
type TenantStatus struct {
	// ObservedGeneration is the generation that the conditions are about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ClusterIdentity is the UID of the namespace kube-system of the tenant's cluster.
	ClusterIdentity string `json:"clusterIdentity,omitempty"`
	// Contract is the contract namespace on the provider.
	Contract string `json:"contract,omitempty"`
	// Conditions of the Tenant.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TenantList is a list of Tenants.
type TenantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Tenant `json:"items"`
}

// AddToScheme adds the types to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Tenant{}, &TenantList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// DeepCopyObject copies the Tenant.
func (t *Tenant) DeepCopyObject() runtime.Object { return t.DeepCopy() }

// DeepCopy copies the Tenant.
func (t *Tenant) DeepCopy() *Tenant {
	if t == nil {
		return nil
	}
	copied := *t
	copied.ObjectMeta = *t.ObjectMeta.DeepCopy()
	copied.Spec.Templates = make([]Template, len(t.Spec.Templates))
	for number, template := range t.Spec.Templates {
		template.AcceptClaims = append([]string(nil), template.AcceptClaims...)
		copied.Spec.Templates[number] = template
	}
	copied.Status.Conditions = nil
	for _, condition := range t.Status.Conditions {
		copied.Status.Conditions = append(copied.Status.Conditions, *condition.DeepCopy())
	}
	return &copied
}

// DeepCopyObject copies the list.
func (l *TenantList) DeepCopyObject() runtime.Object {
	copied := *l
	copied.ListMeta = *l.ListMeta.DeepCopy()
	copied.Items = make([]Tenant, len(l.Items))
	for number := range l.Items {
		copied.Items[number] = *l.Items[number].DeepCopy()
	}
	return &copied
}
