//! The strategy of engines that sync bound resources.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bindery_api::{
    adoption::Adoption, annotations, claims::is_protected_namespace, orphans::OrphanAction, retention::RetentionAction,
};
use bindery_runtime::{
    cache::{Cache, ObjectKey},
    watch::Event,
};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::OwnerReference};
use parking_lot::Mutex;
use tokio::{sync::watch as channel, time::Instant};

use crate::{
    bound::{
        crd_check::CrdCheck,
        learn::Learned,
        pair::{Owner, Pair},
        plan::{self, Blocked, Mode, Op, Plan},
        retention::RetentionOrders,
    },
    connection::{Target, Writer},
    engine::{
        Deletions, Orders, Progress,
        report::{Cause, Issue},
        strategy::{Operation, Steps, SyncStrategy},
    },
    holder::Holding,
    index::{Index, Known as _, OrphanKind, Place, PlannedUids},
    model::object::{Object, Version},
    references::ReferenceIndexer,
};

/// The strategy for one bound resource. Its settings are those of `bound::Target`.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Bound {
    pub(super) export: OwnerReference,
    pub(super) since: Option<Timestamp>,
    pub(super) installed: Option<Timestamp>,
    pub(super) last_wins: bool,
    pub(super) status_subresource: bool,
    pub(super) adoption: Adoption,
    pub(super) own_namespace: Arc<str>,
    pub(super) deletions: Arc<Deletions>,
    pub(super) references: ReferenceIndexer,
    pub(super) draining: AtomicBool,
    pub(super) relink: AtomicBool,
    pub(super) keeps: AtomicBool,
    pub(super) orders: Orders,
    pub(super) retains: bool,
    pub(super) suspends: bool,
    pub(super) retention_orders: RetentionOrders,
    /// Whether a copy is retained, or was while the engine runs.
    pub(super) has_retained: AtomicBool,
    pub(super) crd: CrdCheck,
    /// When the last complete list of the consumer's objects was seen.
    pub(super) listed: Mutex<Option<Instant>>,
    pub(super) consumer_namespaces: Cache<Namespace>,
    pub(super) holding: Holding,
}

// === impl Bound ===

impl Bound {
    /// Whether the deletion of a source may have been seen before a restore of the consumer that the watch of the sources does not show yet:
    /// the watch of the consumer's namespaces is interrupted, or they were listed anew since.
    fn may_be_outlived(&self) -> bool {
        let namespaces = self.consumer_namespaces.health().borrow().listed;
        self.consumer_namespaces.is_interrupted() || *self.listed.lock() < namespaces
    }

    fn mode(&self, key: &ObjectKey, pair: &Pair, place: Option<&Place>) -> Mode {
        let adoption = if is_protected_namespace(&key.namespace, &self.own_namespace) {
            Adoption::Off
        } else {
            self.adoption
        };
        Mode {
            closing: place.is_some_and(|place| place.closing),
            assumed: place.is_some_and(|place| place.assumed),
            draining: self.draining.load(Ordering::Relaxed),
            status_subresource: self.status_subresource,
            last_wins: self.last_wins,
            relink: self.relink.load(Ordering::Relaxed),
            keeps: self.keeps.load(Ordering::Relaxed),
            older_source: self.is_older(pair),
            order: self.order(pair),
            retains: self.retains,
            suspends: self.suspends,
            ends_retention: self.ends_retention(pair),
            adoption,
            since: self.since,
            installed: self.installed,
        }
    }
}

impl Bound {
    /// Whether the consumer's object is in an older state than its copy was written from, by this holder. Where contracts share copies,
    /// nothing notes that.
    fn is_older(&self, pair: &Pair) -> bool {
        let Some((consumer, provider)) = pair.consumer.as_ref().zip(pair.provider.as_ref()) else {
            return false;
        };
        // A copy that was released may become that of its source again.
        let source = match &provider.owner {
            Owner::Ours { source_uid } => Some(source_uid),
            Owner::Released(copy) => copy.source_uid.as_ref(),
            _ => None,
        };
        let is_its_own = source == Some(&consumer.uid);
        // Most copies were written from the present state, which costs no look at the holder.
        is_its_own
            && provider.generation.is_some()
            && !self.last_wins
            && provider.is_newer_than(consumer.generation, &self.holding.instance().unwrap_or_default())
    }

