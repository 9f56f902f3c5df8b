//! Asks the deletion guards, and resumes deletions that a guard held back.

use std::sync::{Arc, atomic::Ordering};

use bindery_runtime::queue::Priority;

use crate::{
    engine::{Deletions, Shared, strategy::SyncStrategy},
    index::Index,
};

impl<F: SyncStrategy> Shared<F> {
    /// Whether all guards allow the deletion of claimed copies whose source is there.
    pub(super) fn may_delete(&self) -> bool {
        let is_allowed = || self.strategy.guards().iter().all(|guard| guard.allows());
        if is_allowed() {
            return true;
        }
        self.held_back.store(true, Ordering::Release);
        // Asked again: the guards may have allowed deletions before `resume_by` could see that one is held back.
        is_allowed()
    }

    /// Whether a guard withholds all deletions.
    pub(super) fn withholds_deletions(&self) -> bool {
        let is_withheld = || self.strategy.guards().iter().any(|guard| guard.withholds());
        if !is_withheld() {
            return false;
        }
        self.held_back.store(true, Ordering::Release);
        // Asked again: the guards may have ended that before `resume_by` could see that a deletion is held back.
        is_withheld()
    }

    /// Tells the guard how many orphans there are. Called with the index locked whenever a list is complete, so that no deletion relies
    /// on an older number.
    pub(super) fn tell_guard(&self, index: &Index<F::Pair>) {
        let Some(guard) = self.strategy.counts_for() else {
            return;
        };
        let is_known = index.consumer_synced() && *self.places_known.borrow() && index.provider_synced();
        guard.count(self.id, is_known.then(|| index.orphan_count()));
    }

    /// Resumes deletions whenever a guard allows them again or no longer withholds all.
    pub(super) async fn resume_by(self: Arc<Self>, guard: Arc<Deletions>) {
        let (mut allowed, mut withheld) = (guard.allowed(), guard.withheld());
        loop {
            let (is_allowed, is_withheld) = (*allowed.borrow_and_update(), *withheld.borrow_and_update());
            if (is_allowed || !is_withheld) && self.held_back.swap(false, Ordering::AcqRel) {
                self.resume();
            }
            let changed = tokio::select! {
                changed = allowed.changed() => changed,
                changed = withheld.changed() => changed,
            };
            if changed.is_err() {
                return;
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
