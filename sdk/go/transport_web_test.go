package bindery

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"

	"kube-bind.io/bindery/sdk/go/internal/timing"
	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// webServer is a backend behind a proxy that speaks HTTP/1.1 alone.
type webServer struct {
	address string
	// connections is the number of connections that were made.
	connections atomic.Int32
	// calls is the number of HTTP requests.
	calls atomic.Int32

	mu     sync.Mutex
	header http.Header
	// before handles a request in place of the backend if it returns true.
	before func(http.ResponseWriter, *http.Request) bool
}

// serveWeb starts a server of gRPC-Web, with TLS if there is an authority.
func serveWeb(t *testing.T, ca *authority, before func(http.ResponseWriter, *http.Request) bool) *webServer {
	t.Helper()
	s := &webServer{before: before}
	backend := connect.NewServer()
	backend.Register(
		connect.Method{
			Spec:    connect.Spec{Procedure: pb.ProviderService_GetCaller_FullMethodName, StreamType: connect.StreamTypeUnary},
			Handler: getCallerByWeb,
		},
		connect.Method{
			Spec:    connect.Spec{Procedure: pb.ExportService_GetExport_FullMethodName, StreamType: connect.StreamTypeUnary},
			Handler: getExportByWeb,
		},
		connect.Method{
			Spec:    connect.Spec{Procedure: pb.ExportService_WatchExports_FullMethodName, StreamType: connect.StreamTypeServer},
			Handler: watchExportsByWeb,
		},
	)
	mux := http.NewServeMux()
	connecthttp.Mount(mux, backend)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.calls.Add(1)
			s.mu.Lock()
			s.header = r.Header.Clone()
			s.mu.Unlock()
			if s.before == nil || !s.before(w, r) {
				http.StripPrefix("/below/a/path", mux).ServeHTTP(w, r)
			}
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				s.connections.Add(1)
			}
		},
		// The tests close connections in the middle, and dial with protocols that the server lacks.
		ErrorLog: nil,
	}
	served.Protocols = new(http.Protocols)
	served.Protocols.SetHTTP1(true)
	s.address = "http://" + listener.Addr().String() + "/below/a/path"
	if ca != nil {
		s.address = strings.Replace(s.address, "http", "https", 1)
		config := ca.serving(t, "127.0.0.1")
		config.NextProtos = []string{"http/1.1"}
		listener = tls.NewListener(listener, config)
	}
	go served.Serve(listener)
	t.Cleanup(func() { served.Close() })
	return s
}

func getCallerByWeb(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
	if err := stream.Receive(new(pb.GetCallerRequest)); err != nil {
		return err
	}
	return stream.Send(&pb.GetCallerResponse{Caller: &pb.Caller{Username: "me"}})
}

// getExportByWeb returns an error with details, or a response of the size in the name.
func getExportByWeb(ctx context.Context, _ connect.Spec, stream connect.ServerStream) error {
	request := new(pb.GetExportRequest)
	if err := stream.Receive(request); err != nil {
		return err
	}
	switch request.GetName() {
	case "huge":
		export := &pb.Export{Metadata: &pb.ObjectMeta{Name: strings.Repeat("x", MessageReceiveMax)}}
		return stream.Send(&pb.GetExportResponse{Export: export})
	case "slow":
		<-ctx.Done()
		return ctx.Err()
	}
	info, err := connectproto.NewErrorDetail(&errdetails.ErrorInfo{Reason: "EXPORT_NOT_FOUND", Domain: errorDomain})
	if err != nil {
		return err
	}
	id, err := connectproto.NewErrorDetail(&errdetails.RequestInfo{RequestId: "id-of-the-server"})
	if err != nil {
		return err
	}
	return connect.NewError(connect.CodeNotFound, "no such export").WithDetail(info).WithDetail(id)
}

