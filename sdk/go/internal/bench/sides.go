package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	bindery "kube-bind.io/bindery/sdk/go"
	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

const (
	callTimeout = 10 * time.Second
	// streamsPerConnection limits the watches on one connection; servers accept 256 streams.
	streamsPerConnection = 200
)

// side is one of the two that are compared.
type side interface {
	// call makes a call of GetCaller.
	call(ctx context.Context) error
	// watch watches contracts until the context ends, and calls ready when the snapshot is complete.
	watch(ctx context.Context, number int, ready func()) error
}

func (s settings) side(name string) (side, error) {
	if name == "raw" {
		return newRaw(s)
	}
	options := []bindery.Option{bindery.WithTokenSource(bindery.StaticToken(s.token))}
	if s.isPlaintext() {
		options = append(options, bindery.WithPlaintext())
	}
	if s.caFile != "" {
		options = append(options, bindery.WithCAFile(s.caFile))
	}
	client, err := bindery.NewClient(s.address, options...)
	return sdkSide{client}, err
}

// sdkSide is the client of the SDK.
type sdkSide struct{ client *bindery.Client }

func (s sdkSide) call(ctx context.Context) error {
	_, err := s.client.GetCaller(ctx)
	return err
}

func (s sdkSide) watch(ctx context.Context, _ int, ready func()) error {
	for event, err := range s.client.WatchContracts(nil).Events(ctx) {
		if err != nil {
			return err
		}
		if event.Type == bindery.WatchDisconnected && event.Err != nil {
			return event.Err
		}
		if event.Type == bindery.WatchSnapshotComplete {
			ready()
		}
	}
	return nil
}

// rawSide is the generated stubs over plain connections of grpc-go.
type rawSide struct {
	settings    settings
	connections []*grpc.ClientConn
}

func newRaw(s settings) (*rawSide, error) {
	transport := insecure.NewCredentials()
	if !s.isPlaintext() {
		config := &tls.Config{}
		if s.caFile != "" {
			text, err := os.ReadFile(s.caFile)
			if err != nil {
				return nil, err
			}
			config.RootCAs = x509.NewCertPool()
			config.RootCAs.AppendCertsFromPEM(text)
		}
		transport = credentials.NewTLS(config)
	}
	_, host, found := strings.Cut(s.address, "://")
	if !found {
		return nil, fmt.Errorf("%s is no URL", s.address)
	}
	raw := &rawSide{settings: s}
	for range (watchCount + streamsPerConnection - 1) / streamsPerConnection {
		connection, err := grpc.NewClient(host, grpc.WithTransportCredentials(transport))
		if err != nil {
			return nil, err
		}
		raw.connections = append(raw.connections, connection)
	}
	return raw, nil
}

func (r *rawSide) authorized(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+r.settings.token)
}

func (r *rawSide) call(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(r.authorized(ctx), callTimeout)
	defer cancel()
	_, err := pb.NewProviderServiceClient(r.connections[0]).GetCaller(ctx, &pb.GetCallerRequest{})
	return err
}

func (r *rawSide) watch(ctx context.Context, number int, ready func()) error {
	stub := pb.NewContractServiceClient(r.connections[number/streamsPerConnection])
	stream, err := stub.WatchContracts(r.authorized(ctx), &pb.WatchContractsRequest{})
	if err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		if response.GetSnapshotComplete() != nil {
			ready()
		}
	}
}
