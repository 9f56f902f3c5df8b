package tenant

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"kube-bind.io/bindery/sdk/go/examples/tenant-controller/api/v1alpha1"
)

// workers is the number of Tenants that are reconciled at a time; each may wait for the provider.
const workers = 8

// Setup adds the controller to a manager. It reconciles a Tenant when it or its Secret has changed, and when changes names it.
func (r *Reconciler) Setup(mgr manager.Manager, changes <-chan event.GenericEvent) error {
	secrets := &metav1.PartialObjectMetadata{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return builder.ControllerManagedBy(mgr).
		Named("tenant").
		For(&v1alpha1.Tenant{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(secrets, handler.EnqueueRequestsFromMapFunc(r.tenantsOfSecret)).
		WatchesRawSource(source.Channel(changes, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// tenantsOfSecret are the Tenants whose kubeconfig is in a Secret.
func (r *Reconciler) tenantsOfSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	var tenants v1alpha1.TenantList
	if err := r.Client.List(ctx, &tenants, client.InNamespace(secret.GetNamespace())); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for number := range tenants.Items {
		tenant := &tenants.Items[number]
		if name, _ := secretOf(tenant); name == secret.GetName() {
			key := types.NamespacedName{Namespace: tenant.Namespace, Name: tenant.Name}
			requests = append(requests, reconcile.Request{NamespacedName: key})
		}
	}
	return requests
}
