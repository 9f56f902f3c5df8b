// Package bindery is the client of a Bindery backend: it binds the APIs that a provider offers to a consumer cluster.
//
//	client, err := bindery.NewClient("https://bind.example.com",
//		bindery.WithTokenSource(bindery.TokenFile("/var/run/secrets/tokens/backend")))
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	bound, err := client.Bind(ctx, bindery.BindRequest{Template: "cowboys", ClusterIdentity: clusterUID})
//	if err != nil {
//		return err
//	}
//	manifests, err := bound.Manifests(bindery.ManifestOptions{})
//
// # Calls
//
// Each call asks the token source for a token, sends its deadline to the server, and retries failures that may be retried (see
// [RetryPolicy]) until that deadline, which is the earlier one of the context and of the client's own time limits. Lists are
// iterators over all pages. [Client.Conn] gives the generated stubs of package kubebindv1alpha2 the same behaviour.
//
// # Errors
//
// Every error of a call is an [*Error], but for a request that cannot be encoded, which is a [*ConfigError]. Its Kind says what failed; [Code], [Reason] and [Fault] are targets for errors.Is:
//
//	if errors.Is(err, bindery.Code(codes.NotFound)) { … }
//	if errors.Is(err, bindery.Reason(kubebindv1alpha2.ErrorReason_ERROR_REASON_TEMPLATE_BIND_DENIED)) { … }
//	if errors.Is(err, bindery.FaultCertificateUntrusted) { … }
//
// # Watches
//
// A [Watch] is an iterator over events that reconnects, resumes where it was, and tells a snapshot from changes. It ends with
// an error only where a retry cannot help.
//
// # Secrets
//
// A token never appears in what fmt, encoding/json, log/slog and logr make of a client, a token source, an error, or a result. A
// kubeconfig is a [Hidden], and a [Manifest] that is a Secret shows none of its data. The generated messages that hold a kubeconfig show
// its length instead; their String methods are those of protobuf and show all, so do not log with them.
//
// # Connections
//
// The client dials the address itself, and uses no proxy of the environment. Where a proxy on the way does not speak HTTP/2, it goes on
// with gRPC-Web over HTTP/1.1, and tries gRPC again after five minutes.
package bindery