    /// Looks at who wrote a copy, before anything is written to it.
    fn meet_writer(&self, pair: &Pair) {
        let noted = pair
            .provider
            .as_ref()
            .and_then(|provider| provider.generation.as_deref());
        let writer = noted
            .filter(|_| !self.last_wins)
            .and_then(annotations::generation_writer);
        if let Some(writer) = writer {
            self.holding.meet(writer);
        }
    }

    /// What the user ordered for the copy of a pair, if it is an orphan still.
    fn order(&self, pair: &Pair) -> Option<OrphanAction> {
        let copy = pair.provider.as_ref().map(|provider| &provider.uid);
        let orphan = pair.orphan();
        let consented = orphan.is_some_and(|orphan| orphan.kind == OrphanKind::Missing) && self.deletions.consents();
        let ordered = self.orders.of(copy, orphan.is_some());
        ordered.or_else(|| consented.then_some(OrphanAction::Delete))
    }
}

impl Bound {
    /// How the user ends the retention of the copy of a pair.
    fn ends_retention(&self, pair: &Pair) -> Option<RetentionAction> {
        let copy = pair.provider.as_ref().map(|provider| &provider.uid);
        self.retention_orders.of(copy, pair.retention().is_some())
    }
}

impl SyncStrategy for Bound {
    type Pair = Pair;
    type Op = Op;
    type Learned = Learned;
    type Progress = Progress;

    const SHARES_WATCHES: bool = false;
    const ASSUMES_PLACES: bool = true;

    fn plan(&self, key: &ObjectKey, pair: &Pair, place: &Place) -> Steps<Op> {
        self.meet_writer(pair);
        steps(plan::plan(pair, &place.namespace, self.mode(key, pair, Some(place))))
    }

    fn is_at_rest(&self, key: &ObjectKey, pair: &Pair, place: &Place) -> bool {
        plan::is_at_rest(pair, &place.namespace, self.mode(key, pair, Some(place)))
    }

    fn unplaced(&self, key: &ObjectKey, pair: &Pair, has_place: bool) -> Option<Steps<Op>> {
        // A provider namespace that is not listed yet may hold a copy.
        let plan = plan::unplaced(pair, self.mode(key, pair, None)).filter(|_| !has_place)?;
        Some(steps(plan))
    }

    fn sent(&self, index: &mut Index<Pair>, key: &ObjectKey, op: &Op) {
        if matches!(op, Op::Create { .. }) {
            // Until a read or an answer says more, there may be a copy that nobody has seen.
            index.note(key, |pair| pair.provider_gone = false);
        }
    }

    async fn apply(&self, writer: &Writer, target: Target<'_>, op: &Op) -> Result<Option<Learned>, kube::Error> {
        if let Op::DeleteProvider {
            uid,
            version: Some(version),
        }
        | Op::Retain {
            uid,
            version,
            keeps: true,
            ..
        } = op
            && Writer::in_time(self.crd.is_ending(target.key, writer.is_crd_ending())).await?
        {
            let release = Op::ReleaseProvider {
                uid: Arc::clone(uid),
                version: *version,
            };
            return writer.apply(target, &release).await;
        }
        if op.relies_on_an_end()
            && self.may_be_outlived()
            && let Some(revived) = Writer::in_time(writer.living_source(target)).await?
        {
            return Ok(Some(Learned::Consumer(Some(revived))));
        }
        let learned = writer.apply(target, op).await?;
        if matches!(op, Op::Retain { .. }) && learned.is_some() {
            // Before the source goes: the objects that it refers to stay with its copy.
            self.has_retained.store(true, Ordering::Relaxed);
            self.references.retain(target.key, None);
        }
        Ok(learned)
    }

    fn written(learned: &Learned) -> Option<Version> {
        match learned {
            Learned::Held { version, .. }
            | Learned::ProviderReleased { version, .. }
            | Learned::Remarked { version, .. }
            | Learned::Restoring { version, .. }
            | Learned::Written { version, .. }
            | Learned::StatusWritten { version, .. } => Some(*version),
            _ => None,
        }
    }

    fn learn(&self, index: &mut Index<Pair>, key: &ObjectKey, learned: Learned, planned: &PlannedUids) {
        index.learn(key, learned, planned);
    }