// watchExportsByWeb streams what the resume token says.
func watchExportsByWeb(ctx context.Context, _ connect.Spec, stream connect.ServerStream) error {
	request := new(pb.WatchExportsRequest)
	if err := stream.Receive(request); err != nil {
		return err
	}
	steps := []step{begin(), applied("a", ""), complete(1, "t1")}
	switch request.GetResumeToken() {
	case "t1":
		steps = []step{applied("b", "t2")}
	case "t2":
		return connect.NewError(connect.CodePermissionDenied, "no more")
	case "stay":
		if err := stream.SendHeaders(); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
	for _, step := range steps {
		if err := stream.Send(step.answer); err != nil {
			return err
		}
	}
	return nil
}

func (s *webServer) client(t *testing.T, ca *authority, options ...Option) *Client {
	t.Helper()
	options = append([]Option{
		WithRetry(RetryPolicy{Attempts: 3, Base: 1, Cap: 1}), WithTokenSource(StaticToken("hunter2")),
		WithWatchTiming(timing.Watch{ReconnectBase: 1, ReconnectCap: 1, Silence: time.Minute}),
	}, options...)
	if ca != nil {
		options = append(options, WithCAPEM(ca.pem()))
	} else {
		options = append(options, WithPlaintext())
	}
	client, err := NewClient(s.address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// A server with TLS refuses HTTP/2 by ALPN, and one without responds by HTTP/1.1 to its preface.
func TestAClientFallsBackToWebAndRemembersIt(t *testing.T) {
	ca := newAuthority(t)
	for name, authority := range map[string]*authority{"TLS": &ca, "plaintext": nil} {
		t.Run(name, func(t *testing.T) {
			s := serveWeb(t, authority, nil)
			client := s.client(t, authority, WithUserAgent("my-job/1.2"))
			for range 3 {
				caller, err := client.GetCaller(t.Context())
				if err != nil || caller.GetUsername() != "me" {
					t.Fatal(caller, err)
				}
			}
			// One connection showed that HTTP/2 cannot be had, and one made all calls.
			if got := s.connections.Load(); got != 2 {
				t.Error(got)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.header.Get("Authorization") != "Bearer hunter2" || len(s.header.Get(requestIDHeader)) != 32 || s.header.Get("Grpc-Timeout") == "" ||
				s.header.Get("User-Agent") != "my-job/1.2 bindery-sdk-go/"+Version || s.header.Get("Accept-Encoding") == "gzip" {
				t.Error(s.header)
			}
		})
	}
}

func TestAFallenBackClientTriesGRPCAgainLater(t *testing.T) {
	s := serveWeb(t, nil, nil)
	client := s.client(t, nil)
	transport := client.transport.(*fallbackTransport)
	transport.againIn = time.Nanosecond
	for range 2 {
		if _, err := client.GetCaller(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.connections.Load(); got != 3 {
		t.Errorf("%d connections, and not two for HTTP/2 and one for HTTP/1.1", got)
	}
	// A server of HTTP/2 takes the place of the proxy.
	s2 := serve(t, nil, func(context.Context, int, any) (any, error) { return &pb.GetCallerResponse{Caller: &pb.Caller{}}, nil })
	transport.grpc.target = "passthrough:///" + strings.TrimPrefix(s2.address, "http://")
	transport.grpc.address.prefix = ""
	if _, err := client.GetCaller(t.Context()); err != nil || len(s2.attempts()) != 1 {
		t.Error(err)
	}
}

func TestTheProtocolCanBeSet(t *testing.T) {
	s := serveWeb(t, nil, nil)
	if _, err := s.client(t, nil, WithProtocol(ProtocolGRPC)).GetCaller(t.Context()); !errors.Is(err, FaultNoHTTP2) || s.calls.Load() != 1 {
		// The one request is the preface of HTTP/2.
		t.Error(s.calls.Load(), err)
	}
	before := s.connections.Load()
	if _, err := s.client(t, nil, WithProtocol(ProtocolGRPCWeb)).GetCaller(t.Context()); err != nil || s.connections.Load() != before+1 {
		t.Error(err)
	}
}

func TestErrorsByWebHaveTheirDetails(t *testing.T) {
	s := serveWeb(t, nil, nil)
	client := s.client(t, nil)
	for range 2 {
		_, err := client.GetExport(t.Context(), "", "cowboys")
		if !errors.Is(err, Reason(pb.ErrorReason_ERROR_REASON_EXPORT_NOT_FOUND)) || !errors.Is(err, Code(codes.NotFound)) ||
			err.(*Error).RequestID != "id-of-the-server" {
			t.Error(err)
		}
	}
	if _, err := client.GetExport(t.Context(), "", "huge"); !isTooLarge(err) {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := client.GetExport(ctx, "", "slow"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := client.GetTemplate(t.Context(), "none"); err == nil || err.(*Error).Kind != KindStatus {
		t.Error(err)
	}
}

func TestAWatchResumesByWeb(t *testing.T) {
	ca := newAuthority(t)
	s := serveWeb(t, &ca, nil)
	got := words(t.Context(), s.client(t, &ca).WatchExports(nil), 99)
	expect := []string{"connected", "begin", "+a", "complete", "ended", "resumed", "+b", "ended", "error PERMISSION_DENIED"}
	if !reflect.DeepEqual(got, expect) {
		t.Errorf("%q", got)
	}
}

func TestAStreamThatIsCutIsBroken(t *testing.T) {
	cut := false
	s := serveWeb(t, nil, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || cut {
			return false
		}
		cut = true
		w.Header().Set("Content-Type", "application/grpc-web+proto")
		w.WriteHeader(http.StatusOK)
		// A removal in place of a snapshot would break the protocol; half of its length is a broken connection.
		io.WriteString(w, "\x00\x00\x00")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	got := words(t.Context(), s.client(t, nil).WatchExports(nil), 4)
	if !reflect.DeepEqual(got, []string{"connected", "lost ConnectionBroken", "connected", "begin"}) {
		t.Errorf("%q", got)
	}
}

func TestAProxyThatIsInTroubleIsWaitedFor(t *testing.T) {
	s := serveWeb(t, nil, nil)
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && s.calls.Load() <= 2 {
			http.Error(w, "the backend is away", http.StatusBadGateway)
			return true
		}
		return false
	}
	if _, err := s.client(t, nil).GetCaller(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAServerWithoutWebIsOneWithoutHTTP2(t *testing.T) {
	s := serveWeb(t, nil, func(w http.ResponseWriter, r *http.Request) bool {
		http.NotFound(w, r)
		return true
	})
	client := s.client(t, nil)
	_, err := client.GetCaller(t.Context())
	if !errors.Is(err, FaultNoHTTP2) || client.transport.(*fallbackTransport).usesWeb() {
		t.Error(err)
	}
}

// A redirect could lead a token to another server.
func TestNoRedirectIsFollowed(t *testing.T) {
	other := serveWeb(t, nil, nil)
	s := serveWeb(t, nil, func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, other.address+r.URL.Path, http.StatusTemporaryRedirect)
		return true
	})
	if _, err := s.client(t, nil).GetCaller(t.Context()); err == nil || other.calls.Load() != 0 {
		t.Error(err)
	}
}

func TestCloseEndsCallsAndWatchesByWeb(t *testing.T) {
	s := serveWeb(t, nil, nil)
	client := s.client(t, nil)
	ended := make(chan error)
	go func() {
		_, err := client.GetExport(t.Context(), "", "slow")
		ended <- err
	}()
	for event, err := range client.WatchExports(&pb.WatchExportsRequest{ResumeToken: "stay"}).Events(t.Context()) {
		if err != nil {
			if !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
			break
		}
		if event.Type == WatchConnected {
			client.Close()
		}
	}
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := client.GetCaller(t.Context()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
