package bindery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// failure tells a response of the server from what Connect itself says about the connection.
func (t *webTransport) failure(ctx context.Context, err error, probe *webProbe, request encodedRequest) error {
	var failed *connect.Error
	if !errors.As(err, &failed) {
		failed = connect.NewError(connect.CodeInternal, err.Error())
	}
	httpStatus, headerID, sendError := probe.result()
	var dial *dialError
	switch {
	case failed.IsRemote():
		return statusError(statusOf(failed), headerID, request.requestID)
	case t.closed.Err() != nil:
		return cancelledError(ErrClosed)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(sendError, &dial):
		return &Error{
			Kind: KindTransport, Fault: dial.fault, NotSent: true, Address: t.address.String(), Message: printable(dial.Error()),
		}
	case sendError != nil:
		return t.broken(sendError)
	case httpStatus != http.StatusOK:
		text := fmt.Sprintf("%s returned HTTP %d in place of gRPC-Web", t.address, httpStatus)
		return statusError(status.New(codes.Code(failed.Code()), text), headerID, request.requestID)
	case probe.isWeb() && failed.Code() == connect.CodeResourceExhausted:
		return tooLargeError(fmt.Sprintf("the response has more than the %d bytes that a client takes", MessageReceiveMax), request.requestID)
	case probe.isWeb() && isCut(failed):
		return t.broken(failed)
	default:
		return protocolError(t.address, printable(failed.Message()))
	}
}

func (t *webTransport) broken(err error) *Error {
	return &Error{Kind: KindTransport, Fault: FaultBroken, Address: t.address.String(), Message: printable(err.Error())}
}

// statusOf is the status of a response.
func statusOf(failed *connect.Error) *status.Status {
	response := &spb.Status{Code: int32(failed.Code()), Message: failed.Message()}
	for _, detail := range failed.Details() {
		response.Details = append(response.Details, connectproto.ErrorDetailToAny(detail))
	}
	return status.FromProto(response)
}

// isCut recognizes a response that ended before its trailers.
func isCut(failed *connect.Error) bool {
	var network *net.OpError
	return errors.Is(failed, io.ErrUnexpectedEOF) || errors.Is(failed, syscall.ECONNRESET) || errors.As(failed, &network)
}
