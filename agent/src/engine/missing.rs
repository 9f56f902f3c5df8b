//! Counts missing sources for the deletion guards, and resumes deletions that a guard held back.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bindery_api::v1alpha2::APIServiceNamespace;
use bindery_runtime::queue::Priority;
use tokio::time::{Instant, sleep};

use crate::{
    engine::{Deletions, Kind, Shared, strategy::SyncStrategy},
    index::Tally,
    namespaces::mapped,
};

/// A count of missing sources is used for this long, unless a list is complete before.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// While deletions are held back, missing sources are counted at least this often.
const RECOUNT_INTERVAL: Duration = Duration::from_secs(2);

impl<F: SyncStrategy> Shared<F> {
    /// Whether all guards allow the deletion of copies whose source is missing. The count that they see is at most 1 s old.
    pub(super) fn may_delete(&self) -> bool {
        let epoch = self.epoch.load(Ordering::Acquire);
        let is_fresh = |(of, at): (u64, Instant)| of == epoch && at.elapsed() < COUNT_INTERVAL;
        let counted = *self.counted.lock();
        if !counted.is_some_and(is_fresh) {
            self.count_missing();
        }
        if self.is_allowed() {
            return true;
        }
        self.held_back.store(true, Ordering::Release);
        // Asked again: the guards may have allowed deletions before `thaw` could see that one is held back.
        self.is_allowed()
    }

    /// Whether a guard withholds all deletions.
    pub(super) fn withholds_deletions(&self) -> bool {
        let is_withheld = || self.strategy.guards().iter().any(|guard| guard.withholds());
        if !is_withheld() {
            return false;
        }
        self.held_back.store(true, Ordering::Release);
        // Asked again: the guards may have ended that before `thaw` could see that a deletion is held back.
        is_withheld()
    }

    fn is_allowed(&self) -> bool {
        self.strategy.guards().iter().all(|guard| guard.allows())
    }

    pub(crate) fn count_missing(&self) {
        let epoch = self.epoch.load(Ordering::Acquire);
        let (tally, is_known) = {
            let index = self.index.lock();
            let is_known = index.consumer_synced() && *self.places_known.borrow() && index.provider_synced();
            // If a watch fails, all that was listed is counted nevertheless: only unlisted objects wait.
            let tally = (is_known || self.issues.lock().has_failing_watch()).then(|| index.tally());
            (tally, is_known)
        };
        let tally = tally.map(|tally| {
            if is_known && tally.missing == 0 {
                self.rewound.store(false, Ordering::Release);
            }
            let rewound = self.rewound.load(Ordering::Acquire);
            Tally { rewound, ..tally }
        });
        *self.counted.lock() = Some((epoch, Instant::now()));
        self.count(Kind::Objects, tally);
    }

    /// Counts missing sources if a list was completed since the last count, or while a deletion is held back.
    pub(super) fn count_if_due(&self) {
        let epoch = self.epoch.load(Ordering::Acquire);
        let is_done = self.counted.lock().is_some_and(|(of, _)| of == epoch);
        if !is_done || self.held_back.load(Ordering::Acquire) {
            self.count_missing();
        }
    }

    fn count(&self, kind: Kind, tally: Option<Tally>) {
        for guard in self.strategy.guards() {
            guard.count(self.id, kind, tally);
        }
    }

    /// Whether all guards allow that the provider namespaces of missing consumer namespaces are given up.
    pub(crate) fn may_give_back(&self) -> bool {
        let ended = self.ended_namespaces.lock().clone();
        let exports = self.strategy.exports();
        let requests = self
            .around
            .namespaces
            .list(|request| exports.iter().any(|export| mapped::is_for(request, export)));
        let is_missing = |request: &&Arc<APIServiceNamespace>| {
            let name = request.metadata.name.as_deref().unwrap_or_default();
            !ended.contains(name) && self.around.consumer_namespaces.get("", name).is_none()
        };
        let tally = Tally {
            missing: requests.iter().filter(is_missing).count(),
            known: requests.len(),
            rewound: self.rewound.load(Ordering::Acquire),
        };
        self.count(Kind::Namespaces, Some(tally));
        if self.is_allowed() {
            return true;
        }
        self.held_back.store(true, Ordering::Release);
        self.is_allowed()
    }

    /// Makes earlier counts of missing sources invalid, since a list is complete. `is_rewound` is true if the listed cluster
    /// went back in time, so that any missing source may be a loss of data.
    pub(crate) fn begin_count(&self, is_rewound: bool) {
        if is_rewound {
            self.rewound.store(true, Ordering::Release);
        }
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Resumes deletions whenever a guard allows them again or no longer withholds all, and counts missing sources repeatedly while it does
    /// not allow them.
    pub(super) async fn thaw(self: Arc<Self>, guard: Arc<Deletions>) {
        let (mut allowed, mut withheld) = (guard.allowed(), guard.withheld());
        let mut is_released = !*withheld.borrow_and_update();
        loop {
            let is_allowed = *allowed.borrow_and_update();
            // Where too much is missing, deletions that need no count go on all the same; the others are held back again.
            if (is_released || (is_allowed && self.is_allowed())) && self.held_back.swap(false, Ordering::AcqRel) {
                self.resume();
            }
            is_released = false;
            tokio::select! {
                changed = allowed.changed() => if changed.is_err() { return },
                changed = withheld.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    is_released = !*withheld.borrow_and_update();
                }
                () = sleep(RECOUNT_INTERVAL), if !is_allowed => {
                    self.count_missing();
                    self.may_give_back();
                }
            }
        }
    }

    fn resume(&self) {
        tracing::info!(resource = %self.frame.resource, "deletions that were held back go on");
        self.enqueue_all(Priority::Backlog);
        for request in self.around.namespaces.list(|_| true) {
            if let Some(name) = &request.metadata.name {
                self.place_queue.add(name.as_str().into(), Priority::Backlog);
            }
        }
    }
}
