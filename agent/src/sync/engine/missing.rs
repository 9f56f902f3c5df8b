//! Counts what is missing, and waits where too much is.

use std::{sync::Arc, time::Duration};

use bindery_api::v1alpha2::APIServiceNamespace;
use bindery_runtime::queue::Lane;
use tokio::time::{Instant, sleep};

use super::Shared;
use crate::sync::{Deletions, Kind, deletions::Tally, flavour::Flavour, places};

/// Missing sources are counted at most this often.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// And, while deletions are held back, at least this often.
const RECOUNT_INTERVAL: Duration = Duration::from_secs(2);

impl<F: Flavour> Shared<F> {
    /// Whether copies may go whose sources are missing. Counted anew at most every so often, for many may be missing.
    pub(super) fn may_delete(&self) -> bool {
        let mut counted = self.counted.lock();
        if let Some((at, allowed)) = *counted
            && at.elapsed() < COUNT_INTERVAL
        {
            return allowed;
        }
        let allowed = self.count_missing();
        *counted = Some((Instant::now(), allowed));
        allowed
    }

    pub(in crate::sync) fn count_missing(&self) -> bool {
        let tally = self.index.lock().tally();
        self.count(Kind::Objects, tally)
    }

    /// Tells all who may hold deletions back; answers whether none does.
    fn count(&self, kind: Kind, tally: Tally) -> bool {
        let guards = self.flavour.guards();
        let counted: Vec<_> = guards.iter().map(|guard| guard.count(self.id, kind, tally)).collect();
        counted.into_iter().all(|allowed| allowed)
    }

    /// Whether the mapping of a consumer namespace may go that is missing.
    pub(in crate::sync) fn may_give_back(&self) -> bool {
        let ended = self.ended_namespaces.lock().clone();
        let exports = self.flavour.exports();
        let requests = self
            .around
            .namespaces
            .list(|request| exports.iter().any(|export| places::is_for(request, export)));
        let is_missing = |request: &&Arc<APIServiceNamespace>| {
            let name = request.metadata.name.as_deref().unwrap_or_default();
            !ended.contains(name) && self.around.consumer_namespaces.get("", name).is_none()
        };
        let tally = Tally {
            missing: requests.iter().filter(is_missing).count(),
            known: requests.len(),
        };
        self.count(Kind::Namespaces, tally)
    }

    /// Forgets what was counted: much may have changed.
    pub(in crate::sync) fn recount(&self) {
        *self.counted.lock() = None;
    }

    /// Goes on with what was held back, as soon as that is allowed; counts on until then.
    pub(super) async fn thaw(self: Arc<Self>, guard: Arc<Deletions>) {
        let mut frozen = guard.frozen();
        while frozen.wait_for(Option::is_some).await.is_ok() {
            tracing::warn!(resource = %self.frame.resource, "deletions are held back");
            loop {
                if frozen.borrow_and_update().is_none() {
                    break;
                }
                tokio::select! {
                    _ = frozen.changed() => {}
                    () = sleep(RECOUNT_INTERVAL) => {
                        self.count_missing();
                        self.may_give_back();
                    }
                }
            }
            self.recount();
            self.enqueue_all(Lane::Backlog);
            for request in self.around.namespaces.list(|_| true) {
                if let Some(name) = &request.metadata.name {
                    self.place_queue.add(name.as_str().into(), Lane::Backlog);
                }
            }
        }
    }
}
