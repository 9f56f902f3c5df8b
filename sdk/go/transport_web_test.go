package bindery

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
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

// A server with TLS refuses HTTP/2 by ALPN.
func TestAClientFallsBackToWebAndRemembersIt(t *testing.T) {
	ca := newAuthority(t)
	s := serveWeb(t, &ca, nil)
	client := s.client(t, &ca, WithUserAgent("my-job/1.2"))
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
}

// proxyOfStatus is a proxy of HTTP/2 that responds to gRPC by an HTTP status, and passes gRPC-Web on.
func proxyOfStatus(t *testing.T, status int) (address string, refused *atomic.Int32) {
	t.Helper()
	backend := serveWeb(t, nil, nil)
	refused = new(atomic.Int32)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(strings.TrimSuffix(backend.address, "/below/a/path"))
	if err != nil {
		t.Fatal(err)
	}
	web := httputil.NewSingleHostReverseProxy(to)
	served := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc-web") {
			r.URL.Path = "/below/a/path" + r.URL.Path
			web.ServeHTTP(w, r)
			return
		}
		refused.Add(1)
		http.Error(w, "not here", status)
	})}
	served.Protocols = new(http.Protocols)
	served.Protocols.SetHTTP1(true)
	served.Protocols.SetUnencryptedHTTP2(true)
	go served.Serve(listener)
	t.Cleanup(func() { served.Close() })
	return "http://" + listener.Addr().String(), refused
}

func TestAStatusThatRefusesGRPCMakesAClientFallBack(t *testing.T) {
	for _, status := range []int{400, 405, 415, 426, 464, 501, 505} {
		address, refused := proxyOfStatus(t, status)
		client := (&webServer{address: address}).client(t, nil)
		for range 2 {
			if _, err := client.GetCaller(t.Context()); err != nil {
				t.Error(status, err)
			}
		}
		if refused.Load() != 1 {
			t.Errorf("%d: gRPC was tried %d times", status, refused.Load())
		}
		got := words(t.Context(), client.WatchExports(nil), 4)
		if !reflect.DeepEqual(got, []string{"connected", "begin", "+a", "complete"}) {
			t.Errorf("%d: %q", status, got)
		}
	}
	for _, status := range []int{401, 403, 404, 429, 500, 502, 503, 504} {
		address, _ := proxyOfStatus(t, status)
		_, err := (&webServer{address: address}).client(t, nil).GetCaller(t.Context())
		var failure *Error
		if !errors.As(err, &failure) || failure.Kind != KindStatus {
			t.Error(status, err)
		}
	}
}

func TestAFallenBackClientTriesGRPCAgainLater(t *testing.T) {
	ca := newAuthority(t)
	s := serveWeb(t, &ca, nil)
	client := s.client(t, &ca)
	transport := client.transport.(*fallbackTransport)
	transport.choice.againIn = time.Nanosecond
	for range 2 {
		if _, err := client.GetCaller(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.connections.Load(); got != 3 {
		t.Errorf("%d connections, and not two for HTTP/2 and one for HTTP/1.1", got)
	}
	// A server of HTTP/2 takes the place of the proxy.
	s2 := serve(t, ca.serving(t, "127.0.0.1"), func(context.Context, int, any) (any, error) {
		return &pb.GetCallerResponse{Caller: &pb.Caller{}}, nil
	})
	transport.grpc.target = "passthrough:///" + strings.TrimPrefix(s2.address, "https://")
	transport.grpc.address.prefix = ""
	if _, err := client.GetCaller(t.Context()); err != nil || len(s2.attempts()) != 1 || transport.choice.webUntil.Load() != nil {
		t.Error(err)
	}
}

func TestOneCallTriesGRPCAgain(t *testing.T) {
	choice := protocolChoice{againIn: grpcAgainAfter}
	start := time.Now()
	choice.webWorked(start)
	later := start.Add(grpcAgainAfter)
	for _, expect := range []struct {
		now  time.Time
		plan sendPlan
	}{{start, sendByWeb}, {later, sendByGRPCOrWeb}, {later, sendByWeb}} {
		if got := choice.plan(expect.now); got != expect.plan {
			t.Errorf("%v in place of %v", got, expect.plan)
		}
	}
	choice.webFailed()
	if got := choice.plan(later); got != sendByGRPCOrWeb {
		t.Error(got)
	}
}

// A server of HTTP/2 alone takes the place of the proxy while the client speaks gRPC-Web.
func TestAClientLeavesWebWhereHTTP1IsNotNegotiated(t *testing.T) {
	ca := newAuthority(t)
	s := serve(t, ca.serving(t, "127.0.0.1"), func(context.Context, int, any) (any, error) {
		return &pb.GetCallerResponse{Caller: &pb.Caller{}}, nil
	})
	client := (&webServer{address: s.address}).client(t, &ca)
	transport := client.transport.(*fallbackTransport)
	transport.choice.webWorked(time.Now())
	if _, err := client.GetCaller(t.Context()); err != nil || transport.choice.webUntil.Load() != nil {
		t.Error(err)
	}
}

func TestTheProtocolCanBeSet(t *testing.T) {
	ca := newAuthority(t)
	s := serveWeb(t, &ca, nil)
	if _, err := s.client(t, &ca, WithProtocol(ProtocolGRPC)).GetCaller(t.Context()); !errors.Is(err, FaultNoHTTP2) || s.calls.Load() != 0 {
		t.Error(s.calls.Load(), err)
	}
	before := s.connections.Load()
	if _, err := s.client(t, &ca, WithProtocol(ProtocolGRPCWeb)).GetCaller(t.Context()); err != nil || s.connections.Load() != before+1 {
		t.Error(err)
	}
}

func TestErrorsByWebHaveTheirDetails(t *testing.T) {
	s := serveWeb(t, nil, nil)
	client := s.client(t, nil, WithProtocol(ProtocolGRPCWeb))
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
	got := words(t.Context(), s.client(t, nil, WithProtocol(ProtocolGRPCWeb)).WatchExports(nil), 4)
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
	if _, err := s.client(t, nil, WithProtocol(ProtocolGRPCWeb)).GetCaller(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAServerWithoutWebIsOneWithoutHTTP2(t *testing.T) {
	ca := newAuthority(t)
	s := serveWeb(t, &ca, func(w http.ResponseWriter, r *http.Request) bool {
		http.NotFound(w, r)
		return true
	})
	client := s.client(t, &ca)
	_, err := client.GetCaller(t.Context())
	if !errors.Is(err, FaultNoHTTP2) || client.transport.(*fallbackTransport).choice.webUntil.Load() != nil {
		t.Error(err)
	}
}

// Such a server shows its certificate only to a client that offers HTTP/1.1.
func TestAServerWithoutHTTP2ThatIsNotTrustedIsNamed(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	s := serveWeb(t, &ca, nil)
	if _, err := s.client(t, &other).GetCaller(t.Context()); !errors.Is(err, FaultCertificateUntrusted) || s.calls.Load() != 0 {
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
	if _, err := s.client(t, nil, WithProtocol(ProtocolGRPCWeb)).GetCaller(t.Context()); err == nil || other.calls.Load() != 0 {
		t.Error(err)
	}
}

func TestCloseEndsCallsAndWatchesByWeb(t *testing.T) {
	s := serveWeb(t, nil, nil)
	client := s.client(t, nil, WithProtocol(ProtocolGRPCWeb))
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
