// Package timing holds the times of watches, which only tests change.
package timing

import "time"

// Watch is the timing of a watch.
type Watch struct {
	// ReconnectBase is the upper limit of the first random delay between two streams; it doubles with each stream that fails early.
	ReconnectBase time.Duration
	// ReconnectCap is the upper limit of a random delay.
	ReconnectCap time.Duration
	// Silence is how long a stream may have no message; servers send one every 30 s.
	Silence time.Duration
}

// Default is the timing of watches outside tests. Delays are random, because all clients of a server reconnect when it ends.
func Default() Watch {
	return Watch{ReconnectBase: time.Second, ReconnectCap: 30 * time.Second, Silence: 90 * time.Second}
}
