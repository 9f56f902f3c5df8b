package bindery_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	bindery "kube-bind.io/bindery/sdk/go"
	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// Binds a template, and writes what the consumer applies.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := bindery.NewClient("https://bind.example.com",
		bindery.WithTokenSource(bindery.TokenFile("/var/run/secrets/tokens/backend")))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	bound, err := client.Bind(ctx, bindery.BindRequest{
		Template:        "cowboys",
		ClusterIdentity: os.Getenv("CLUSTER_UID"),
		Progress:        func(request *pb.BindableResourcesRequest) { log.Print("still pending: ", request.GetStatus()) },
	})
	if err != nil {
		log.Fatal(err)
	}
	manifests, err := bindery.Manifests(bound.Response, bindery.ManifestOptions{Template: "cowboys"})
	if err != nil {
		log.Fatal(err)
	}
	if err := bindery.WriteManifests(os.Stdout, manifests); err != nil {
		log.Fatal(err)
	}
}

// Lists are iterators over all pages.
func ExampleClient_ListTemplates() {
	client, err := bindery.NewClient("https://bind.example.com",
		bindery.WithTokenSource(bindery.TokenCommand("kubectl", "bind", "token", "--exec-credential")))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for template, err := range client.ListTemplates(context.Background(), &pb.ListTemplatesRequest{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(template.GetMetadata().GetName())
	}
}

// Watches exports, and knows at any time which ones there are.
func ExampleWatch_Events() {
	client, err := bindery.NewClient("https://bind.example.com",
		bindery.WithTokenSource(bindery.TokenFile("/var/run/secrets/tokens/backend")))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	var exports, listed map[string]*pb.Export
	for event, err := range client.WatchExports(&pb.WatchExportsRequest{}).Events(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		switch event.Type {
		case bindery.WatchSnapshotBegin:
			listed = map[string]*pb.Export{}
		case bindery.WatchApplied:
			name := event.Object.GetMetadata().GetName()
			if listed != nil {
				listed[name] = event.Object
			} else {
				exports[name] = event.Object
			}
		case bindery.WatchRemoved:
			delete(exports, event.Removed.GetName())
		case bindery.WatchSnapshotComplete:
			exports, listed = listed, nil
		case bindery.WatchDisconnected:
			log.Printf("the stream ended, and is opened again in %s: %v", event.RetryIn, event.Err)
		}
	}
}

// Errors are told apart by kind, code, reason and fault.
func ExampleError() {
	err := error(&bindery.Error{
		Kind:    bindery.KindTransport,
		Fault:   bindery.FaultCertificateUntrusted,
		Address: "https://bind.example.com",
	})
	var failure *bindery.Error
	if errors.As(err, &failure) {
		fmt.Println(failure.Kind, failure.ReasonString(), failure.Fault.NeedsMending())
	}
	fmt.Println(errors.Is(err, bindery.FaultCertificateUntrusted))
	fmt.Println(errors.Is(err, bindery.Reason(pb.ErrorReason_ERROR_REASON_TEMPLATE_BIND_DENIED)))
	// Output:
	// transport CertificateUntrusted true
	// true
	// false
}

// The audience follows from the address that is dialled.
func ExampleAudience() {
	audience, err := bindery.Audience("HTTPS://Bind.Example.com:443/")
	fmt.Println(audience, err)
	// Output: https://bind.example.com <nil>
}
