//! The flags about connections to the gRPC port.

use std::{num::NonZeroUsize, time::Duration};

use super::duration;
use crate::settings::ConnectionLimits;

/// Default of `--max-connections`. Each connection needs a file descriptor.
const CONNECTIONS_DEFAULT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(16_383);
/// Default of `--max-connections-per-peer`, high enough for many agents behind one proxy.
const PER_PEER_DEFAULT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);
/// Shortest time limit. A shorter one would cut off clients on slow networks.
const LIMIT_MIN: Duration = Duration::from_secs(1);

/// Flags about connections to the gRPC port.
#[derive(Clone, Debug, clap::Args)]
pub struct ConnectionArgs {
    /// How many connections the gRPC port may have. Half of them are kept free for clients that authenticate: connections on which
    /// no call has passed authentication fill the other half at most. If they are more, the oldest of the address that has
    /// the most of them is closed.
    #[arg(long, value_name = "COUNT", default_value_t = CONNECTIONS_DEFAULT)]
    pub max_connections: NonZeroUsize,
    /// How many connections to the gRPC port one address, or one IPv6 /64, may have. If there are more, its oldest one that has not
    /// authenticated is closed, or the new one if all have. To be raised where a proxy hides the addresses of its clients.
    #[arg(long, value_name = "COUNT", default_value_t = PER_PEER_DEFAULT)]
    pub max_connections_per_peer: NonZeroUsize,
    /// How long a client may take for the TLS handshake.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = limit)]
    pub handshake_timeout: Duration,
    /// How long after the handshake the headers of the first request may take.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = limit)]
    pub first_request_timeout: Duration,
    /// How long a connection may have no call under way. An open stream is a call. Over HTTP/1.1 it is 30s at most.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = limit)]
    pub connection_idle_timeout: Duration,
    /// At this age, or up to a tenth earlier, a connection takes no more calls, and is closed after those under way, half an hour
    /// later at the latest. Clients connect again by themselves, and spread over the replicas.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = limit)]
    pub max_connection_age: Duration,
}

impl ConnectionArgs {
    /// The limits of connections that the flags give.
    pub(super) fn limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            all: self.max_connections.get(),
            per_peer: self.max_connections_per_peer.get(),
            handshake: self.handshake_timeout,
            first_request: self.first_request_timeout,
            idle: self.connection_idle_timeout,
            age: self.max_connection_age,
        }
    }
}

fn limit(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        duration if duration >= LIMIT_MIN => Ok(duration),
        _ => Err("must be at least 1s, so that clients on slow networks are not cut off".to_owned()),
    }
}
