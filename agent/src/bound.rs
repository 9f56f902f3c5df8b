//! Keeps the objects of one bound resource in sync: spec up, status down.
//!
//! One engine serves one resource of one binding. Its parts, in the way of one change:
//!
//! 1. `engine` runs a watch on each side and puts what they show into the `index`, which holds a `pair` for each object:
//!    what is known of it on both clusters.
//! 2. Each change queues the object's key; a worker takes it and asks `plan`, a pure function, what to do.
//! 3. `write` sends one request per operation, and `learn` notes the outcome in the index for the next plan.

mod crd_check;
pub(crate) mod learn;
pub(crate) mod pair;
pub(crate) mod plan;
mod retention;
pub(crate) mod strategy;
pub(crate) mod write;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bindery_api::{
    adoption::Adoption,
    orphans::{OrphanAction, OrphanSet},
    retention::RetentionAction,
    v1alpha2::{GroupResource, InformerScope, Retention},
};
use bindery_runtime::queue::Priority;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::Mutex;
use tokio::sync::watch as channel;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    connection::Sides,
    engine::{Deletions, Frame, Orders, Progress, Running, Surroundings},
    index::{Index, Known as _},
    model::{BoundResource, Placement},
    references::References,
};
use crd_check::CrdCheck;
use retention::RetentionOrders;
use strategy::Bound;

/// The engine of one bound resource. It keeps the resource in sync until it is dropped.
#[derive(Debug)]
pub struct Engine {
    pub(crate) running: Running<Bound>,
    _resume: AbortOnDropHandle<()>,
}

/// What an engine syncs, and for which binding.
#[derive(Clone, Debug)]
pub struct Target {
    /// Name of the APIServiceBinding.
    pub binding: Arc<str>,
    /// The contract namespace on the provider.
    pub contract: Arc<str>,
    /// The APIServiceExport, as an owner reference for the APIServiceNamespaces that are requested for it.
    pub export: OwnerReference,
    /// When the export was created. Copies that were released before may be used again.
    pub since: Option<Timestamp>,
    /// When the CRD was created on the consumer. Copies that were released before may become those of new objects.
    pub installed: Option<Timestamp>,
    /// The bound resource, in the version to sync.
    pub resource: BoundResource,
    /// The rule for the namespace and the name of a copy on the provider.
    pub placement: Placement,
    /// Whether the provider is watched by namespace or cluster-wide.
    pub informer_scope: InformerScope,
    /// Several consumers may write the same provider object, and the last write wins.
    pub last_wins: bool,
    /// How the copies of deleted objects are retained; `None` if they are deleted.
    pub retention: Option<Retention>,
    /// Which objects of the provider are created on the consumer.
    pub adoption: Adoption,
    /// The konnector's own namespace, in which adoption creates nothing.
    pub own_namespace: Arc<str>,
}

/// Why the retention of a copy cannot be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndRetentionError {
    /// The provider retains no copy of an object of this name.
    #[error("the provider retains no copy of it; it may have ended, or its namespace is not mapped yet")]
    NotRetained,
    /// An object would be created whose name another one has.
    #[error("another object has its name; delete that one first")]
    NameTaken,
}

// === impl Engine ===

impl Engine {
    /// Starts to sync. `deletions` is the deletion guard of the binding; `references` indexes what the objects refer to.
    pub fn start(
        target: Target,
        sides: Sides,
        around: Surroundings,
        deletions: Arc<Deletions>,
        references: &References,
    ) -> Self {
        let resource = GroupResource::new(&*target.resource.group, &*target.resource.plural);
        let suspend = target
            .retention
            .as_ref()
            .and_then(|retention| retention.suspend.clone());
        let suspend = suspend.map(Arc::new);
        let bound = Bound {
            export: target.export,
            since: target.since,
            installed: target.installed,
            last_wins: target.last_wins,
            adoption: target.adoption,
            own_namespace: target.own_namespace,
            status_subresource: target.resource.status_subresource,
            references: references.indexer(resource, Arc::clone(&target.resource.version)),
            deletions: Arc::clone(&deletions),
            draining: AtomicBool::new(false),
            relink: AtomicBool::new(false),
            keeps: AtomicBool::new(false),
            orders: Orders::default(),
            retains: target.retention.is_some(),
            suspends: suspend.is_some(),
            retention_orders: RetentionOrders::default(),
            has_retained: AtomicBool::new(false),
            crd: CrdCheck::default(),
            listed: Mutex::default(),
            consumer_namespaces: around.consumer_namespaces.clone(),
            holding: around.holding.clone(),
        };
        let index = Index::new(Arc::clone(&target.contract), target.placement.clone());
        // If one namespace holds all copies, one watch of that is enough, and the konnector has no right to watch more.
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
            suspend,
        };
        let running = Running::start(frame, sides, around, bound, index);
        deletions.join(running.shared.id());
        Self {
            _resume: running.resume_by(deletions),
            running,
        }
    }

    /// The progress of the engine, to read or to wait for.
    pub fn progress(&self) -> channel::Receiver<Progress> {
        self.running.shared.progress()
    }

    /// Deletes, from now on, every object of the consumer, and with it its copy, or releases the copy where the provider keeps it.
    pub fn drain(&self) {
        let shared = &self.running.shared;
        if !shared.strategy.draining.swap(true, Ordering::Relaxed) {
            shared.enqueue_all(Priority::Backlog);
        }
    }

    /// Sets whether a copy whose source is gone becomes the copy of the object that has its name now.
    pub fn relink(&self, relink: bool) {
        let shared = &self.running.shared;
        if shared.strategy.relink.swap(relink, Ordering::Relaxed) != relink && relink {
            shared.enqueue_all(Priority::Backlog);
        }
    }

    /// Sets whether the provider's objects are kept when the binding or the CRD ends, so that deletions are no evidence then.
    pub fn keep(&self, keeps: bool) {
        self.running.shared.strategy.keeps.store(keeps, Ordering::Relaxed);
    }

    /// Ends these orphans; nothing if the engine has others now.
    pub fn end_orphans(&self, action: OrphanAction, orphans: OrphanSet) {
        self.running.shared.end_orphans(action, orphans);
    }

    /// Ends the retention of the copy of a deleted object. Fails if there is no such copy, or if another object has the name.
    pub fn end_retention(&self, action: RetentionAction, namespace: &str, name: &str) -> Result<(), EndRetentionError> {
        let shared = &self.running.shared;
        let index = shared.index.lock();
        let key = index.key(namespace, name).ok_or(EndRetentionError::NotRetained)?;
        let pair = index.pair(&key).filter(|pair| pair.retention().is_some());
        let pair = pair.ok_or(EndRetentionError::NotRetained)?;
        if action == RetentionAction::Restore && pair.consumer.is_some() {
            return Err(EndRetentionError::NameTaken);
        }
        let copy = pair.provider.as_ref().map(|provider| provider.uid.clone());
        drop(index);
        shared
            .strategy
            .retention_orders
            .set(copy.ok_or(EndRetentionError::NotRetained)?, action);
        shared.enqueue([key], Priority::Live);
        Ok(())
    }

    /// Looks at all objects again.
    pub fn look_again(&self) {
        self.running.shared.enqueue_all(Priority::Backlog);
    }

    /// Stops or resumes all writes. Work that is under way is finished.
    pub fn pause(&self, paused: bool) {
        self.running.shared.pause(paused);
    }
}
