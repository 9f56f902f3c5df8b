package tenant

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	bindery "kube-bind.io/bindery/sdk/go"
	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"

	"kube-bind.io/bindery/sdk/go/examples/tenant-controller/api/v1alpha1"
)

// provider is a backend whose answers a test writes.
type provider struct {
	bind    func(bindery.BindRequest) (*bindery.Bound, error)
	binds   []bindery.BindRequest
	unbinds []*pb.UnbindContractRequest
}

func (p *provider) Bind(_ context.Context, request bindery.BindRequest) (*bindery.Bound, error) {
	p.binds = append(p.binds, request)
	return p.bind(request)
}

func (p *provider) UnbindContract(_ context.Context, request *pb.UnbindContractRequest) ([]*pb.UnboundExport, error) {
	p.unbinds = append(p.unbinds, request)
	return nil, nil
}

// offer is the answer for a template, which claims Secrets and ConfigMaps.
func offer(request bindery.BindRequest) (*bindery.Bound, error) {
	labels := &pb.Selector{LabelSelector: &pb.LabelSelector{MatchLabels: map[string]string{"app": "cowboy"}}}
	return &bindery.Bound{Response: &pb.BindingResourceResponse{
		ProviderNamespace: "kube-bind-x",
		BindingName:       request.Template,
		Kubeconfig:        &pb.Kubeconfig{Kubeconfig: []byte("kubeconfig of " + request.ClusterIdentity)},
		Requests: []*pb.ExportRequest{{
			Name:      request.Template,
			Resources: []*pb.Resource{{Group: "wildwest.dev", Resource: request.Template}},
			PermissionClaims: []*pb.PermissionClaim{
				{Resource: "secrets", Selector: labels}, {Resource: "configmaps", Selector: labels},
			},
		}},
	}}, nil
}

// world is a platform's cluster, a tenant's cluster and a provider.
type world struct {
	*Reconciler
	t        *testing.T
	cluster  client.Client
	provider *provider
	recorded *events.FakeRecorder
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

func newWorld(t *testing.T, policy v1alpha1.UnbindPolicy, templates ...v1alpha1.Template) *world {
	t.Helper()
	tenant := &v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: "acme", Generation: 1},
		Spec:       v1alpha1.TenantSpec{Templates: templates, UnbindPolicy: policy},
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: "acme-kubeconfig"},
		Data:       map[string][]byte{"value": []byte("acme")},
	}
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "uid-of-acme"}}
	w := &world{
		t:        t,
		cluster:  fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(system).Build(),
		provider: &provider{bind: offer},
		recorded: events.NewFakeRecorder(100),
	}
	platform := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(tenant, secret).WithStatusSubresource(tenant).
		WithIndex(tenant, IndexIdentity, ByIdentity).Build()
	w.Reconciler = &Reconciler{
		Client:  platform,
		Backend: w.provider,
		Connect: func(kubeconfig []byte) (client.Client, error) {
			if string(kubeconfig) != "acme" {
				t.Errorf("connects with %q", kubeconfig)
			}
			return w.cluster, nil
		},
		Events: w.recorded,
	}
	return w
}

// settle reconciles once, as after a change of the spec.
func (w *world) settle() (reconcile.Result, error) {
	w.t.Helper()
	key := types.NamespacedName{Namespace: "tenants", Name: "acme"}
	return w.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: key})
}

func (w *world) tenant() *v1alpha1.Tenant {
	w.t.Helper()
	tenant := new(v1alpha1.Tenant)
	if err := w.Client.Get(w.t.Context(), types.NamespacedName{Namespace: "tenants", Name: "acme"}, tenant); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		w.t.Fatal(err)
	}
	return tenant
}

func (w *world) expect(conditionType string, status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	condition := meta.FindStatusCondition(w.tenant().Status.Conditions, conditionType)
	if condition == nil || condition.Status != status || condition.Reason != reason {
		w.t.Errorf("%s is not %s for %s: %+v", conditionType, status, reason, condition)
	}
}

