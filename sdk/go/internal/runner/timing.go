package main

import "kube-bind.io/bindery/sdk/go/internal/timing"

// timing is the timing of watches.
func (s clientSettings) timing() timing.Watch {
	times := timing.Default()
	if s.Reconnect != nil {
		times.ReconnectBase, times.ReconnectCap = milliseconds(s.Reconnect.BaseMs), milliseconds(s.Reconnect.CapMs)
	}
	if s.SilenceMs > 0 {
		times.Silence = milliseconds(s.SilenceMs)
	}
	return times
}
