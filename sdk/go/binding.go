package bindery

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

const (
	// defaultPatience is how long [Client.Bind] waits for a pending request.
	defaultPatience = 5 * time.Minute
	// pendingPause is the least time between two calls, if the server responds PENDING at once.
	pendingPause = time.Second
)

// BindRequest is a template to bind, and the cluster that it is for.
type BindRequest struct {
	// Template is the name of the template.
	Template string
	// ClusterIdentity is the identity of the consumer cluster: the UID of its namespace kube-system.
	ClusterIdentity string
	// Name of the request, the export and the binding; that of the template if it is empty.
	Name string
	// PrettyName is the name of the consumer cluster for people.
	PrettyName string
	// Wait is how long the server may wait for its controller in one call; 0 leaves it to the server, which takes 30 s. It never waits
	// for longer than Patience.
	Wait time.Duration
	// Patience is how long to wait in all for a request that is pending. Nil means five minutes, and 0 makes one call.
	Patience *time.Duration
	// TTLAfterFinished is how long the provider keeps the record of the request after it has finished; 0 keeps it for ever.
	TTLAfterFinished time.Duration
	// ValidateOnly checks everything and returns what would be the result, but writes nothing and issues no kubeconfig.
	ValidateOnly bool
	// Progress is called with the request each time that it is still pending; may be nil.
	Progress func(*pb.BindableResourcesRequest)
}

// BindOptions is how to wait for a request.
type BindOptions struct {
	// Patience is how long to wait in all for a request that is pending. Nil means five minutes, and 0 makes one call.
	Patience *time.Duration
	// Progress is called with the request each time that it is still pending; may be nil.
	Progress func(*pb.BindableResourcesRequest)
}

// Bound is a request to bind, and what to install for it.
type Bound struct {
	// Request is the request as the server returned it.
	Request *pb.BindableResourcesRequest
	// Response is what to install on the consumer, without the kubeconfig; see [Bound.Manifests]. It is nil while a request is pending,
	// which only [Client.CreateBindableResourcesRequest] returns.
	Response *pb.BindingResourceResponse
	// Kubeconfig is the kubeconfig file of the contract, YAML; empty with ValidateOnly. It holds tokens.
	Kubeconfig Hidden

	// name and template are those that were asked for.
	name, template string
}

// NewBound makes a Bound from a message, for programs that get one by other ways than this client. It takes the kubeconfig out of the
// response, and name and template from the request.
func NewBound(request *pb.BindableResourcesRequest, response *pb.BindingResourceResponse) *Bound {
	return &Bound{
		Request:    request,
		Response:   response,
		Kubeconfig: takeKubeconfig(response.GetKubeconfig()),
		name:       request.GetMetadata().GetName(),
		template:   request.GetSpec().GetTemplateRef().GetName(),
	}
}

// Manifests judges the response, and makes the objects that the consumer applies, as the function [Manifests] does. A response for
// another binding than the one that was asked for is refused. Name and Template of the options are not needed: they are those that were
// asked for. An error is of type [*Refusal].
func (b *Bound) Manifests(options ManifestOptions) (ManifestList, error) {
	options.Name = orDefault(options.Name, b.name)
	options.Template = orDefault(options.Template, b.template)
	return makeManifests(b.Response, b.Kubeconfig, options)
}

// String names the binding. It shows no token.
func (b *Bound) String() string {
	return oneLine(fmt.Sprintf("bindery.Bound(%s in contract %s)", b.Response.GetBindingName(), b.Response.GetProviderNamespace()))
}

// GoString names the binding. It shows no token.
func (b *Bound) GoString() string { return b.String() }

// LogValue is what log/slog logs: the name of the binding.
func (b *Bound) LogValue() slog.Value { return slog.StringValue(b.String()) }

// MarshalLog is what logr logs: the name of the binding.
func (b *Bound) MarshalLog() any { return b.String() }

// Bind binds a template, and waits until the request is fulfilled. The same call again goes on where the first one ended, and
// returns a fresh kubeconfig. A request that cannot be fulfilled is an error of [KindRequestFailed], and one that is still pending
// when the patience is over of [KindPending].
func (c *Client) Bind(ctx context.Context, request BindRequest) (*Bound, error) {
	return c.BindByRequest(ctx, request.message(), BindOptions{Patience: request.Patience, Progress: request.Progress})
}

