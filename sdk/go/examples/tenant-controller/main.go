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

func main() {
	server := flag.String("server", "", "URL of the provider's backend, which is also the audience of the token")
	tokenFile := flag.String("token-file", "/var/run/secrets/backend/token", "file with the token, such as a projected one")
	caFile := flag.String("ca-file", "", "file with the CA of the backend's certificate; those of the system if it is empty")
	namespace := flag.String("konnector-namespace", "", "namespace of the konnector on the tenants' clusters; kube-bind if it is empty")
	// The flag -kubeconfig is controller-runtime's.
	flag.Parse()
	log.SetLogger(zap.New())
	if err := run(signals.SetupSignalHandler(), *server, *tokenFile, *caFile, *namespace); err != nil {
		fmt.Fprintln(os.Stderr, "tenant-controller:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, server, tokenFile, caFile, namespace string) error {
	options := []bindery.Option{
		bindery.WithTokenSource(bindery.TokenFile(tokenFile)),
		bindery.WithUserAgent("tenant-controller/" + bindery.Version),
	}
	if caFile != "" {
		options = append(options, bindery.WithCAFile(caFile))
	}
	backend, err := bindery.NewClient(server, options...)
	if err != nil {
		return err
	}
	defer backend.Close()
	mgr, err := newManager()
	if err != nil {
		return err
	}
	changes := make(chan event.GenericEvent)
	reconciler := &tenant.Reconciler{
		Client:             mgr.GetClient(),
		Backend:            backend,
		Connect:            tenant.Connect,
		Events:             mgr.GetEventRecorder("tenant-controller"),
		KonnectorNamespace: namespace,
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

func newManager() (manager.Manager, error) {
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
		LeaderElection:         true,
		LeaderElectionID:       "tenant-controller",
		HealthProbeBindAddress: ":8081",
		// Secrets are read one by one, and none is kept in memory.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	if err != nil {
		return nil, err
	}
	return mgr, mgr.AddHealthzCheck("ping", healthz.Ping)
}
