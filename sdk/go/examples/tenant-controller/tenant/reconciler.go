// Package tenant binds templates of a provider for each tenant's cluster of a platform.
package tenant

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	bindery "kube-bind.io/bindery/sdk/go"
	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"

	"kube-bind.io/bindery/sdk/go/examples/tenant-controller/api/v1alpha1"
)

const (
	// finalizer keeps a Tenant until its bindings have ended.
	finalizer = "platform.example.com/unbind"
	// annotationGeneration is the generation of the Tenant that a binding was made for.
	annotationGeneration = "platform.example.com/tenant-generation"

	// pendingWait is how long one reconciliation waits for the provider; then other tenants have their turn.
	pendingWait = 5 * time.Second
	// pendingInterval is when a request that is pending, or a binding that is ending, is looked at again.
	pendingInterval = 15 * time.Second
	// refusedInterval is when a request that only people can mend is tried again.
	refusedInterval = 5 * time.Minute
	// checkInterval is when bindings are looked at although nothing has happened.
	checkInterval = 10 * time.Minute
)

// Backend is what the controller needs of a provider; *bindery.Client implements it.
type Backend interface {
	Bind(ctx context.Context, request bindery.BindRequest) (*bindery.Bound, error)
	UnbindContract(ctx context.Context, request *pb.UnbindContractRequest) ([]*pb.UnboundExport, error)
}

// Reconciler binds the templates of Tenants.
type Reconciler struct {
	// Client of the platform's cluster.
	Client client.Client
	// Backend of the provider.
	Backend Backend
	// Connect makes a client of a tenant's cluster; see [Connect].
	Connect func(kubeconfig []byte) (client.Client, error)
	// Events records what happened to a Tenant.
	Events events.EventRecorder
	// KonnectorNamespace of the tenants' clusters; kube-bind if it is empty.
	KonnectorNamespace string
}

// Reconcile binds what a Tenant lacks, or ends its bindings.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	tenant := new(v1alpha1.Tenant)
	if err := r.Client.Get(ctx, request.NamespacedName, tenant); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !tenant.DeletionTimestamp.IsZero() {
		return r.end(ctx, tenant)
	}
	// The change of a finalizer is no change of the spec, so that nothing would call again.
	if unbinds := tenant.Spec.UnbindPolicy == v1alpha1.UnbindDelete; unbinds != controllerutil.ContainsFinalizer(tenant, finalizer) {
		if err := r.setFinalizer(ctx, tenant, unbinds); err != nil {
			return reconcile.Result{}, err
		}
	}
	before := tenant.DeepCopy()
	result, err := r.bindAll(ctx, tenant)
	tenant.Status.ObservedGeneration = tenant.Generation
	return result, errors.Join(err, r.writeStatus(ctx, before, tenant))
}

