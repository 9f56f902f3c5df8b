package bindery

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// wire is one connection of a server that speaks HTTP/2 frame by frame.
type wire struct {
	net.Conn
	*http2.Framer
	stream uint32
}

// faulty serves frames: act answers call number n, from 0, on its stream.
func faulty(t *testing.T, act func(w *wire, n int)) (address string, calls *atomic.Int32) {
	t.Helper()
	calls = new(atomic.Int32)
	return "http://" + raw(t, nil, func(connection net.Conn) {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(connection, preface); err != nil {
			return
		}
		w := &wire{Conn: connection, Framer: http2.NewFramer(connection, connection)}
		w.WriteSettings()
		for {
			frame, err := w.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					w.WriteSettingsAck()
				}
			case *http2.DataFrame:
				if frame.StreamEnded() {
					w.stream = frame.StreamID
					act(w, int(calls.Add(1))-1)
				}
			}
		}
	}), calls
}

func (w *wire) headers(end bool, fields ...string) {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for number := 0; number < len(fields); number += 2 {
		encoder.WriteField(hpack.HeaderField{Name: fields[number], Value: fields[number+1]})
	}
	w.WriteHeaders(http2.HeadersFrameParam{StreamID: w.stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end})
}

func (w *wire) begin() { w.headers(false, ":status", "200", "content-type", "application/grpc") }

func (w *wire) data(text string) { w.WriteData(w.stream, false, []byte(text)) }

func (w *wire) trailers(fields ...string) { w.headers(true, fields...) }

// answer is a whole answer of GetCaller.
func (w *wire) answer() {
	w.begin()
	w.data("\x00\x00\x00\x00\x02\x0a\x00")
	w.trailers("grpc-status", "0")
}

// abort closes the connection so that the client sees a reset.
func (w *wire) abort() {
	w.Conn.(*net.TCPConn).SetLinger(0)
	w.Conn.Close()
}

func TestWhatBreaksIsTriedAgainWhereThatIsSafe(t *testing.T) {
	for name, check := range map[string]struct {
		fault func(*wire)
		// once tells whether a call that counts is made again, too.
		once bool
	}{
		"before headers":       {(*wire).abort, false},
		"after headers":        {func(w *wire) { w.begin(); w.abort() }, false},
		"within a message":     {func(w *wire) { w.begin(); w.data("\x00\x00\x00\x00\x10\x0a"); w.abort() }, false},
		"a reset":              {func(w *wire) { w.WriteRSTStream(w.stream, http2.ErrCodeInternal) }, false},
		"without trailers":     {func(w *wire) { w.begin(); w.WriteData(w.stream, true, nil) }, false},
		"a refused stream":     {func(w *wire) { w.WriteRSTStream(w.stream, http2.ErrCodeRefusedStream) }, true},
		"a server that leaves": {func(w *wire) { w.WriteGoAway(0, http2.ErrCodeNo, nil) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			address, calls := faulty(t, func(w *wire, n int) {
				if n == 0 {
					check.fault(w)
					return
				}
				w.answer()
			})
			client, err := NewClient(address, WithPlaintext(), WithRetry(RetryPolicy{Attempts: 3, Base: 1, Cap: 1}))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, err := client.GetCaller(t.Context()); err != nil || calls.Load() != 2 {
				t.Errorf("an idempotent call: %d calls, %v", calls.Load(), err)
			}
			calls.Store(0)
			_, err = client.RenewKubeconfig(t.Context(), "")
			var failure *Error
			switch {
			case check.once:
				// The answer is one of another method, without a kubeconfig.
				if !errors.As(err, &failure) || failure.Kind != KindProtocol || calls.Load() != 2 {
					t.Errorf("a call that counts: %d calls, %v", calls.Load(), err)
				}
			case !errors.Is(err, FaultBroken) || calls.Load() != 1:
				t.Errorf("a call that counts: %d calls, %v", calls.Load(), err)
			}
		})
	}
}

func TestAnswersThatAreNoneAreErrors(t *testing.T) {
	unauthenticated, exhausted := codes.Unauthenticated, codes.ResourceExhausted
	for name, check := range map[string]struct {
		answer func(*wire)
		kind   Kind
		code   *codes.Code
	}{
		"no message": {func(w *wire) {
			w.headers(true, ":status", "200", "content-type", "application/grpc", "grpc-status", "0")
		}, KindProtocol, nil},
		"no message of ours":   {func(w *wire) { w.begin(); w.data("\x00\x00\x00\x00\x03\xff\xff\xff"); w.trailers("grpc-status", "0") }, KindProtocol, nil},
		"a length of 4 GiB":    {func(w *wire) { w.begin(); w.data("\x00\xff\xff\xff\xff\x00") }, KindStatus, &exhausted},
		"a page of a proxy":    {func(w *wire) { w.headers(true, ":status", "401", "content-type", "text/html") }, KindStatus, &unauthenticated},
		"details without form": {func(w *wire) { w.begin(); w.trailers("grpc-status", "3", "grpc-status-details-bin", "***") }, KindProtocol, nil},
	} {
		t.Run(name, func(t *testing.T) {
			address, calls := faulty(t, func(w *wire, _ int) { check.answer(w) })
			client, err := NewClient(address, WithPlaintext(), WithTimeout(20*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			_, err = client.GetCaller(t.Context())
			var failure *Error
			if !errors.As(err, &failure) || failure.Kind != check.kind || calls.Load() != 1 ||
				check.code != nil && failure.Code != *check.code {
				t.Errorf("%d calls, %s %v", calls.Load(), failure.Kind, err)
			}
		})
	}
}

func TestAnUnknownCodeAndAnIDOfTheHeaderAreTaken(t *testing.T) {
	address, _ := faulty(t, func(w *wire, _ int) {
		w.headers(true, ":status", "200", "content-type", "application/grpc", "grpc-status", "77", "grpc-message", "strange",
			requestIDHeader, "header-id")
	})
	client, err := NewClient(address, WithPlaintext())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.GetCaller(t.Context()); err == nil || err.Error() != "strange (UNKNOWN, request header-id)" {
		t.Error(err)
	}
}

func TestAConnectionThatGoesAwayEndsItsCallsFirst(t *testing.T) {
	address, calls := faulty(t, func(w *wire, n int) {
		w.WriteGoAway(w.stream, http2.ErrCodeNo, nil)
		w.answer()
	})
	client, err := NewClient(address, WithPlaintext(), WithRetry(RetryPolicy{Attempts: 1}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 3 {
		if _, err := client.GetCaller(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if calls.Load() != 3 {
		t.Error(calls.Load())
	}
}

// The breach of a stream's protocol ends the stream, not only the loop.
func TestAWatchLeavesAStreamThatBreaksTheRules(t *testing.T) {
	reset := make(chan struct{}, 9)
	address, _ := faulty(t, func(w *wire, n int) {
		w.begin()
		// A removal before a snapshot.
		w.data("\x00\x00\x00\x00\x02\x1a\x00")
		if n > 0 {
			reset <- struct{}{}
		}
	})
	client, err := NewClient(address, WithPlaintext())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for event, err := range client.WatchExports(&pb.WatchExportsRequest{}).Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Type == WatchDisconnected && event.Err.Kind != KindProtocol {
			t.Error(event.Err)
		}
		if len(reset) > 0 {
			break
		}
	}
}
