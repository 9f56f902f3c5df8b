package bindery

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// steady answers each call with an export, and keeps each stream open after a snapshot.
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

// benchmarked serves a steady server, and returns a client of it and a stub without the client.
func benchmarked(b *testing.B) (*Client, pb.ExportServiceClient) {
	b.Helper()
	s := serveWith(b, func(backend *grpc.Server) { pb.RegisterExportServiceServer(backend, steady{}) })
	raw, err := grpc.NewClient(strings.TrimPrefix(s.address, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { raw.Close() })
	return s.client(b, WithTokenSource(StaticToken("hunter2"))), pb.NewExportServiceClient(raw)
}

// authorized is a context for raw calls that send what the client sends.
func authorized(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer hunter2", requestIDHeader, newRequestID())
}

func BenchmarkCalls(b *testing.B) {
	client, raw := benchmarked(b)
	b.Run("raw", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(loop *testing.PB) {
			for loop.Next() {
				ctx, cancel := context.WithTimeout(b.Context(), defaultAttemptTimeout)
				if _, err := raw.GetExport(authorized(ctx), &pb.GetExportRequest{Name: "cowboys"}); err != nil {
					b.Error(err)
				}
				cancel()
			}
		})
	})
	b.Run("client", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(loop *testing.PB) {
			for loop.Next() {
				if _, err := client.GetExport(b.Context(), "", "cowboys"); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// BenchmarkWatches reports the memory of a watch that is silent, with both ends in this process.
func BenchmarkWatches(b *testing.B) {
	client, raw := benchmarked(b)
	b.Run("raw", func(b *testing.B) {
		measureWatches(b, func(ctx context.Context, ready chan<- struct{}) {
			stream, err := raw.WatchExports(authorized(ctx), &pb.WatchExportsRequest{})
			for range 3 {
				if err == nil {
					_, err = stream.Recv()
				}
			}
			if err != nil {
				b.Error(err)
			}
			ready <- struct{}{}
			stream.Recv()
		})
	})
	b.Run("client", func(b *testing.B) {
		measureWatches(b, func(ctx context.Context, ready chan<- struct{}) {
			for event := range client.WatchExports(nil).Events(ctx) {
				if event.Type == WatchSnapshotComplete {
					ready <- struct{}{}
				}
			}
		})
	})
}

func measureWatches(b *testing.B, watch func(context.Context, chan<- struct{})) {
	const watches = 1000
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		ready, ended := make(chan struct{}), make(chan struct{})
		before := memory()
		for range watches {
			go func() {
				watch(ctx, ready)
				ended <- struct{}{}
			}()
		}
		for range watches {
			<-ready
		}
		b.ReportMetric(float64(memory()-before)/watches, "B/watch")
		cancel()
		for range watches {
			<-ended
		}
	}
}

// memory is the memory of heap and stacks.
func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc + stats.StackInuse
}
