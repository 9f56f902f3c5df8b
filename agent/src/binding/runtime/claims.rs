//! What runs for the claims of a binding: what its session was told, and what is cleaned up without the provider.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use bindery_api::v1alpha2::GroupResource;
use bindery_runtime::queue::Queue;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::Runtime;
use crate::{
    attempt::Link,
    binding::{
        Key,
        claims::{ClaimsSeen, Spec},
    },
    claims::{Cleanup, Progress, Wanted},
    lull::PROGRESS_PAUSE,
    release::Released,
    session::Session,
};

/// That a session sees to the claims of a binding. It ends with this.
pub(super) struct Claiming {
    session: Arc<Session>,
    binding: String,
    spec: Spec,
    progress: watch::Receiver<Progress>,
    _link: Link,
}

/// That copies of these resources are deleted without the provider. It ends with this.
#[derive(Debug)]
pub(super) struct CleaningUp {
    resources: BTreeSet<GroupResource>,
    cleanup: Cleanup,
    _link: Link,
}

impl Drop for Claiming {
    fn drop(&mut self) {
        self.session.claims().remove(&self.binding);
    }
}

impl fmt::Debug for Claiming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}

impl Runtime {
    /// Has the session see to the claims in this way.
    pub(in crate::binding) fn claim(&mut self, binding: &str, spec: Spec, queue: &Queue<Key>, key: &Key) {
        if let Some(claiming) = &mut self.claiming {
            claiming.spec = spec;
        } else if let Some(session) = self.session().cloned() {
            let progress = session.claims().progress(binding);
            let before = Mutex::new(Vec::new());
            let urgent = move |progress: &Progress| {
                let state = milestones(progress);
                std::mem::replace(&mut *before.lock(), state.clone()) != state
            };
            self.claiming = Some(Claiming {
                _link: Link::throttled(progress.clone(), queue.clone(), key.clone(), PROGRESS_PAUSE, urgent),
                session,
                binding: binding.to_owned(),
                spec,
                progress,
            });
        }
        // The guard is there before anything may be deleted.
        self.deletions(queue, key);
        self.tell_claims();
    }

    /// Tells the session how things are now.
    pub(super) fn tell_claims(&self) {
        let (Some(claiming), Some((guard, _))) = (&self.claiming, &self.deletions) else {
            return;
        };
        let wanted = Wanted {
            paused: self.paused,
            relink: self.relink,
            ..claiming.spec.wanted.clone()
        };
        claiming.session.claims().set(&claiming.binding, wanted, guard);
    }

    /// The session has nothing to do for the claims any more.
    pub(in crate::binding) fn unclaim(&mut self) {
        self.claiming = None;
    }

    /// Copies of claimed objects are deleted without the provider.
    pub(in crate::binding) fn clean_up(
        &mut self,
        resources: BTreeSet<GroupResource>,
        cleanup: Cleanup,
        queue: &Queue<Key>,
        key: &Key,
    ) {
        let urgent = |released: &Released| released.remaining == Some(0);
        let link = Link::throttled(cleanup.progress(), queue.clone(), key.clone(), PROGRESS_PAUSE, urgent);
        self.cleanup = Some(CleaningUp {
            resources,
            cleanup,
            _link: link,
        });
    }

    /// Ends that.
    pub(in crate::binding) fn stop_cleanup(&mut self) {
        self.cleanup = None;
    }

    /// The claims, as decisions see them.
    pub(in crate::binding) fn claims(&self) -> ClaimsSeen {
        let claiming = self.claiming.as_ref();
        let progress = claiming.map(|claiming| claiming.progress.borrow().clone());
        let cleanup = self.cleanup.as_ref();
        ClaimsSeen {
            running: claiming.map(|claiming| claiming.spec.clone()),
            progress: progress.unwrap_or_default(),
            cleanup: cleanup.map(|running| (running.resources.clone(), running.cleanup.progress().borrow().clone())),
            elsewhere: BTreeMap::new(),
        }
    }
}

/// What of the progress matters at once: of each claim, whether it is known, fails, or has nothing left to withdraw.
fn milestones(progress: &Progress) -> Vec<(bool, bool, bool)> {
    let claims = progress.claims.iter();
    claims
        .map(|(resource, claim)| {
            let is_gone = progress.withdrawn.contains(resource) && claim.remaining == Some(0);
            (claim.synced, claim.problem.is_some(), is_gone)
        })
        .collect()
}
