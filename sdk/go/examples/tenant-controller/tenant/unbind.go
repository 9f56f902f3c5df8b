package tenant

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	bindery "kube-bind.io/bindery/sdk/go"
	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"

	"kube-bind.io/bindery/sdk/go/examples/tenant-controller/api/v1alpha1"
)

// end ends the bindings of a Tenant that is being deleted, and then lets it go.
func (r *Reconciler) end(ctx context.Context, tenant *v1alpha1.Tenant) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(tenant, finalizer) {
		return reconcile.Result{}, nil
	}
	before := tenant.DeepCopy()
	left, err := r.unbind(ctx, tenant)
	if err == nil && left == "" {
		r.record(tenant, corev1.EventTypeNormal, "Unbound", "all bindings have ended")
		return reconcile.Result{}, r.setFinalizer(ctx, tenant, false)
	}
	if err != nil {
		set(tenant, v1alpha1.ConditionReady, metav1.ConditionFalse, reasonOf(err), err.Error())
		result, err := r.after(err)
		return result, errors.Join(err, r.writeStatus(ctx, before, tenant))
	}
	set(tenant, v1alpha1.ConditionReady, metav1.ConditionFalse, "Unbinding", left)
	return reconcile.Result{RequeueAfter: pendingInterval}, r.writeStatus(ctx, before, tenant)
}

// unbind ends the bindings, and says what is left; empty if nothing is.
func (r *Reconciler) unbind(ctx context.Context, tenant *v1alpha1.Tenant) (string, error) {
	cluster, err := r.connect(ctx, tenant)
	if errors.Is(err, errNoKubeconfig) {
		return r.unbindAtProvider(ctx, tenant)
	}
	if err != nil {
		return "", err
	}
	for _, template := range tenant.Spec.Templates {
		binding, err := getBinding(ctx, cluster, template.Name)
		if err != nil {
			return "", err
		}
		if binding == nil {
			if err := deleteSecret(ctx, cluster, r.namespace(), template.Name); err != nil {
				return "", err
			}
			continue
		}
		if binding.GetDeletionTimestamp().IsZero() {
			// The konnector deletes the objects on both sides and the export, and then its own rights.
			precondition := client.Preconditions{UID: new(binding.GetUID())}
			if err := cluster.Delete(ctx, binding, precondition); client.IgnoreNotFound(err) != nil {
				return "", err
			}
		}
		return fmt.Sprintf("APIServiceBinding %s is ending", template.Name), nil
	}
	return "", nil
}

// unbindAtProvider unbinds the exports of a cluster that is gone. Objects that are left at the provider stay, and keep the Tenant.
func (r *Reconciler) unbindAtProvider(ctx context.Context, tenant *v1alpha1.Tenant) (string, error) {
	if tenant.Status.Contract == "" {
		return "", nil
	}
	request := &pb.UnbindContractRequest{Contract: tenant.Status.Contract}
	for _, template := range tenant.Spec.Templates {
		request.Exports = append(request.Exports, template.Name)
	}
	exports, err := r.Backend.UnbindContract(ctx, request)
	if errors.Is(err, bindery.Code(codes.NotFound)) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if len(exports) > 0 {
		return fmt.Sprintf("%d exports of contract %s are ending", len(exports), tenant.Status.Contract), nil
	}
	return "", nil
}

// deleteSecret deletes the Secret with the kubeconfig of a binding that has ended.
func deleteSecret(ctx context.Context, cluster client.Client, namespace, binding string) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kubeconfig-" + binding}}
	if err := cluster.Delete(ctx, secret); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

func (r *Reconciler) namespace() string {
	if r.KonnectorNamespace == "" {
		return "kube-bind"
	}
	return r.KonnectorNamespace
}

// isRefused tells whether only people can mend a failure.
func isRefused(failure *bindery.Error) bool {
	if failure.Kind == bindery.KindTransport {
		return failure.Fault.NeedsMending()
	}
	if failure.Kind != bindery.KindStatus {
		return failure.Kind == bindery.KindToken
	}
	switch failure.Code {
	case codes.PermissionDenied, codes.NotFound, codes.AlreadyExists, codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented:
		return true
	default:
		return false
	}
}
