//! When a controller looks at a key again.

use std::{hash::Hash, time::Duration};

use bindery_runtime::{backoff::Backoff, queue::Work};

/// What a reconciliation answers the queue.
#[derive(Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Not before something changes.
    OnChange,
    /// After a pause that grows with each failure.
    WithBackoff,
    /// After this time.
    After(Duration),
}

impl Requeue {
    /// Requeues with backoff after a failure, otherwise when something changes.
    pub fn after_failure(failed: bool) -> Self {
        if failed { Self::WithBackoff } else { Self::OnChange }
    }

    /// Gives a key back to its queue.
    pub fn settle<K: Eq + Hash + Clone>(self, work: Work<K>) {
        match self {
            Self::OnChange => drop(work),
            Self::WithBackoff => work.retry(Backoff::OBJECT),
            Self::After(pause) => work.again_after(pause),
        }
    }
}
