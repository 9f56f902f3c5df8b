package tenant

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	bindery "kube-bind.io/bindery/sdk/go"
	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"

	"kube-bind.io/bindery/sdk/go/examples/tenant-controller/api/v1alpha1"
)

// patience is how long the test waits for the controller.
const patience = time.Minute

// backend is a provider that fulfills each request.
type backend struct {
	pb.UnimplementedBindingServiceServer
}

func (backend) CreateBindableResourcesRequest(
	_ context.Context, request *pb.CreateBindableResourcesRequestRequest,
) (*pb.CreateBindableResourcesRequestResponse, error) {
	spec := request.GetBindableResourcesRequest().GetSpec()
	bound, err := offer(bindery.BindRequest{
		Template: spec.GetTemplateRef().GetName(), ClusterIdentity: spec.GetClusterIdentity().GetIdentity(),
	})
	return &pb.CreateBindableResourcesRequestResponse{
		BindableResourcesRequest: request.GetBindableResourcesRequest(), Response: bound.Response,
	}, err
}

// dialBackend serves a backend, and returns a client of it.
func dialBackend(t *testing.T) *bindery.Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := grpc.NewServer()
	pb.RegisterBindingServiceServer(served, backend{})
	go served.Serve(listener)
	t.Cleanup(served.Stop)
	dialled, err := bindery.NewClient("http://"+listener.Addr().String(), bindery.WithPlaintext())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close() })
	return dialled
}

// The controller and the SDK on a real API server, which is the platform's and the tenant's at a time. It needs etcd and
// kube-apiserver in the folder KUBEBUILDER_ASSETS.
func TestATenantsLifeOnARealAPIServer(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set")
	}
	log.SetLogger(testr.New(t))
	environment := &envtest.Environment{
		Scheme: newScheme(t),
		CRDDirectoryPaths: []string{
			filepath.Join("..", "config", "crd.yaml"),
			filepath.Join("..", "..", "..", "..", "..", "deploy", "crds", "kube-bind.io_apiservicebindings.yaml"),
		},
		ErrorIfCRDPathMissing: true,
	}
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	cluster, err := client.New(config, client.Options{Scheme: newScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := manager.New(config, manager.Options{
		Scheme:  newScheme(t),
		Metrics: server.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	changes := make(chan event.GenericEvent)
	reconciler := &Reconciler{
		Client: mgr.GetClient(), Backend: dialBackend(t), Connect: Connect, Events: mgr.GetEventRecorder("tenant-controller"),
	}
	if err := reconciler.Setup(mgr, changes); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	namespaces := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenants"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-bind"}},
	}
	acme := &v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: "acme"},
		Spec:       v1alpha1.TenantSpec{Templates: []v1alpha1.Template{cowboys()}, UnbindPolicy: v1alpha1.UnbindDelete},
	}
	for _, object := range append(namespaces, acme) {
		if err := cluster.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "the missing kubeconfig is reported", func() (bool, error) {
		return hasCondition(ctx, cluster, acme, v1alpha1.ConditionReachable, "NoKubeconfig")
	})
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: "acme-kubeconfig"},
		Data:       map[string][]byte{"value": environment.KubeConfig},
	}
	if err := cluster.Create(ctx, secret); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the template is bound", func() (bool, error) {
		return hasCondition(ctx, cluster, acme, v1alpha1.ConditionBound, "Bound")
	})
	binding := expectApplied(ctx, t, cluster)
	ready := map[string]any{
		"type": "Ready", "status": "True", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339), "reason": "", "message": "",
	}
	if err := unstructured.SetNestedSlice(binding.Object, []any{ready}, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Status().Update(ctx, binding); err != nil {
		t.Fatal(err)
	}
	changes <- event.GenericEvent{Object: acme}
	waitFor(t, "the Tenant is ready", func() (bool, error) {
		return hasCondition(ctx, cluster, acme, v1alpha1.ConditionReady, "Ready")
	})
	if err := cluster.Delete(ctx, acme); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the Tenant is gone", func() (bool, error) {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(acme), acme)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if left, err := getBinding(ctx, cluster, "cowboys"); err != nil || left != nil {
		t.Error("the binding is left:", left, err)
	}
}

// expectApplied expects the objects of the bind.
func expectApplied(ctx context.Context, t *testing.T, cluster client.Client) *unstructured.Unstructured {
	t.Helper()
	binding, err := getBinding(ctx, cluster, "cowboys")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "kube-bind-konnector-cowboys"}}
	grant := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "kube-bind-konnector-cowboys"}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-bind", Name: "kubeconfig-cowboys"}}
	for _, object := range []client.Object{role, grant, secret} {
		err = errors.Join(err, cluster.Get(ctx, client.ObjectKeyFromObject(object), object))
	}
	if err != nil || binding == nil {
		t.Fatal(binding, err)
	}
	return binding
}

func hasCondition(ctx context.Context, cluster client.Client, tenant *v1alpha1.Tenant, conditionType, reason string) (bool, error) {
	if err := cluster.Get(ctx, client.ObjectKeyFromObject(tenant), tenant); err != nil {
		return false, err
	}
	condition := meta.FindStatusCondition(tenant.Status.Conditions, conditionType)
	return condition != nil && condition.Reason == reason, nil
}

// waitFor waits until something holds, and looks ten times a second.
func waitFor(t *testing.T, what string, holds func() (bool, error)) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		done, err := holds()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if done {
			return
		}
	}
	t.Fatalf("not within %s: %s", patience, what)
}
