package bindery

import (
	"context"
	"iter"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// GetProvider returns the provider and how to log in. The call needs no token.
func (c *Client) GetProvider(ctx context.Context) (*pb.Provider, error) {
	response, err := c.provider().GetProvider(ctx, &pb.GetProviderRequest{})
	return required(c, response.GetProvider(), err, "provider")
}

// GetCaller returns who the caller is to the provider: its user, its groups, and how long its token is valid.
func (c *Client) GetCaller(ctx context.Context) (*pb.Caller, error) {
	response, err := c.provider().GetCaller(ctx, &pb.GetCallerRequest{})
	return required(c, response.GetCaller(), err, "caller")
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

// TemplateDetails is a template with the APIs that it installs on a consumer.
type TemplateDetails struct {
	// Template is the template.
	Template *pb.Template
	// Schemas are the APIs that appear on a consumer that binds the template.
	Schemas []*pb.TemplateSchema
}

// GetTemplate returns one template with the APIs that it installs on a consumer.
func (c *Client) GetTemplate(ctx context.Context, name string) (*TemplateDetails, error) {
	response, err := c.catalog().GetTemplate(ctx, &pb.GetTemplateRequest{Name: name})
	template, err := required(c, response.GetTemplate(), err, "template")
	if err != nil {
		return nil, err
	}
	return &TemplateDetails{Template: template, Schemas: response.GetSchemas()}, nil
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
	response, err := c.catalog().GetCollection(ctx, &pb.GetCollectionRequest{Name: name})
	return required(c, response.GetCollection(), err, "collection")
}

// required returns the main field of a response, without which the server broke the protocol.
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
	return protocolError(address, "a response has no "+name)
}
