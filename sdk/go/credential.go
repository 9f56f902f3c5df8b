package bindery

import (
	"context"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// RenewKubeconfig returns a new kubeconfig for a contract, which may be empty if the caller has only one. The old one stays valid
// until it expires.
func (c *Client) RenewKubeconfig(ctx context.Context, contract string) (*pb.RenewKubeconfigResponse, error) {
	answer, err := c.credential().RenewKubeconfig(ctx, &pb.RenewKubeconfigRequest{Contract: contract})
	if _, err := required(c, answer.GetKubeconfig(), err, "kubeconfig"); err != nil {
		return nil, err
	}
	return answer, nil
}

// RevokeCredentials revokes all credentials of a contract, and stops their renewal until an owner binds again.
func (c *Client) RevokeCredentials(ctx context.Context, contract, reason string) (*pb.RevokeCredentialsResponse, error) {
	return c.credential().RevokeCredentials(ctx, &pb.RevokeCredentialsRequest{Contract: contract, Reason: reason})
}
