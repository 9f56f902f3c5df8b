//! The connections of a client: one for its calls, and more for its watches.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tonic::transport::{Channel, Endpoint};

/// Number of watches that share a connection. Servers accept 256 streams per connection; beyond, a stream would wait for another
/// one to end.
const WATCHES_PER_CONNECTION: usize = 200;

/// Makes the connections of a client. A connection is established with its first call.
pub(crate) struct Connections {
    calls: Channel,
    /// How to connect; `None` if the client was built on a channel, which then also serves its watches.
    endpoint: Option<Endpoint>,
    watches: Mutex<Vec<Weak<WatchConnection>>>,
}

/// A connection of watches, which is closed when the last of them is dropped.
pub(crate) struct WatchConnection {
    pub(crate) channel: Channel,
}

impl Connections {
    /// Makes the connections to an endpoint. Must be called within a Tokio runtime.
    pub(crate) fn to(endpoint: Endpoint) -> Self {
        Self {
            calls: endpoint.connect_lazy(),
            endpoint: Some(endpoint),
            watches: Mutex::default(),
        }
    }

    /// Uses an existing channel for everything.
    pub(crate) fn of_channel(channel: Channel) -> Self {
        Self {
            calls: channel,
            endpoint: None,
            watches: Mutex::default(),
        }
    }

    /// Returns the channel of unary calls.
    pub(crate) fn calls(&self) -> &Channel {
        &self.calls
    }

    /// Returns the connection for one more watch, which must hold it as long as it lives. Must be called within a Tokio runtime.
    pub(crate) fn for_watch(&self) -> Arc<WatchConnection> {
        let mut watches = self.watches.lock();
        watches.retain(|connection| connection.strong_count() > 0);
        let free = watches
            .iter()
            .filter(|connection| connection.strong_count() < WATCHES_PER_CONNECTION)
            .find_map(Weak::upgrade);
        if let Some(connection) = free {
            return connection;
        }
        let channel = match &self.endpoint {
            Some(endpoint) => endpoint.connect_lazy(),
            None => self.calls.clone(),
        };
        let connection = Arc::new(WatchConnection { channel });
        watches.push(Arc::downgrade(&connection));
        connection
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn watches_share_connections_and_close_them() {
        let connections = Connections::to(Endpoint::from_static("http://127.0.0.1:1"));
        let count = || {
            connections
                .watches
                .lock()
                .iter()
                .filter(|it| it.strong_count() > 0)
                .count()
        };
        let mut held: Vec<_> = (0..WATCHES_PER_CONNECTION).map(|_| connections.for_watch()).collect();
        assert_eq!(count(), 1);
        held.push(connections.for_watch());
        assert_eq!(count(), 2);
        held.remove(0);
        held.push(connections.for_watch());
        assert_eq!(count(), 2, "the first connection has room again");
        held.clear();
        assert_eq!(count(), 0);
    }
}
