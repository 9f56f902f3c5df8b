package bindery

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// steady keeps each stream open after a snapshot.
type steady struct {
	pb.UnimplementedExportServiceServer
}

func (steady) GetExport(_ context.Context, request *pb.GetExportRequest) (*pb.GetExportResponse, error) {
	return &pb.GetExportResponse{Export: &pb.Export{Metadata: &pb.ObjectMeta{Name: request.GetName()}}}, nil
}

func (steady) WatchExports(_ *pb.WatchExportsRequest, stream grpc.ServerStreamingServer[pb.WatchExportsResponse]) error {
	for _, step := range []step{begin(), applied("a", ""), complete(1, "t1")} {
		if err := stream.Send(step.answer); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return nil
}

// counted counts the connections that are open.
type counted struct {
	net.Listener
	open *atomic.Int32
}

func (c counted) Accept() (net.Conn, error) {
	connection, err := c.Listener.Accept()
	if err == nil {
		c.open.Add(1)
		connection = &countedConn{Conn: connection, open: c.open}
	}
	return connection, err
}

type countedConn struct {
	net.Conn
	open *atomic.Int32
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// The server accepts 256 streams on a connection, as a backend does.
func TestWatchesNeverMakeCallsWait(t *testing.T) {
	const watches = 2*streamsPerChannel + 50
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open atomic.Int32
	served := grpc.NewServer(grpc.MaxConcurrentStreams(256))
	pb.RegisterExportServiceServer(served, steady{})
	go served.Serve(counted{listener, &open})
	defer served.Stop()
	client, err := NewClient("http://"+listener.Addr().String(), WithPlaintext())
	if err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan struct{}, watches), make(chan error, watches)
	for range watches {
		go func() {
			for event, err := range client.WatchExports(nil).Events(context.Background()) {
				if err != nil {
					ended <- err
					return
				}
				if event.Type == WatchSnapshotComplete {
					ready <- struct{}{}
				}
			}
		}()
	}
	for range watches {
		select {
		case <-ready:
		case <-time.After(time.Minute):
			t.Fatal("a watch waits for a stream")
		}
	}
	start := time.Now()
	for range 10 {
		if _, err := client.GetExport(t.Context(), "", "cowboys"); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Error(took)
	}
	if got := open.Load(); got != 4 {
		t.Errorf("%d connections, and not one for calls and three for watches", got)
	}
	client.Close()
	for range watches {
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
	}
	for waited := time.Now(); open.Load() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(waited) > time.Minute {
			t.Fatalf("%d connections stay open", open.Load())
		}
	}
}

// A channel that is replaced keeps its streams, and is closed with the client.
func TestCloseEndsTheStreamsOfFormerConnections(t *testing.T) {
	s := serveWith(t, func(backend *grpc.Server) { pb.RegisterExportServiceServer(backend, steady{}) })
	client := s.client(t)
	transport := client.transport.(*fallbackTransport).grpc
	for event, err := range client.WatchExports(nil).Events(t.Context()) {
		if err != nil {
			if !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
			break
		}
		if event.Type == WatchSnapshotComplete {
			transport.mu.Lock()
			former := transport.forStreams[0]
			transport.mu.Unlock()
			transport.giveUp(former)
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
