package bindery

import (
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// streamsPerChannel limits the streams of one connection. Servers accept 256 streams on one, and let more wait.
	streamsPerChannel = 200
	// streamsIdleTimeout is how long a connection for streams stays open without any.
	streamsIdleTimeout = time.Minute
)

// channel is a channel of grpc-go, which has one connection, and the calls that use it.
type channel struct {
	*connector
	grpc *grpc.ClientConn

	// Guarded by the mutex of the channels.

	uses    int
	retired bool
}

// hasFailed tells whether the channel could not connect. A channel whose connection was lost connects again with its next call.
func (c *channel) hasFailed() bool { return c.grpc.GetState() == connectivity.TransientFailure }

// acquireForCall returns the channel of unary calls for one call, which has to release it.
func (t *grpcTransport) acquireForCall() (*channel, error) { return t.acquire(false) }

// acquireForStream returns a channel for one stream, which has to release it. Streams have channels of their own, so that they never
// make unary calls wait.
func (t *grpcTransport) acquireForStream() (*channel, error) { return t.acquire(true) }

func (t *grpcTransport) acquire(isStream bool) (*channel, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, cancelledError(ErrClosed)
	}
	channels, most := &t.forCalls, 0
	if isStream {
		channels, most = &t.forStreams, streamsPerChannel
	}
	for failed := slices.IndexFunc(*channels, (*channel).hasFailed); failed >= 0; {
		t.retire((*channels)[failed])
		failed = slices.IndexFunc(*channels, (*channel).hasFailed)
	}
	for _, open := range *channels {
		if most == 0 || open.uses < most {
			open.uses++
			return open, nil
		}
	}
	made, err := t.newChannel(isStream)
	if err != nil {
		return nil, err
	}
	made.uses = 1
	*channels = append(*channels, made)
	return made, nil
}

func (t *grpcTransport) release(used *channel) {
	t.mu.Lock()
	defer t.mu.Unlock()
	used.uses--
	if !t.closed && used.uses == 0 && (used.retired || used.hasFailed()) {
		t.retire(used)
	}
}

// retire takes a channel out of use, and closes it if no call uses it. The mutex is held.
func (t *grpcTransport) retire(used *channel) {
	isThis := func(other *channel) bool { return other == used }
	t.forCalls = slices.DeleteFunc(t.forCalls, isThis)
	t.forStreams = slices.DeleteFunc(t.forStreams, isThis)
	used.retired = true
	if used.uses > 0 {
		t.retired[used] = true
		return
	}
	delete(t.retired, used)
	// Closing waits for the connection, and calls must not wait for that.
	t.closing.Go(func() { used.grpc.Close() })
}

// giveUp makes the next attempt connect anew. A call can learn that its channel has failed before the channel says so.
func (t *grpcTransport) giveUp(failed *channel) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed && !failed.retired {
		t.retire(failed)
	}
}

func (t *grpcTransport) close() error {
	t.mu.Lock()
	t.closed = true
	var open []*channel
	open = append(append(open, t.forCalls...), t.forStreams...)
	for retired := range t.retired {
		open = append(open, retired)
	}
	t.forCalls, t.forStreams = nil, nil
	t.mu.Unlock()
	for _, channel := range open {
		channel.grpc.Close()
	}
	t.closing.Wait()
	return nil
}

func (t *grpcTransport) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

func (t *grpcTransport) newChannel(isStream bool) (*channel, error) {
	made := &channel{connector: &connector{tls: t.tls, timeout: t.connect}}
	options := append([]grpc.DialOption{grpc.WithContextDialer(made.dial)}, t.options...)
	if isStream {
		options = append(options, grpc.WithIdleTimeout(streamsIdleTimeout))
	}
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