func (r BindRequest) message() *pb.CreateBindableResourcesRequestRequest {
	message := &pb.CreateBindableResourcesRequestRequest{
		BindableResourcesRequest: &pb.BindableResourcesRequest{
			Metadata: &pb.ObjectMeta{Name: orDefault(r.Name, r.Template)},
			Spec: &pb.BindableResourcesRequestSpec{
				TemplateRef:     &pb.NameRef{Name: r.Template},
				ClusterIdentity: &pb.ClusterIdentity{Identity: r.ClusterIdentity, PrettyName: r.PrettyName},
			},
		},
		ValidateOnly: r.ValidateOnly,
	}
	if r.Wait > 0 {
		message.Wait = durationpb.New(r.Wait)
	}
	if r.TTLAfterFinished > 0 {
		message.BindableResourcesRequest.Spec.TtlAfterFinished = durationpb.New(r.TTLAfterFinished)
	}
	return message
}

// BindByRequest is [Client.Bind] by a whole message, which it does not change.
func (c *Client) BindByRequest(
	ctx context.Context, request *pb.CreateBindableResourcesRequestRequest, options BindOptions,
) (*Bound, error) {
	patience := defaultPatience
	if options.Patience != nil {
		patience = *options.Patience
	}
	start := time.Now()
	for {
		began := time.Now()
		bound, err := c.CreateBindableResourcesRequest(ctx, withWait(request, patience-time.Since(start)))
		if err != nil {
			return nil, err
		}
		if bound.Response != nil {
			return bound, nil
		}
		if bound.Request.GetStatus().GetPhase() == pb.Phase_PHASE_SUCCEEDED || request.GetValidateOnly() {
			return nil, missing(c.address, "response")
		}
		if options.Progress != nil {
			options.Progress(bound.Request)
		}
		if waited := time.Since(start); waited >= patience {
			return nil, &Error{Kind: KindPending, Request: bound.Request, Waited: waited}
		}
		if !sleep(ctx, pendingPause-time.Since(began)) {
			return nil, c.failure(ctx, ctx.Err(), true, time.Since(start), "")
		}
	}
}

// withWait limits how long the server may wait to the patience that is left.
func withWait(request *pb.CreateBindableResourcesRequestRequest, left time.Duration) *pb.CreateBindableResourcesRequestRequest {
	left = max(0, left.Round(time.Millisecond))
	if waitOf(request) <= left {
		return request
	}
	limited := proto.CloneOf(request)
	limited.Wait = durationpb.New(left)
	return limited
}

// CreateBindableResourcesRequest binds a template, with one call that may take as long as the request says to wait. A request in phase
// PENDING has no Response: the same call again goes on waiting. Phase FAILED is an error of [KindRequestFailed].
func (c *Client) CreateBindableResourcesRequest(
	ctx context.Context, request *pb.CreateBindableResourcesRequestRequest,
) (*Bound, error) {
	response, err := c.binding().CreateBindableResourcesRequest(ctx, request)
	made, err := required(c, response.GetBindableResourcesRequest(), err, "request")
	if err != nil {
		return nil, err
	}
	if made.GetStatus().GetPhase() == pb.Phase_PHASE_FAILED {
		return nil, &Error{Kind: KindRequestFailed, Request: made}
	}
	bound := NewBound(request.GetBindableResourcesRequest(), response.GetResponse())
	bound.Request = made
	return bound, nil
}

// GetBindableResourcesRequest returns one of the caller's requests.
func (c *Client) GetBindableResourcesRequest(
	ctx context.Context, name, clusterIdentity string,
) (*pb.BindableResourcesRequest, error) {
	response, err := c.binding().GetBindableResourcesRequest(ctx, &pb.GetBindableResourcesRequestRequest{
		Name: name, ClusterIdentity: clusterIdentity,
	})
	return required(c, response.GetBindableResourcesRequest(), err, "request")
}

// ListBindableResourcesRequests returns all of the caller's requests, from the page token of the request on.
func (c *Client) ListBindableResourcesRequests(
	ctx context.Context, request *pb.ListBindableResourcesRequestsRequest,
) iter.Seq2[*pb.BindableResourcesRequest, error] {
	return pages(c.address, request,
		func(r *pb.ListBindableResourcesRequestsRequest, token string) { r.PageToken = token },
		func(r *pb.ListBindableResourcesRequestsRequest) (*pb.ListBindableResourcesRequestsResponse, error) {
			return c.binding().ListBindableResourcesRequests(ctx, r)
		},
		(*pb.ListBindableResourcesRequestsResponse).GetBindableResourcesRequests)
}

// DeleteBindableResourcesRequest removes the record of a request. The export stays bound.
func (c *Client) DeleteBindableResourcesRequest(ctx context.Context, request *pb.DeleteBindableResourcesRequestRequest) error {
	_, err := c.binding().DeleteBindableResourcesRequest(ctx, request)
	return err
}
