package bindery

import (
	"context"
	"iter"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// GetProvider returns the provider and how to log in. The call needs no token.
func (c *Client) GetProvider(ctx context.Context) (*pb.Provider, error) {
	answer, err := c.provider().GetProvider(ctx, &pb.GetProviderRequest{})
	return required(c, answer.GetProvider(), err, "provider")
}

// GetCaller returns who the caller is to the provider: its user, its groups, and how long its token is valid.
func (c *Client) GetCaller(ctx context.Context) (*pb.Caller, error) {
	answer, err := c.provider().GetCaller(ctx, &pb.GetCallerRequest{})
	return required(c, answer.GetCaller(), err, "caller")
}

// ListTemplates returns all templates that the caller may bind, from the page token of the request on.
func (c *Client) ListTemplates(ctx context.Context, request *pb.ListTemplatesRequest) iter.Seq2[*pb.Template, error] {
	return pages(c.address, request,
		func(r *pb.ListTemplatesRequest, token string) { r.PageToken = token },
		func(r *pb.ListTemplatesRequest) (*pb.ListTemplatesResponse, error) {
			return c.catalog().ListTemplates(ctx, r)
		},
		(*pb.ListTemplatesResponse).GetTemplates)
}

// GetTemplate returns one template with the APIs that it installs on a consumer.
func (c *Client) GetTemplate(ctx context.Context, name string) (*pb.GetTemplateResponse, error) {
	answer, err := c.catalog().GetTemplate(ctx, &pb.GetTemplateRequest{Name: name})
	if _, err := required(c, answer.GetTemplate(), err, "template"); err != nil {
		return nil, err
	}
	return answer, nil
}

// ListCollections returns all collections that hold a template which the caller may bind, from the page token of the request on.
func (c *Client) ListCollections(ctx context.Context, request *pb.ListCollectionsRequest) iter.Seq2[*pb.Collection, error] {
	return pages(c.address, request,
		func(r *pb.ListCollectionsRequest, token string) { r.PageToken = token },
		func(r *pb.ListCollectionsRequest) (*pb.ListCollectionsResponse, error) {
			return c.catalog().ListCollections(ctx, r)
		},
		(*pb.ListCollectionsResponse).GetCollections)
}

// GetCollection returns one collection.
func (c *Client) GetCollection(ctx context.Context, name string) (*pb.Collection, error) {
	answer, err := c.catalog().GetCollection(ctx, &pb.GetCollectionRequest{Name: name})
	return required(c, answer.GetCollection(), err, "collection")
}

// required returns the main field of an answer, without which the server broke the protocol.
func required[T any](c *Client, field *T, err error, name string) (*T, error) {
	if err != nil {
		return nil, err
	}
	if field == nil {
		return nil, missing(c.address, name)
	}
	return field, nil
}

func missing(address Address, name string) *Error {
	return protocolError(address, "an answer has no "+name)
}
