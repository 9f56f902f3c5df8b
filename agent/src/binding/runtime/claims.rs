//! The claims that run for one binding: what its session was told, and the cleanup without the provider.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bindery_api::v1alpha2::GroupResource;
use tokio::sync::watch;

use super::{BindingRuntime, is_done};
use crate::{
    attempt::Link,
    binding::observed::{ClaimSpec, ObservedClaims},
    claims::{Progress, Wanted},
    drain::Drain,
    session::Session,
};

/// The claims of a binding, registered with its session. Dropping it removes them there.
#[derive(Debug)]
pub(super) struct RunningClaims {
    session: Arc<Session>,
    binding: String,
    spec: ClaimSpec,
    progress: watch::Receiver<Progress>,
    _link: Link,
}

/// A cleanup of copies on the consumer, without the provider. Dropping it stops the cleanup.
#[derive(Debug)]
pub(super) struct RunningCleanup {
    resources: BTreeSet<GroupResource>,
    cleanup: Drain,
    _link: Link,
}

impl Drop for RunningClaims {
    fn drop(&mut self) {
        self.session.claims().remove(&self.binding);
    }
}

impl BindingRuntime {
    /// Registers the claims of the binding with its session, or changes them there.
    pub(in crate::binding) fn set_claims(&mut self, binding: &str, spec: ClaimSpec) {
        if let Some(running) = &mut self.claims {
            running.spec = spec;
        } else if let Some(session) = self.connection.session().cloned() {
            let progress = session.claims().progress(binding);
            self.claims = Some(RunningClaims {
                _link: self.connection.link_milestones(progress.clone(), milestones),
                session,
                binding: binding.to_owned(),
                spec,
                progress,
            });
        }
        // The guard must exist before anything may be deleted.
        self.deletions();
        self.push_claims();
    }

    /// Passes the claims to the session, with the present pause and consent. They are paused too while the provider cannot be trusted.
    pub(super) fn push_claims(&self) {
        let (Some(running), Some((guard, _))) = (&self.claims, &self.deletions) else {
            return;
        };
        let wanted = Wanted {
            paused: self.paused || self.deletions_withheld,
            relink: self.relink,
            ..running.spec.wanted.clone()
        };
        running.session.claims().set(&running.binding, wanted, guard);
    }

    /// Removes the claims of the binding from its session.
    pub(in crate::binding) fn remove_claims(&mut self) {
        self.claims = None;
    }

    /// Keeps a cleanup of copies of claimed objects.
    pub(in crate::binding) fn run_cleanup(&mut self, resources: BTreeSet<GroupResource>, cleanup: Drain) {
        self.cleanup = Some(RunningCleanup {
            _link: self.connection.link_throttled(cleanup.progress(), is_done),
            resources,
            cleanup,
        });
    }

    /// Stops the cleanup.
    pub(in crate::binding) fn stop_cleanup(&mut self) {
        self.cleanup = None;
    }

    /// The running claims and cleanup.
    pub(in crate::binding) fn observed_claims(&self) -> ObservedClaims {
        let running = self.claims.as_ref();
        let progress = running.map(|running| running.progress.borrow().clone());
        let cleanup = self.cleanup.as_ref();
        ObservedClaims {
            running: running.map(|running| running.spec.clone()),
            progress: progress.unwrap_or_default(),
            cleanup: cleanup.map(|running| (running.resources.clone(), running.cleanup.progress().borrow().clone())),
            elsewhere: BTreeMap::new(),
        }
    }
}

/// The facts of each claim's progress whose change is reported at once: synced, failing, withdrawn.
fn milestones(progress: &Progress) -> Vec<(bool, bool, bool)> {
    let claims = progress.claims.iter();
    claims
        .map(|(resource, claim)| {
            let is_withdrawn = progress.withdrawn.contains(resource) && claim.remaining == Some(0);
            (claim.synced, claim.problem.is_some(), is_withdrawn)
        })
        .collect()
}
