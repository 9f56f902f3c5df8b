//! Lists wait in line for each other, which is nothing that an API server is to answer for.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Goes with a request, among its extensions, and tells since when an answer is to be expected.
#[derive(Clone, Debug)]
pub(crate) struct Line(Arc<Mutex<Option<Instant>>>);

// === impl Line ===

impl Line {
    /// For a request that is sent now.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Some(Instant::now()))))
    }

    /// Since when an answer is to be expected; `None` while the request waits for others.
    pub(crate) fn since(&self) -> Option<Instant> {
        *self.0.lock()
    }

    /// The request has to wait for others.
    pub(crate) fn wait(&self) {
        *self.0.lock() = None;
    }

    /// Its turn has come.
    pub(crate) fn go(&self) {
        *self.0.lock() = Some(Instant::now());
    }
}
