package bindery

import (
	"context"
	"iter"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// ListExports returns all exports of one contract, or of all of the caller's, from the page token of the request on.
func (c *Client) ListExports(ctx context.Context, request *pb.ListExportsRequest) iter.Seq2[*pb.Export, error] {
	return pages(c.address, request,
		func(r *pb.ListExportsRequest, token string) { r.PageToken = token },
		func(r *pb.ListExportsRequest) (*pb.ListExportsResponse, error) { return c.export().ListExports(ctx, r) },
		(*pb.ListExportsResponse).GetExports)
}

// GetExport returns one export. The contract may be empty if the caller has only one.
func (c *Client) GetExport(ctx context.Context, contract, name string) (*pb.Export, error) {
	answer, err := c.export().GetExport(ctx, &pb.GetExportRequest{Contract: contract, Name: name})
	return required(c, answer.GetExport(), err, "export")
}

// GetBoundSchema returns one schema; nil if knownHash is current. The contract may be empty if the caller has only one, and the hash
// if there is none.
func (c *Client) GetBoundSchema(ctx context.Context, contract, name, knownHash string) (*pb.BoundSchema, error) {
	answer, err := c.export().GetBoundSchema(ctx, &pb.GetBoundSchemaRequest{Contract: contract, Name: name, KnownHash: knownHash})
	if err == nil && answer.GetBoundSchema() == nil && answer.GetUnchanged() && knownHash != "" {
		return nil, nil
	}
	return required(c, answer.GetBoundSchema(), err, "bound schema")
}

// DeleteExport unbinds an export. The call may take as long as the request says to wait. The answer has the export if it is still
// there.
func (c *Client) DeleteExport(ctx context.Context, request *pb.DeleteExportRequest) (*pb.DeleteExportResponse, error) {
	return c.export().DeleteExport(ctx, request)
}
