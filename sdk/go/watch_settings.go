package bindery

import "time"

// watchSettings are the times of watches, which only tests change.
type watchSettings struct {
	// reconnect is the policy of delays between streams: when a server ends, all its clients reconnect.
	reconnect RetryPolicy
	// silence is how long a stream may have no message; servers send one every 30 s.
	silence time.Duration
}

func defaultWatchSettings() watchSettings {
	return watchSettings{
		reconnect: RetryPolicy{Base: time.Second, Cap: 30 * time.Second},
		silence:   90 * time.Second,
	}
}