func (r *Reconciler) setFinalizer(ctx context.Context, tenant *v1alpha1.Tenant, want bool) error {
	patch := client.MergeFromWithOptions(tenant.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if want {
		controllerutil.AddFinalizer(tenant, finalizer)
	} else {
		controllerutil.RemoveFinalizer(tenant, finalizer)
	}
	return client.IgnoreNotFound(r.Client.Patch(ctx, tenant, patch))
}

func (r *Reconciler) writeStatus(ctx context.Context, before, tenant *v1alpha1.Tenant) error {
	if equality.Semantic.DeepEqual(before.Status, tenant.Status) {
		return nil
	}
	return client.IgnoreNotFound(r.Client.Status().Patch(ctx, tenant, client.MergeFrom(before)))
}

// bindAll binds all templates of a Tenant. The failure of one does not delay the others.
func (r *Reconciler) bindAll(ctx context.Context, tenant *v1alpha1.Tenant) (reconcile.Result, error) {
	cluster, err := r.connect(ctx, tenant)
	var identity string
	if err == nil {
		identity, err = identify(ctx, cluster)
	}
	if err != nil {
		set(tenant, v1alpha1.ConditionReachable, metav1.ConditionFalse, reasonOf(err), err.Error())
		set(tenant, v1alpha1.ConditionReady, metav1.ConditionUnknown, "Unreachable", "the tenant's cluster does not answer")
		return r.after(err)
	}
	if known := tenant.Status.ClusterIdentity; known != "" && known != identity {
		// Another cluster under the same name has none of the former one's bindings.
		r.record(tenant, corev1.EventTypeWarning, "ClusterChanged", "the kubeconfig leads to another cluster than before")
	}
	tenant.Status.ClusterIdentity = identity
	set(tenant, v1alpha1.ConditionReachable, metav1.ConditionTrue, "Reachable", "the tenant's cluster answers")

	var failures []error
	var unready []string
	for _, template := range tenant.Spec.Templates {
		ready, err := r.bindOne(ctx, tenant, cluster, template)
		if err != nil {
			failures = append(failures, fmt.Errorf("template %s: %w", template.Name, err))
		} else if ready != "" {
			unready = append(unready, ready)
		}
	}
	failed := errors.Join(failures...)
	switch {
	case failed != nil:
		if set(tenant, v1alpha1.ConditionBound, metav1.ConditionFalse, reasonOf(failures[0]), failed.Error()) {
			r.record(tenant, corev1.EventTypeWarning, reasonOf(failures[0]), failed.Error())
		}
		set(tenant, v1alpha1.ConditionReady, metav1.ConditionFalse, "NotBound", "not all templates are bound")
		return r.after(failed)
	case len(unready) > 0:
		set(tenant, v1alpha1.ConditionReady, metav1.ConditionFalse, "NotReady", strings.Join(unready, "; "))
	default:
		set(tenant, v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready", "the konnector serves all bindings")
	}
	set(tenant, v1alpha1.ConditionBound, metav1.ConditionTrue, "Bound", "all templates are bound")
	if len(unready) > 0 {
		return reconcile.Result{RequeueAfter: pendingInterval}, nil
	}
	return reconcile.Result{RequeueAfter: checkInterval}, nil
}

// bindOne binds a template unless that is done, and says what its binding lacks to be ready; empty if it lacks nothing.
func (r *Reconciler) bindOne(
	ctx context.Context, tenant *v1alpha1.Tenant, cluster client.Client, template v1alpha1.Template,
) (string, error) {
	binding, err := getBinding(ctx, cluster, template.Name)
	if err != nil {
		return "", err
	}
	generation := fmt.Sprint(tenant.Generation)
	if binding != nil && !binding.GetDeletionTimestamp().IsZero() {
		return "", fmt.Errorf("APIServiceBinding %s is being deleted; it is bound again when it is gone", template.Name)
	}
	if !needsCredential(binding) && binding.GetAnnotations()[annotationGeneration] == generation {
		return notReady(binding), nil
	}
	bound, err := r.Backend.Bind(ctx, bindery.BindRequest{
		Template:        template.Name,
		ClusterIdentity: tenant.Status.ClusterIdentity,
		PrettyName:      tenant.Namespace + "/" + tenant.Name,
		Wait:            pendingWait,
		Patience:        pendingWait,
	})
	if err != nil {
		return "", err
	}
	manifests, err := bindery.Manifests(bound.Response, bindery.ManifestOptions{
		Name:               template.Name,
		Template:           template.Name,
		KonnectorNamespace: r.KonnectorNamespace,
		Accept:             resources(template.AcceptClaims, bound.Response),
	})
	if err != nil {
		return "", err
	}
	if err := apply(ctx, cluster, manifests); err != nil {
		return "", err
	}
	if err := mark(ctx, cluster, template.Name, generation); err != nil {
		return "", err
	}
	tenant.Status.Contract = bound.Response.GetProviderNamespace()
	r.record(tenant, corev1.EventTypeNormal, "Bound", fmt.Sprintf("bound template %s in contract %s", template.Name, tenant.Status.Contract))
	binding, err = getBinding(ctx, cluster, template.Name)
	if err != nil || binding == nil {
		return "", err
	}
	return notReady(binding), nil
}

// mark notes on a binding what it was made for, after all of its objects were applied.
func mark(ctx context.Context, cluster client.Client, name, generation string) error {
	binding, err := getBinding(ctx, cluster, name)
	if err != nil || binding == nil {
		return err
	}
	patch := client.MergeFrom(binding.DeepCopy())
	annotations := binding.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationGeneration] = generation
	binding.SetAnnotations(annotations)
	return cluster.Patch(ctx, binding, patch)
}

// resources are the claims that a Tenant accepts, of those that the provider makes. Nil would accept all.
func resources(names []string, response *pb.BindingResourceResponse) []bindery.GroupResource {
	accepted := []bindery.GroupResource{}
	for _, request := range response.GetRequests() {
		for _, claim := range request.GetPermissionClaims() {
			resource := bindery.GroupResource{Group: claim.GetGroup(), Resource: claim.GetResource()}
			for _, name := range names {
				if name == resource.String() {
					accepted = append(accepted, resource)
				}
			}
		}
	}
	return accepted
}

func notReady(binding *unstructured.Unstructured) string {
	status, message := conditionOf(binding, "Ready")
	if status == "True" {
		return ""
	}
	return fmt.Sprintf("APIServiceBinding %s: %s", binding.GetName(), message)
}

// after decides when to try again: what only people can mend waits, all else backs off.
func (r *Reconciler) after(err error) (reconcile.Result, error) {
	var refusal *bindery.Refusal
	var failure *bindery.Error
	switch {
	case errors.As(err, &refusal):
		return reconcile.Result{RequeueAfter: refusedInterval}, nil
	case !errors.As(err, &failure):
		return reconcile.Result{}, err
	case failure.Kind == bindery.KindPending:
		return reconcile.Result{RequeueAfter: pendingInterval}, nil
	case failure.Kind == bindery.KindRequestFailed, isRefused(failure):
		return reconcile.Result{RequeueAfter: refusedInterval}, nil
	default:
		return reconcile.Result{}, err
	}
}

// reasonOf is the reason of a condition, in UpperCamelCase as Kubernetes wants it.
func reasonOf(err error) string {
	var refusal *bindery.Refusal
	var failure *bindery.Error
	switch {
	case errors.As(err, &refusal):
		return "Refused" + refusal.Reason
	case errors.As(err, &failure):
		return upperCamelCase(failure.ReasonString())
	case errors.Is(err, errNoKubeconfig):
		return "NoKubeconfig"
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
		return string(apierrors.ReasonForError(err))
	default:
		return "Failed"
	}
}

// upperCamelCase turns TEMPLATE_NOT_READY into TemplateNotReady, and leaves NotReady as it is.
func upperCamelCase(reason string) string {
	if strings.ToUpper(reason) != reason {
		return reason
	}
	var camel strings.Builder
	for word := range strings.SplitSeq(reason, "_") {
		if word != "" {
			camel.WriteString(word[:1] + strings.ToLower(word[1:]))
		}
	}
	return camel.String()
}

// set sets a condition for the present generation, and tells whether that changed it.
func set(tenant *v1alpha1.Tenant, conditionType string, status metav1.ConditionStatus, reason, message string) bool {
	return meta.SetStatusCondition(&tenant.Status.Conditions, metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: message, ObservedGeneration: tenant.Generation,
	})
}

func (r *Reconciler) record(tenant *v1alpha1.Tenant, eventType, reason, message string) {
	r.Events.Eventf(tenant, nil, eventType, reason, "Reconcile", "%s", message)
}
