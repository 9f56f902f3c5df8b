package bindery

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// channel is a channel of grpc-go, and the calls that use it.
type channel struct {
	*connector
	grpc *grpc.ClientConn

	// Guarded by the mutex of the transport.
	uses    int
	retired bool
}

// acquire returns a channel for one call, which has to release it.
func (t *grpcTransport) acquire() (*channel, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, cancelledError(ErrClosed)
	}
	if t.current != nil && t.current.hasFailed() {
		if idle := t.retire(); idle != nil {
			defer idle.Close()
		}
	}
	if t.current == nil {
		made, err := t.newChannel()
		if err != nil {
			return nil, err
		}
		t.current = made
	}
	t.current.uses++
	return t.current, nil
}

func (t *grpcTransport) release(used *channel) {
	t.mu.Lock()
	defer t.mu.Unlock()
	used.uses--
	switch {
	case used.uses > 0:
	case used.retired:
		used.grpc.Close()
	case used.hasFailed():
		t.current = nil
		used.grpc.Close()
	}
}

// retire takes the current channel out of use. It returns the channel if no call uses it, so that it is to be closed. The mutex
// is held.
func (t *grpcTransport) retire() *grpc.ClientConn {
	retired := t.current
	t.current = nil
	retired.retired = true
	if retired.uses > 0 {
		return nil
	}
	return retired.grpc
}

// giveUp makes the next attempt connect anew. A call can learn that its channel has failed before the channel says so.
func (t *grpcTransport) giveUp(failed *channel) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current == failed {
		t.retire()
	}
}

func (t *grpcTransport) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.current == nil {
		return nil
	}
	closing := t.current.grpc
	t.retire()
	return closing.Close()
}

func (t *grpcTransport) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// hasFailed tells whether the channel could not connect. A channel whose connection was lost connects again with its next call.
func (c *channel) hasFailed() bool { return c.grpc.GetState() == connectivity.TransientFailure }

func (t *grpcTransport) newChannel() (*channel, error) {
	made := &channel{connector: &connector{tls: t.tls, timeout: t.connect}}
	options := append([]grpc.DialOption{grpc.WithContextDialer(made.dial)}, t.options...)
	if t.tls == nil {
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	} else {
		options = append(options, grpc.WithTransportCredentials(handshaker{made.connector}))
	}
	var err error
	if made.grpc, err = grpc.NewClient(t.target, options...); err != nil {
		return nil, &Error{Kind: KindTransport, Fault: FaultBroken, NotSent: true, Address: t.address.String(), Message: err.Error()}
	}
	return made, nil
}
