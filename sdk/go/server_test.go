package bindery

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// server is a backend whose answers a test writes.
type server struct {
	pb.UnimplementedProviderServiceServer
	pb.UnimplementedCatalogServiceServer
	pb.UnimplementedBindingServiceServer
	pb.UnimplementedExportServiceServer
	pb.UnimplementedCredentialServiceServer
	pb.UnimplementedContractServiceServer

	address string

	mu   sync.Mutex
	seen []seen
	// answer answers attempt number n, from 0, of any method.
	answer func(ctx context.Context, n int, request any) (any, error)
}

// seen is an attempt as the server saw it.
type seen struct {
	method  string
	header  metadata.MD
	left    time.Duration
	request any
}

func (s *server) attempts() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen{}, s.seen...)
}

// serve starts a server on a loopback port, which ends with the test.
func serve(t *testing.T, tlsConfig *tls.Config, answer func(ctx context.Context, n int, request any) (any, error)) *server {
	t.Helper()
	s := &server{answer: answer}
	options := []grpc.ServerOption{grpc.UnaryInterceptor(s.intercept)}
	if tlsConfig != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(tlsConfig)))
	}
	s.listen(t, tlsConfig != nil, grpc.NewServer(options...), func(backend *grpc.Server) {
		pb.RegisterProviderServiceServer(backend, s)
		pb.RegisterCatalogServiceServer(backend, s)
		pb.RegisterBindingServiceServer(backend, s)
		pb.RegisterExportServiceServer(backend, s)
		pb.RegisterCredentialServiceServer(backend, s)
		pb.RegisterContractServiceServer(backend, s)
	})
	return s
}

// serveWith starts a plaintext server with services of its own.
func serveWith(t testing.TB, register func(*grpc.Server)) *server {
	t.Helper()
	s := &server{}
	s.listen(t, false, grpc.NewServer(), register)
	return s
}

func (s *server) listen(t testing.TB, isTLS bool, backend *grpc.Server, register func(*grpc.Server)) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = "http://" + listener.Addr().String()
	if isTLS {
		s.address = "https://" + listener.Addr().String()
	}
	register(backend)
	go backend.Serve(listener)
	t.Cleanup(backend.Stop)
}

func (s *server) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
	header, _ := metadata.FromIncomingContext(ctx)
	deadline, _ := ctx.Deadline()
	s.mu.Lock()
	number := len(s.seen)
	s.seen = append(s.seen, seen{info.FullMethod, header, time.Until(deadline), request})
	s.mu.Unlock()
	return s.answer(ctx, number, request)
}

// client makes a client of a server, without delays between attempts.
func (s *server) client(t testing.TB, options ...Option) *Client {
	t.Helper()
	options = append([]Option{WithPlaintext(), WithRetry(RetryPolicy{Attempts: 5, Base: 1, Cap: 1})}, options...)
	client, err := NewClient(s.address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// failing makes an error of the server.
func failing(code codes.Code, reason pb.ErrorReason, retryAfter ...time.Duration) error {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reasonName(reason), Domain: errorDomain}}
	for _, delay := range retryAfter {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
	}
	answer, err := status.New(code, "no").WithDetails(details...)
	if err != nil {
		panic(err)
	}
	return answer.Err()
}

// authority is a CA for tests.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{certificate, key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// issue signs a certificate for a name or an IP address, and returns it and its key as PEM.
func (a authority) issue(t *testing.T, name string, notAfter time.Time) (chain, key []byte) {
	t.Helper()
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: notAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		leaf.IPAddresses = []net.IP{ip}
	} else {
		leaf.DNSNames = []string{name}
	}
	leafKey := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.certificate, leafKey.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	chain = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return chain, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// serving is the TLS of a server for a name.
func (a authority) serving(t *testing.T, name string) *tls.Config {
	t.Helper()
	return a.servingUntil(t, name, time.Now().Add(time.Hour))
}

func (a authority) servingUntil(t *testing.T, name string, notAfter time.Time) *tls.Config {
	t.Helper()
	certificate, err := tls.X509KeyPair(a.issue(t, name, notAfter))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{certificate}}
}
