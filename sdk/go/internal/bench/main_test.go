package main

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// backend keeps each watch open after an empty snapshot.
type backend struct {
	pb.UnimplementedProviderServiceServer
	pb.UnimplementedContractServiceServer
}

func (backend) GetCaller(context.Context, *pb.GetCallerRequest) (*pb.GetCallerResponse, error) {
	return &pb.GetCallerResponse{Caller: &pb.Caller{Username: "me"}}, nil
}

func (backend) WatchContracts(_ *pb.WatchContractsRequest, stream grpc.ServerStreamingServer[pb.WatchContractsResponse]) error {
	begin := &pb.WatchContractsResponse{Event: &pb.WatchContractsResponse_SnapshotBegin{SnapshotBegin: &pb.SnapshotBegin{}}}
	complete := &pb.WatchContractsResponse{
		Event: &pb.WatchContractsResponse_SnapshotComplete{SnapshotComplete: &pb.SnapshotComplete{}}, ResumeToken: "t1",
	}
	for _, response := range []*pb.WatchContractsResponse{begin, complete} {
		if err := stream.Send(response); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return nil
}

func TestBothSidesAreMeasured(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := grpc.NewServer(grpc.MaxConcurrentStreams(256))
	pb.RegisterProviderServiceServer(served, backend{})
	pb.RegisterContractServiceServer(served, backend{})
	go served.Serve(listener)
	t.Cleanup(served.Stop)
	s := settings{address: "http://" + listener.Addr().String(), token: "hunter2"}
	for _, name := range []string{"sdk", "raw"} {
		measured, err := s.side(name)
		if err != nil {
			t.Fatal(err)
		}
		if took, err := timed(2, 10, func() error { return measured.call(t.Context()) }); err != nil || took <= 0 {
			t.Error(took, err)
		}
		grown, err := measureWatches(t.Context(), s, name)
		t.Logf("%s: %d bytes for %d watches", name, grown, watchCount)
		if err != nil {
			t.Error(err)
		}
	}
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	if err := run(t.Context(), []string{"https://bind.example.com"}); err == nil || err.Error() != usage {
		t.Error(err)
	}
}