func (w *world) binding(name string) *unstructured.Unstructured {
	w.t.Helper()
	binding, err := getBinding(w.t.Context(), w.cluster, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return binding
}

// report makes the konnector report a condition on a binding.
func (w *world) report(name, conditionType, status string) {
	w.t.Helper()
	binding := w.binding(name)
	condition := map[string]any{"type": conditionType, "status": status, "message": "the konnector says so"}
	if err := unstructured.SetNestedSlice(binding.Object, []any{condition}, "status", "conditions"); err != nil {
		w.t.Fatal(err)
	}
	if err := w.cluster.Update(w.t.Context(), binding); err != nil {
		w.t.Fatal(err)
	}
}

func cowboys() v1alpha1.Template {
	return v1alpha1.Template{Name: "cowboys", AcceptClaims: []string{"secrets"}}
}

func TestATenantIsBoundOnceAndThenLookedAt(t *testing.T) {
	w := newWorld(t, v1alpha1.UnbindOrphan, cowboys(), v1alpha1.Template{Name: "sheriffs"})
	if result, err := w.settle(); err != nil || result.RequeueAfter != pendingInterval {
		t.Fatal(result, err)
	}
	w.expect(v1alpha1.ConditionReachable, metav1.ConditionTrue, "Reachable")
	w.expect(v1alpha1.ConditionBound, metav1.ConditionTrue, "Bound")
	w.expect(v1alpha1.ConditionReady, metav1.ConditionFalse, "NotReady")
	if status := w.tenant().Status; status.ClusterIdentity != "uid-of-acme" || status.Contract != "kube-bind-x" || status.ObservedGeneration != 1 {
		t.Errorf("%+v", status)
	}
	if bind := w.provider.binds[0]; bind.ClusterIdentity != "uid-of-acme" || bind.PrettyName != "tenants/acme" || bind.Template != "cowboys" {
		t.Errorf("%+v", bind)
	}
	w.report("cowboys", "Ready", "True")
	w.report("sheriffs", "Ready", "True")
	if result, err := w.settle(); err != nil || result.RequeueAfter != checkInterval {
		t.Fatal(result, err)
	}
	w.expect(v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")
	if len(w.provider.binds) != 2 {
		t.Errorf("each bind mints a kubeconfig: %d", len(w.provider.binds))
	}
	for range 2 {
		if event := <-w.recorded.Events; !strings.HasPrefix(event, "Normal Bound bound template ") {
			t.Error(event)
		}
	}
}

func TestWhatIsAppliedIsWhatTheTenantAccepts(t *testing.T) {
	w := newWorld(t, v1alpha1.UnbindOrphan, cowboys())
	if _, err := w.settle(); err != nil {
		t.Fatal(err)
	}
	secret := new(corev1.Secret)
	if err := w.cluster.Get(t.Context(), types.NamespacedName{Namespace: "kube-bind", Name: "kubeconfig-cowboys"}, secret); err != nil {
		t.Fatal(err)
	}
	if got := string(secret.Data["kubeconfig"]); got != "kubeconfig of uid-of-acme" {
		t.Error(got)
	}
	role := new(rbacv1.ClusterRole)
	if err := w.cluster.Get(t.Context(), types.NamespacedName{Name: "kube-bind-konnector-cowboys"}, role); err != nil {
		t.Fatal(err)
	}
	var granted []string
	for _, rule := range role.Rules {
		granted = append(granted, rule.Resources...)
	}
	if !slices.Contains(granted, "cowboys") || !slices.Contains(granted, "secrets") || slices.Contains(granted, "configmaps") {
		t.Error(granted)
	}
	rejected, _, _ := unstructured.NestedSlice(w.binding("cowboys").Object, "spec", "rejectedPermissionClaims")
	if len(rejected) != 1 || rejected[0].(map[string]any)["resource"] != "configmaps" {
		t.Error(rejected)
	}
}

func TestACredentialThatFailsIsReplaced(t *testing.T) {
	w := newWorld(t, v1alpha1.UnbindOrphan, cowboys())
	for range 2 {
		if _, err := w.settle(); err != nil {
			t.Fatal(err)
		}
	}
	w.report("cowboys", "Connected", "False")
	if _, err := w.settle(); err != nil {
		t.Fatal(err)
	}
	if len(w.provider.binds) != 2 {
		t.Error(len(w.provider.binds))
	}
}

func TestFailuresOfTheProviderAreConditions(t *testing.T) {
	status := func(code codes.Code, reason pb.ErrorReason) error {
		return &bindery.Error{Kind: bindery.KindStatus, Code: code, Reason: reason, Message: "no"}
	}
	for name, check := range map[string]struct {
		err      error
		reason   string
		requeues bool
	}{
		"denied":    {status(codes.PermissionDenied, pb.ErrorReason_ERROR_REASON_TEMPLATE_BIND_DENIED), "TemplateBindDenied", true},
		"pending":   {&bindery.Error{Kind: bindery.KindPending}, "RequestPending", true},
		"failed":    {&bindery.Error{Kind: bindery.KindRequestFailed}, "RequestFailed", true},
		"untrusted": {&bindery.Error{Kind: bindery.KindTransport, Fault: bindery.FaultCertificateUntrusted}, "CertificateUntrusted", true},
		"busy":      {status(codes.Unavailable, pb.ErrorReason_ERROR_REASON_OVERLOADED), "Overloaded", false},
		"away":      {&bindery.Error{Kind: bindery.KindTransport, Fault: bindery.FaultRefused}, "ConnectionRefused", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, v1alpha1.UnbindOrphan, cowboys(), v1alpha1.Template{Name: "sheriffs"})
			w.provider.bind = func(request bindery.BindRequest) (*bindery.Bound, error) {
				if request.Template == "cowboys" {
					return nil, check.err
				}
				return offer(request)
			}
			result, err := w.settle()
			if (err == nil) != check.requeues || (result.RequeueAfter > 0) != check.requeues {
				t.Error(result, err)
			}
			w.expect(v1alpha1.ConditionBound, metav1.ConditionFalse, check.reason)
			if bound, warned := <-w.recorded.Events, <-w.recorded.Events; !strings.HasPrefix(bound, "Normal Bound ") ||
				!strings.HasPrefix(warned, "Warning "+check.reason+" ") {
				t.Error(bound, warned)
			}
			if w.binding("sheriffs") == nil {
				t.Error("the failure of one template stopped another")
			}
		})
	}
}

