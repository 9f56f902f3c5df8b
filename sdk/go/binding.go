package bindery

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

const (
	// defaultPatience is how long [Client.Bind] waits for a pending request.
	defaultPatience = 5 * time.Minute
	// pendingPause is the least time between two calls, if the server answers PENDING at once.
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
	// Wait is how long the server may wait before it answers that the request is pending; 0 leaves it to the server, which takes
	// 30 s.
	Wait time.Duration
	// Patience is how long to wait in all for a request that is pending; 0 means five minutes.
	Patience time.Duration
	// ValidateOnly checks everything and returns what would be the result, but writes nothing and issues no kubeconfig.
	ValidateOnly bool
	// Progress is called with the request each time that it is still pending; may be nil.
	Progress func(*pb.BindableResourcesRequest)
}

// Bound is a fulfilled request, and what to install for it.
type Bound struct {
	// Request is the request in phase SUCCEEDED.
	Request *pb.BindableResourcesRequest
	// Response is what to install on the consumer; see [Manifests].
	Response *pb.BindingResourceResponse
}

// Kubeconfig returns the kubeconfig of the contract; empty with ValidateOnly. It holds tokens.
func (b *Bound) Kubeconfig() []byte { return b.Response.GetKubeconfig().GetKubeconfig() }

// String names the binding. It shows no token.
func (b *Bound) String() string {
	return printable(fmt.Sprintf("bindery.Bound(%s in contract %s)", b.Response.GetBindingName(), b.Response.GetProviderNamespace()))
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
	patience := request.Patience
	if patience <= 0 {
		patience = defaultPatience
	}
	return c.bind(ctx, request.message(), patience, request.Progress)
}

func (r BindRequest) message() *pb.CreateBindableResourcesRequestRequest {
	name := r.Name
	if name == "" {
		name = r.Template
	}
	message := &pb.CreateBindableResourcesRequestRequest{
		BindableResourcesRequest: &pb.BindableResourcesRequest{
			Metadata: &pb.ObjectMeta{Name: name},
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
	return message
}

func (c *Client) bind(
	ctx context.Context, request *pb.CreateBindableResourcesRequestRequest, patience time.Duration,
	progress func(*pb.BindableResourcesRequest),
) (*Bound, error) {
	start := time.Now()
	for {
		asked := time.Now()
		answer, err := c.CreateBindableResourcesRequest(ctx, request)
		if err != nil {
			return nil, err
		}
		pending := answer.GetBindableResourcesRequest()
		if answer.GetResponse() != nil {
			return &Bound{Request: pending, Response: answer.GetResponse()}, nil
		}
		if pending.GetStatus().GetPhase() == pb.Phase_PHASE_SUCCEEDED || request.GetValidateOnly() {
			return nil, missing(c.address, "response")
		}
		if progress != nil {
			progress(pending)
		}
		if waited := time.Since(start); waited >= patience {
			return nil, &Error{Kind: KindPending, Request: pending, Waited: waited}
		}
		if !sleep(ctx, pendingPause-time.Since(asked)) {
			return nil, c.failure(ctx, ctx.Err(), true, time.Since(start), "")
		}
	}
}

// CreateBindableResourcesRequest binds a template, with one call that may take as long as the request says to wait. Phase PENDING is
// returned as it is: the same call again goes on waiting. Phase FAILED is an error of [KindRequestFailed].
func (c *Client) CreateBindableResourcesRequest(
	ctx context.Context, request *pb.CreateBindableResourcesRequestRequest,
) (*pb.CreateBindableResourcesRequestResponse, error) {
	answer, err := c.binding().CreateBindableResourcesRequest(ctx, request)
	made, err := required(c, answer.GetBindableResourcesRequest(), err, "request")
	if err != nil {
		return nil, err
	}
	if made.GetStatus().GetPhase() == pb.Phase_PHASE_FAILED {
		return nil, &Error{Kind: KindRequestFailed, Request: made}
	}
	return answer, nil
}

// GetBindableResourcesRequest returns one of the caller's requests.
func (c *Client) GetBindableResourcesRequest(
	ctx context.Context, name, clusterIdentity string,
) (*pb.BindableResourcesRequest, error) {
	answer, err := c.binding().GetBindableResourcesRequest(ctx, &pb.GetBindableResourcesRequestRequest{
		Name: name, ClusterIdentity: clusterIdentity,
	})
	return required(c, answer.GetBindableResourcesRequest(), err, "request")
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
