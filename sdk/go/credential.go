package bindery

import (
	"context"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// Renewed is a new kubeconfig of a contract.
type Renewed struct {
	// Contract is the contract that the kubeconfig is for, by the name of its namespace.
	Contract string
	// Kubeconfig is the kubeconfig file, YAML. It holds tokens.
	Kubeconfig Hidden
	// Credential is the credential in the kubeconfig: its id, when it expires, and when to renew it. Its field Kubeconfig is empty.
	Credential *pb.Kubeconfig
}

// RenewKubeconfig returns a new kubeconfig for a contract, which may be empty if the caller has only one. The old one stays valid
// until it expires.
func (c *Client) RenewKubeconfig(ctx context.Context, contract string) (*Renewed, error) {
	response, err := c.credential().RenewKubeconfig(ctx, &pb.RenewKubeconfigRequest{Contract: contract})
	credential, err := required(c, response.GetKubeconfig(), err, "kubeconfig")
	if err != nil {
		return nil, err
	}
	return &Renewed{Contract: response.GetContract(), Kubeconfig: takeKubeconfig(credential), Credential: credential}, nil
}

// RevokeCredentials revokes all credentials of a contract, and stops their renewal until an owner binds again.
func (c *Client) RevokeCredentials(ctx context.Context, contract, reason string) (*pb.RevokeCredentialsResponse, error) {
	return c.credential().RevokeCredentials(ctx, &pb.RevokeCredentialsRequest{Contract: contract, Reason: reason})
}