    fn exports(&self) -> Vec<OwnerReference> {
        vec![self.export.clone()]
    }

    fn counts_for(&self) -> Option<&Arc<Deletions>> {
        Some(&self.deletions)
    }

    fn orders(&self) -> &Orders {
        &self.orders
    }

    fn guards(&self) -> Vec<Arc<Deletions>> {
        vec![Arc::clone(&self.deletions)]
    }

    fn consumer_event(&self, event: &Event<Object>) {
        self.crd.note(event);
        match event {
            Event::Reset => self.references.listing(),
            Event::Listed(object) | Event::Applied(object) => self.references.seen(object),
            Event::Unreadable(named) => {
                let key = ObjectKey::new(Arc::clone(&named.namespace), Arc::clone(&named.name));
                self.references.unreadable(key);
            }
            Event::Complete(_) => {
                *self.listed.lock() = Some(Instant::now());
                self.references.listed();
            }
            Event::Deleted(object) => self.references.gone(&object.key()),
            Event::Rewound | Event::Following | Event::Ended | Event::Failed(_) => {}
        }
    }

    fn copy_shown(&self, key: &ObjectKey, copy: &Object) {
        let is_marked = copy.meta.annotations.get(annotations::RETAINED).is_some();
        if is_marked {
            self.has_retained.store(true, Ordering::Relaxed);
            self.references.retain(key, Some(copy));
        } else if self.has_retained.load(Ordering::Relaxed) {
            self.references.unretain(key, true);
        }
    }

    fn copy_gone(&self, key: &ObjectKey, has_source: bool) {
        if self.has_retained.load(Ordering::Relaxed) {
            self.references.unretain(key, has_source);
        }
    }

    fn relists(&self) -> Option<channel::Receiver<u64>> {
        self.references.relists()
    }

    fn observe(&self, common: Progress, _: bool, index: &Index<Pair>) -> Progress {
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
        issue: plan.blocked.as_ref().map(|blocked| Issue {
            cause: match blocked {
                Blocked::Orphan => Cause::Orphan,
                _ => Cause::Other,
            },
            ..Issue::blocked(blocked.reason(), blocked)
        }),
        ops: plan.ops,
    }
}

// === impl Op ===

impl Operation for Op {
    fn name(&self) -> &'static str {
        self.name()
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::ReadConsumer | Self::ReadProvider => "get",
            Self::Adopt { .. } => "create",
            Self::DeleteProvider { .. }
            | Self::Discard { .. }
            | Self::DeleteOrphan { .. }
            | Self::DeleteConsumer { .. } => "delete",
            _ => "patch",
        }
    }

    fn writes_copy(&self) -> bool {
        matches!(self, Self::Create { .. } | Self::Update { .. })
    }

    fn continues(&self) -> Option<&str> {
        match self {
            Self::Status { source: Some(copy), .. } => copy.meta.annotations.get(annotations::TRACEPARENT),
            _ => None,
        }
    }

    fn is_on_consumer(&self) -> bool {
        self.on_consumer()
    }

    fn is_guarded(&self) -> bool {
        false
    }

    fn is_deletion(&self) -> bool {
        matches!(
            self,
            Self::DeleteProvider { .. }
                | Self::Discard { .. }
                | Self::DeleteOrphan { .. }
                | Self::Retain { .. }
                | Self::ReleaseProvider { .. }
                | Self::DeleteConsumer { .. }
                | Self::Release { .. }
        )
    }

    fn relies_on_an_end(&self) -> bool {
        matches!(self, Self::DeleteProvider { .. } | Self::Retain { .. })
    }

    fn carries_change(&self) -> bool {
        matches!(
            self,
            Self::Adopt { .. }
                | Self::Create { .. }
                | Self::Update { .. }
                | Self::Status { .. }
                | Self::DeleteProvider { .. }
                | Self::Retain { .. }
                | Self::DeleteConsumer { .. }
        )
    }

    fn is_independent(&self) -> bool {
        matches!(self, Self::Status { .. })
    }

    fn read(on_consumer: bool) -> Self {
        if on_consumer {
            Self::ReadConsumer
        } else {
            Self::ReadProvider
        }
    }
}
