package bindery

import (
	"context"
	"iter"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// ListContracts returns all contracts that the caller may list, from the page token of the request on.
func (c *Client) ListContracts(ctx context.Context, request *pb.ListContractsRequest) iter.Seq2[*pb.Contract, error] {
	return pages(c.address, request,
		func(r *pb.ListContractsRequest, token string) { r.PageToken = token },
		func(r *pb.ListContractsRequest) (*pb.ListContractsResponse, error) {
			return c.contract().ListContracts(ctx, r)
		},
		(*pb.ListContractsResponse).GetContracts)
}

// GetContract returns one contract, by the name of its namespace.
func (c *Client) GetContract(ctx context.Context, contract string) (*pb.Contract, error) {
	answer, err := c.contract().GetContract(ctx, &pb.GetContractRequest{Contract: contract})
	return required(c, answer.GetContract(), err, "contract")
}

// ShareContract changes the owner groups of a contract, and returns the contract as it is then.
func (c *Client) ShareContract(ctx context.Context, request *pb.ShareContractRequest) (*pb.Contract, error) {
	answer, err := c.contract().ShareContract(ctx, request)
	return required(c, answer.GetContract(), err, "contract")
}

// RevokeContract revokes all credentials of a contract, and stops their renewal until an owner binds again.
func (c *Client) RevokeContract(ctx context.Context, request *pb.RevokeContractRequest) (*pb.RevokeContractResponse, error) {
	return c.contract().RevokeContract(ctx, request)
}

// UnbindContract unbinds exports of a contract, and returns those that are still there. The call may take as long as the request
// says to wait.
func (c *Client) UnbindContract(ctx context.Context, request *pb.UnbindContractRequest) ([]*pb.UnboundExport, error) {
	answer, err := c.contract().UnbindContract(ctx, request)
	return answer.GetExports(), err
}
