//! Retained copies: their sources were deleted and can be restored.

use bindery_runtime::cache::ObjectKey;
use jiff::Timestamp;

use crate::index::{Index, Known};

/// At most this many retained copies of a binding are listed. Others can be restored by name all the same.
pub(crate) const LISTED_MAX: usize = 100;

/// Since when a copy is retained, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionTimes {
    /// When the konnector retained it, by its own clock.
    pub since: Timestamp,
    /// When the server ends it; `None` until the server has said it.
    pub until: Option<Timestamp>,
}

/// The retained copies of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetainedCopies {
    /// The number of all of them.
    pub count: usize,
    /// The first of them by the name of the object that was deleted.
    pub first: Vec<(ObjectKey, RetentionTimes)>,
}

// === impl Index ===

impl<P: Known> Index<P> {
    /// The retained copies. They are searched for only if there are any.
    pub(crate) fn retained(&self) -> RetainedCopies {
        let mut all = RetainedCopies::default();
        let pairs = (self.retained > 0).then(|| self.pairs());
        for (key, pair) in pairs.into_iter().flatten() {
            let Some(times) = pair.retention() else { continue };
            all.count += 1;
            let at = all.first.partition_point(|(known, _)| *known < key);
            if at < LISTED_MAX {
                all.first.truncate(LISTED_MAX - 1);
                all.first.insert(at, (key, times));
            }
        }
        all
    }
}
