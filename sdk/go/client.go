package bindery

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// Client is a client of one backend. It is safe for concurrent use, and its calls share a connection.
type Client struct {
	address   Address
	settings  *settings
	transport transport
}

// transport carries single attempts of calls to one backend. It adds neither tokens nor retries, and all its errors are of type
// [*Error], or those of the context.
type transport interface {
	// unary makes one attempt of a unary call within the deadline of the context.
	unary(ctx context.Context, method string, header metadata.MD, request, response proto.Message) error
	// stream opens a stream of answers, and returns when the server has accepted it. The stream ends with its context.
	stream(ctx context.Context, method string, header metadata.MD, request proto.Message) (messageStream, error)
	// close ends all calls.
	close() error
}

// messageStream is a stream of answers.
type messageStream interface {
	// receive waits for the next answer. It returns io.EOF if the server has ended the stream in good order.
	receive(response proto.Message) error
}

// NewClient makes a client of the backend at https://host:port. It connects with its first call. Close it when it is not needed any
// more. An error is of type [*ConfigError].
func NewClient(address string, options ...Option) (*Client, error) {
	s, err := newSettings(options)
	if err != nil {
		return nil, err
	}
	parsed, err := ParseAddress(address)
	if err != nil {
		return nil, err
	}
	if err := s.checkPlaintext(parsed); err != nil {
		return nil, err
	}
	tlsConfig, err := s.tlsConfig(parsed)
	if err != nil {
		return nil, err
	}
	return newClient(parsed, s, newGRPCTransport(parsed, tlsConfig, s)), nil
}

func newClient(address Address, s *settings, t transport) *Client {
	return &Client{address: address, settings: s, transport: t}
}

// Close closes the connection. Calls and watches that go on end with an error that wraps [ErrClosed].
func (c *Client) Close() error { return c.transport.close() }

// Address returns the address of the backend.
func (c *Client) Address() Address { return c.address }

// Audience returns the audience that tokens must have. It follows from the address alone, never from an answer.
func (c *Client) Audience() string { return c.address.String() }

// String names the backend. It shows no token.
func (c *Client) String() string { return fmt.Sprintf("bindery.Client(%s)", c.address) }

// GoString names the backend. It shows no token.
func (c *Client) GoString() string { return c.String() }

// Conn returns a connection for the generated stubs of package kubebindv1alpha2, such as
// kubebindv1alpha2.NewCatalogServiceClient(client.Conn()). Unary calls have the client's tokens, deadlines, retries and errors; a
// stream has its token and errors, and is not retried. Call options and outgoing metadata of the context are not supported: a call
// with an option fails, and metadata are not sent.
func (c *Client) Conn() grpc.ClientConnInterface { return conn{c} }

// limits returns the time limits of a call, all attempts and one attempt, for which the server may wait for wait.
func (s *settings) limits(wait time.Duration) (total, attempt time.Duration) {
	total, attempt = s.timeout, s.attemptTimeout
	if total <= 0 {
		total = defaultTimeout + wait
	}
	if attempt <= 0 {
		attempt = defaultAttemptTimeout + wait
	}
	return total, min(attempt, total)
}

// The stubs of the client's own methods.

func (c *Client) provider() pb.ProviderServiceClient { return pb.NewProviderServiceClient(conn{c}) }
func (c *Client) catalog() pb.CatalogServiceClient   { return pb.NewCatalogServiceClient(conn{c}) }
func (c *Client) binding() pb.BindingServiceClient   { return pb.NewBindingServiceClient(conn{c}) }
func (c *Client) export() pb.ExportServiceClient     { return pb.NewExportServiceClient(conn{c}) }
func (c *Client) credential() pb.CredentialServiceClient {
	return pb.NewCredentialServiceClient(conn{c})
}
func (c *Client) contract() pb.ContractServiceClient { return pb.NewContractServiceClient(conn{c}) }
