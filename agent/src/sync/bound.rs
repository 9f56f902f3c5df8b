//! The engine of a bound resource.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bindery_api::{
    adoption::Adoption,
    v1alpha2::{GroupResource, InformerScope},
};
use bindery_runtime::{cache::ObjectKey, queue::Lane, watch::Event};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::sync::watch as channel;
use tokio_util::task::AbortOnDropHandle;

use super::{
    Deletions, Placement, Progress, Sides, Surroundings, Target,
    engine::{Frame, Running},
    flavour::{Flavour, Operation, Steps},
    index::{Cast, Index, Learned, Place},
    object::{Object, Version},
    pair::Pair,
    plan::{self, Mode, Op, Plan},
    report::{Issue, Issues},
    write::{self, Writer},
};
use crate::claims::{References, references::Feed, selection::is_protected};

/// Keeps one resource in sync until it is dropped.
#[derive(Debug)]
pub struct Engine {
    pub(super) running: Running<Bound>,
    _thaw: AbortOnDropHandle<()>,
}

/// How bound objects are synced.
#[derive(Debug)]
pub(crate) struct Bound {
    export: OwnerReference,
    since: Option<Timestamp>,
    last_wins: bool,
    status_subresource: bool,
    adoption: Adoption,
    home: Arc<str>,
    deletions: Arc<Deletions>,
    references: Feed,
    draining: AtomicBool,
    relink: AtomicBool,
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
            home: target.home,
            status_subresource: target.resource.status_subresource,
            references: references.feed(resource, Arc::clone(&target.resource.version)),
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
        if !shared.flavour.draining.swap(true, Ordering::Relaxed) {
            shared.enqueue_all(Lane::Backlog);
        }
    }

    /// Whether copies of objects that are no more go to those that have their names now.
    pub fn relink(&self, relink: bool) {
        let shared = &self.running.shared;
        if shared.flavour.relink.swap(relink, Ordering::Relaxed) != relink && relink {
            shared.enqueue_all(Lane::Backlog);
        }
    }

    /// Stops or resumes all writes. What is under way is finished.
    pub fn pause(&self, paused: bool) {
        self.running.shared.pause(paused);
    }
}

// === impl Bound ===

impl Bound {
    fn mode(&self, key: &ObjectKey, closing: bool) -> Mode {
        let adoption = if is_protected(&key.namespace, &self.home) {
            Adoption::Off
        } else {
            self.adoption
        };
        Mode {
            closing,
            draining: self.draining.load(Ordering::Relaxed),
            status_subresource: self.status_subresource,
            last_wins: self.last_wins,
            relink: self.relink.load(Ordering::Relaxed),
            adoption,
            since: self.since,
        }
    }
}

impl Flavour for Bound {
    type Pair = Pair;
    type Op = Op;
    type Learned = Learned;
    type Progress = Progress;

    const HAS_PROVIDERS_SOURCES: bool = false;
    const SHARES_WATCHES: bool = false;

    fn plan(&self, key: &ObjectKey, pair: &mut Pair, place: &Place) -> Steps<Op> {
        pair.compare();
        let plan = plan::plan(pair, &place.namespace, self.mode(key, place.closing));
        // What our own write has to be compared with is still to come.
        if plan.ops.is_empty() && !pair.is_unseen() {
            pair.forget_content();
        }
        steps(plan)
    }

    fn unplaced(&self, key: &ObjectKey, pair: &Pair, has_place: bool) -> Option<Steps<Op>> {
        // A copy may be in a place that is still to be listed.
        let plan = plan::unplaced(pair, self.mode(key, false)).filter(|_| !has_place)?;
        Some(steps(plan))
    }

    async fn apply(&self, writer: &Writer, target: write::Target<'_>, op: &Op) -> Result<Option<Learned>, kube::Error> {
        writer.apply(target, op).await
    }

    fn written(learned: &Learned) -> Option<Version> {
        match learned {
            Learned::Held { version, .. }
            | Learned::Written { version, .. }
            | Learned::StatusWritten { version, .. } => Some(*version),
            _ => None,
        }
    }

    fn learn(&self, index: &mut Index<Pair>, key: &ObjectKey, learned: Learned, cast: &Cast) {
        index.learn(key, learned, cast);
    }

    fn exports(&self) -> Vec<OwnerReference> {
        vec![self.export.clone()]
    }

    fn guards(&self) -> Vec<Arc<Deletions>> {
        vec![Arc::clone(&self.deletions)]
    }

    fn hear(&self, event: &Event<Object>) {
        match event {
            Event::Reset => self.references.listing(),
            Event::Listed(object) | Event::Applied(object) => self.references.seen(object),
            Event::Unreadable(named) => {
                let key = ObjectKey::new(Arc::clone(&named.namespace), Arc::clone(&named.name));
                self.references.unreadable(key);
            }
            Event::Complete(_) => self.references.listed(),
            Event::Deleted(object) => {
                let meta = &object.meta;
                let key = ObjectKey::new(Arc::clone(&meta.namespace), Arc::clone(&meta.name));
                self.references.gone(&key);
            }
            Event::Rewound | Event::Following | Event::Failed(_) => {}
        }
    }

    fn rounds(&self) -> Option<channel::Receiver<u64>> {
        self.references.rounds()
    }

    fn observe(&self, common: Progress, _: bool, index: &Index<Pair>, _: &Issues) -> Progress {
        let draining = self.draining.load(Ordering::Relaxed);
        let is_known = common.consumer_synced && common.provider_synced;
        Progress {
            remaining: (draining && is_known).then(|| index.remaining()),
            ..common
        }
    }
}

fn steps(plan: Plan) -> Steps<Op> {
    Steps {
        issue: plan.blocked.as_ref().map(Issue::of_blocked),
        ops: plan.ops,
    }
}

// === impl Op ===

impl Operation for Op {
    fn name(&self) -> &'static str {
        self.name()
    }

    fn is_on_consumer(&self) -> bool {
        self.on_consumer()
    }

    fn is_guarded(&self) -> bool {
        matches!(self, Self::DeleteOrphan { .. })
    }

    fn read(on_consumer: bool) -> Self {
        if on_consumer {
            Self::ReadConsumer
        } else {
            Self::ReadProvider
        }
    }
}
