//! Keeps the objects of one bound resource in sync: spec up, status down.
//!
//! One engine serves one resource of one binding. Its parts, in the way of one change:
//!
//! 1. `engine` runs a watch on each side and puts what they show into the `index`, which holds a `pair` of what is
//!    known of each object here and there.
//! 2. Each change queues the object's key; a worker takes it and asks `plan`, a pure function, what is to be done.
//! 3. `write` does it, one request an operation, and what it learns (`learn`) goes into the index for the next plan.

pub(crate) mod learn;
pub(crate) mod pair;
pub(crate) mod plan;
pub(crate) mod strategy;
pub(crate) mod write;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bindery_api::{
    adoption::Adoption,
    v1alpha2::{GroupResource, InformerScope},
};
use bindery_runtime::queue::Priority;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::sync::watch as channel;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    connection::Sides,
    engine::{Deletions, Frame, Progress, Running, Surroundings},
    index::Index,
    model::{BoundResource, Placement},
    references::References,
};
use strategy::Bound;

/// Keeps one resource in sync until it is dropped.
#[derive(Debug)]
pub struct Engine {
    pub(crate) running: Running<Bound>,
    _thaw: AbortOnDropHandle<()>,
}

/// What an engine syncs, and for whom.
#[derive(Clone, Debug)]
pub struct Target {
    /// Name of the APIServiceBinding.
    pub binding: Arc<str>,
    /// The contract namespace on the provider.
    pub contract: Arc<str>,
    /// The APIServiceExport, as a plain owner of the APIServiceNamespaces that are made for it.
    pub export: OwnerReference,
    /// When that was made: what was let go before may be in use again.
    pub since: Option<Timestamp>,
    /// The resource.
    pub resource: BoundResource,
    /// Where copies go.
    pub placement: Placement,
    /// Whether the provider is watched by namespace or as a whole.
    pub informer_scope: InformerScope,
    /// Several consumers share names, and each write replaces the one before it.
    pub last_wins: bool,
    /// Which objects of the provider are created on the consumer.
    pub adoption: Adoption,
    /// The konnector's own namespace, where nothing is created.
    pub own_namespace: Arc<str>,
}

// === impl Engine ===

impl Engine {
    /// Starts to sync. `deletions` holds deletions back, for all engines of the binding; `references` are told what the
    /// objects refer to.
    pub fn start(
        target: Target,
        sides: Sides,
        around: Surroundings,
        deletions: Arc<Deletions>,
        references: &References,
    ) -> Self {
        let resource = GroupResource::new(&*target.resource.group, &*target.resource.plural);
        let bound = Bound {
            export: target.export,
            since: target.since,
            last_wins: target.last_wins,
            adoption: target.adoption,
            own_namespace: target.own_namespace,
            status_subresource: target.resource.status_subresource,
            references: references.indexer(resource, Arc::clone(&target.resource.version)),
            deletions: Arc::clone(&deletions),
            draining: AtomicBool::new(false),
            relink: AtomicBool::new(false),
        };
        let index = Index::new(Arc::clone(&target.contract), target.placement.clone());
        // Copies that are all in one place need one watch of that, and nobody has a right to look beyond it.
        let informer_scope = match target.placement {
            Placement::Mapped | Placement::Shared => target.informer_scope,
            Placement::None | Placement::Prefixed | Placement::Contract | Placement::Beside(_) => {
                InformerScope::Namespaced
            }
        };
        let frame = Frame {
            holder: target.binding,
            contract: target.contract,
            resource: target.resource,
            placement: target.placement,
            informer_scope,
            last_wins: target.last_wins,
        };
        let running = Running::start(frame, sides, around, bound, index);
        Self {
            _thaw: running.thaw(deletions),
            running,
        }
    }

    /// How it is going, to read or to wait for.
    pub fn progress(&self) -> channel::Receiver<Progress> {
        self.running.shared.progress()
    }

    /// From now on deletes every object of the consumer, and with it its copy.
    pub fn drain(&self) {
        let shared = &self.running.shared;
        if !shared.strategy.draining.swap(true, Ordering::Relaxed) {
            shared.enqueue_all(Priority::Backlog);
        }
    }

    /// Whether copies of objects that are no more go to those that have their names now.
    pub fn relink(&self, relink: bool) {
        let shared = &self.running.shared;
        if shared.strategy.relink.swap(relink, Ordering::Relaxed) != relink && relink {
            shared.enqueue_all(Priority::Backlog);
        }
    }

    /// Stops or resumes all writes. What is under way is finished.
    pub fn pause(&self, paused: bool) {
        self.running.shared.pause(paused);
    }
}