func TestAProviderThatWantsTooMuchIsRefused(t *testing.T) {
	w := newWorld(t, v1alpha1.UnbindOrphan, cowboys())
	w.provider.bind = func(request bindery.BindRequest) (*bindery.Bound, error) {
		bound, err := offer(request)
		bound.Response.ConsumerRules = []*pb.ConsumerRule{{ApiGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
		return bound, err
	}
	if result, err := w.settle(); err != nil || result.RequeueAfter != refusedInterval {
		t.Error(result, err)
	}
	w.expect(v1alpha1.ConditionBound, metav1.ConditionFalse, "RefusedWildcard")
	if w.binding("cowboys") != nil {
		t.Error("something was applied")
	}
}

func TestATenantWithoutAClusterSaysSo(t *testing.T) {
	w := newWorld(t, v1alpha1.UnbindOrphan, cowboys())
	w.deleteKubeconfig()
	if _, err := w.settle(); err == nil {
		t.Error("it is not tried again")
	}
	w.expect(v1alpha1.ConditionReachable, metav1.ConditionFalse, "NoKubeconfig")
}

func (w *world) deleteKubeconfig() {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: "acme-kubeconfig"}}
	if err := w.Client.Delete(w.t.Context(), secret); err != nil {
		w.t.Fatal(err)
	}
}

// boundAndDeleted is a world whose Tenant is bound and then deleted.
func boundAndDeleted(t *testing.T, policy v1alpha1.UnbindPolicy) *world {
	t.Helper()
	w := newWorld(t, policy, cowboys())
	if _, err := w.settle(); err != nil {
		t.Fatal(err)
	}
	if err := w.Client.Delete(t.Context(), w.tenant()); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestABindingStaysByDefault(t *testing.T) {
	w := boundAndDeleted(t, v1alpha1.UnbindOrphan)
	if _, err := w.settle(); err != nil || w.tenant() != nil || w.binding("cowboys") == nil {
		t.Error(err)
	}
}

func TestABindingEndsIfTheTenantSaysSo(t *testing.T) {
	w := boundAndDeleted(t, v1alpha1.UnbindDelete)
	if w.tenant() == nil {
		t.Fatal("the Tenant did not wait for its bindings")
	}
	if result, err := w.settle(); err != nil || result.RequeueAfter != pendingInterval || w.binding("cowboys") != nil {
		t.Fatal(result, err)
	}
	if _, err := w.settle(); err != nil || w.tenant() != nil {
		t.Fatal(err)
	}
	secret := new(corev1.Secret)
	err := w.cluster.Get(t.Context(), types.NamespacedName{Namespace: "kube-bind", Name: "kubeconfig-cowboys"}, secret)
	if !apierrors.IsNotFound(err) || len(w.provider.unbinds) != 0 {
		t.Error(err, w.provider.unbinds)
	}
}

func TestTheExportsOfAClusterThatIsGoneAreUnboundAtTheProvider(t *testing.T) {
	w := boundAndDeleted(t, v1alpha1.UnbindDelete)
	w.deleteKubeconfig()
	if _, err := w.settle(); err != nil || w.tenant() != nil {
		t.Fatal(err)
	}
	if unbind := w.provider.unbinds[0]; unbind.GetContract() != "kube-bind-x" || !slices.Equal(unbind.GetExports(), []string{"cowboys"}) || unbind.GetForce() {
		t.Error(unbind)
	}
}
