// Command tenant-controller binds templates of a provider for each tenant's cluster of a platform.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	bindery "kube-bind.io/bindery/sdk/go"
	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"

	"kube-bind.io/bindery/sdk/go/examples/tenant-controller/api/v1alpha1"
	"kube-bind.io/bindery/sdk/go/examples/tenant-controller/tenant"
)

// settings are the flags.
type settings struct {
	server, tokenFile, caFile, konnectorNamespace, health string
	lead                                                  bool
}

func main() {
	var s settings
	flag.StringVar(&s.server, "server", "", "URL of the provider's backend, which is also the audience of the token")
	flag.StringVar(&s.tokenFile, "token-file", "/var/run/secrets/backend/token", "file with the token, such as a projected one")
	flag.StringVar(&s.caFile, "ca-file", "", "file with the CA of the backend's certificate; those of the system if it is empty")
	flag.StringVar(&s.konnectorNamespace, "konnector-namespace", "kube-bind", "namespace of the konnector on the tenants' clusters")
	flag.StringVar(&s.health, "health-probe-bind-address", ":8081", "where /healthz is served")
	flag.BoolVar(&s.lead, "leader-elect", true, "work on one replica at a time; false outside of a cluster")
	// The flag -kubeconfig is controller-runtime's.
	flag.Parse()
	log.SetLogger(zap.New())
	if err := s.run(signals.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "tenant-controller:", err)
		os.Exit(1)
	}
}

func (s settings) run(ctx context.Context) error {
	options := []bindery.Option{
		bindery.WithTokenSource(bindery.TokenFile(s.tokenFile)),
		bindery.WithUserAgent("tenant-controller/" + bindery.Version),
	}
	if s.caFile != "" {
		options = append(options, bindery.WithCAFile(s.caFile))
	}
	backend, err := bindery.NewClient(s.server, options...)
	if err != nil {
		return err
	}
	defer backend.Close()
	mgr, err := s.newManager()
	if err != nil {
		return err
	}
	changes := make(chan event.GenericEvent)
	reconciler := &tenant.Reconciler{
		Client:             mgr.GetClient(),
		Backend:            backend,
		Connect:            tenant.Connect,
		Events:             mgr.GetEventRecorder("tenant-controller"),
		KonnectorNamespace: s.konnectorNamespace,
	}
	if err := reconciler.Setup(mgr, changes); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.Tenant{}, tenant.IndexIdentity, tenant.ByIdentity); err != nil {
		return err
	}
	if err := mgr.Add(&tenant.ContractWatch{
		Watch:   backend.WatchContracts(&pb.WatchContractsRequest{Owned: true}),
		Client:  mgr.GetClient(),
		Changes: changes,
		Log:     log.Log.WithName("contracts"),
	}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func (s settings) newManager() (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	cluster, err := config.GetConfig()
	if err != nil {
		return nil, err
	}
	mgr, err := manager.New(cluster, manager.Options{
		Scheme:                 scheme,
		LeaderElection:         s.lead,
		LeaderElectionID:       "tenant-controller",
		HealthProbeBindAddress: s.health,
		// Secrets are read one by one, and none is kept in memory.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	if err != nil {
		return nil, err
	}
	return mgr, mgr.AddHealthzCheck("ping", healthz.Ping)
}
