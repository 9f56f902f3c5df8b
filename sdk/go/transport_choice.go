package bindery

import (
	"sync/atomic"
	"time"
)

// grpcAgainAfter is how long a client speaks gRPC-Web before it tries gRPC again: the way to the server may have changed.
const grpcAgainAfter = 5 * time.Minute

// sendPlan is how to send a call.
type sendPlan int

const (
	sendByGRPC sendPlan = iota
	sendByWeb
	// sendByGRPCOrWeb: by gRPC, and by gRPC-Web if HTTP/2 does not reach the server.
	sendByGRPCOrWeb
)

// protocolChoice is what a client knows of the way to its server.
type protocolChoice struct {
	setting Protocol
	againIn time.Duration
	// webUntil is until when calls are sent by gRPC-Web without trying gRPC; nil if HTTP/2 is not known to be missing.
	webUntil atomic.Pointer[time.Time]
}

// plan decides how to send a call. When it is time to try gRPC again, one call tries it, and the others go on by gRPC-Web.
func (c *protocolChoice) plan(now time.Time) sendPlan {
	switch c.setting {
	case ProtocolGRPC:
		return sendByGRPC
	case ProtocolGRPCWeb:
		return sendByWeb
	}
	until := c.webUntil.Load()
	if until == nil {
		return sendByGRPCOrWeb
	}
	if now.Before(*until) {
		return sendByWeb
	}
	next := now.Add(c.againIn)
	if c.webUntil.CompareAndSwap(until, &next) {
		return sendByGRPCOrWeb
	}
	return sendByWeb
}

// grpcWorked notes that a call by gRPC reached the server.
func (c *protocolChoice) grpcWorked() {
	if c.webUntil.Load() != nil {
		c.webUntil.Store(nil)
	}
}

// webWorked notes that a call by gRPC-Web reached the server where gRPC did not.
func (c *protocolChoice) webWorked(now time.Time) {
	until := now.Add(c.againIn)
	c.webUntil.Store(&until)
}

// webFailed notes that a call by gRPC-Web did not reach the server, so that the next one tries gRPC: what stands before the server may
// have been replaced.
func (c *protocolChoice) webFailed() { c.webUntil.Store(nil) }
