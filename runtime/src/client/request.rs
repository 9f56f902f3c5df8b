//! What a request says about itself to the transport, among its extensions.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How the transport of [`Clients::watch`](super::Clients) carries a request. A request without a kind is sent at once,
/// on a connection of its own.
#[derive(Clone, Debug)]
pub(crate) enum RequestKind {
    /// A watch shares a connection with others where the API server speaks HTTP/2.
    Watch,
    /// A list waits for one of few permits first. The timer is stopped until it has it.
    List(ResponseTimer),
}

/// Tells since when the API server owes the answer to a list. Clones share the time.
#[derive(Clone, Debug)]
pub(crate) struct ResponseTimer(Arc<Mutex<Option<Instant>>>);

// === impl ResponseTimer ===

impl ResponseTimer {
    /// A timer that starts now.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Some(Instant::now()))))
    }

    /// Since when an answer is due; `None` while the request waits for its permit.
    pub(crate) fn started(&self) -> Option<Instant> {
        *self.0.lock()
    }

    /// Stops the timer: the request waits for its permit.
    pub(crate) fn stop(&self) {
        *self.0.lock() = None;
    }

    /// Starts the timer again: the request has its permit.
    pub(crate) fn start(&self) {
        *self.0.lock() = Some(Instant::now());
    }
}
