//! Runs one engine, the sync loop of one resource: its watches, its workers and its provider namespaces.

pub(crate) mod budget;
pub(crate) mod deletion_guard;
pub(crate) mod events;
pub(crate) mod metrics;
mod namespaces;
mod orders;
pub(crate) mod report;
mod resume;
pub(crate) mod strategy;
pub(crate) mod tally;
mod traces;
mod work;

pub use crate::index::{Orphans, RetainedCopies, RetentionTimes};
pub use budget::Budget;
pub use deletion_guard::Deletions;
use metrics::Meter;
pub use metrics::Metrics;
pub(crate) use orders::Orders;
use report::Issues;
pub use report::{Cause, Problem};
use strategy::SyncStrategy;
pub use tally::Tally;
use traces::Changes;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bindery_api::v1alpha2::{APIServiceNamespace, InformerScope};
use bindery_runtime::{
    cache::{Cache, ObjectKey, Subscription},
    events::Recorder,
    guard::{Guard, NameRule},
    queue::{Priority, Queue},
    watch::{self, Source},
};
use k8s_openapi::api::core::v1::Namespace;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch as channel},
    time::{Instant, sleep},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    connection::{Sides, Writer},
    holder::Holding,
    index::{ConsumerScope, Index},
    model::{BoundResource, Placement, object::Lean},
};

/// Tasks of one engine that request, use and give up provider namespaces, one consumer namespace each at a time.
const PLACE_WORKERS: usize = 4;
/// The shortest pause between two publications of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);
/// The pause is at least this many times as long as the publication took, which may count all objects.
const PROGRESS_PART: u32 = 20;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// What all engines of a session share.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The APIServiceNamespaces of the contract, each of which requests the provider namespace of a consumer namespace.
    pub namespaces: Cache<APIServiceNamespace>,
    /// Whether the konnector may not list them.
    pub unreadable_namespaces: channel::Receiver<bool>,
    /// All namespaces of the consumer cluster.
    pub consumer_namespaces: Cache<Namespace>,
    /// Publishes Kubernetes events about objects.
    pub recorder: Recorder,
    /// The metrics that the engines update.
    pub metrics: Arc<Metrics>,
    /// Limits how many objects all engines of one provider process at a time.
    pub budget: Budget,
    /// Counts the objects of all engines of the session.
    pub tally: Tally,
    /// Whether this konnector holds the contract, so that objects may be written.
    pub holding: Holding,
    /// Checks the names that the provider sends, and limits how much of it is held.
    pub guard: Guard,
}

/// The progress of one engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether a complete list of the consumer's objects was seen.
    pub consumer_synced: bool,
    /// Whether the copies were listed in every provider namespace in use.
    pub provider_synced: bool,
    /// The number of the consumer's objects.
    pub objects: usize,
    /// The number of objects that are queued for a worker.
    pub pending: usize,
    /// The number of objects whose last attempt failed, or that a conflict blocks.
    pub failing: usize,
    /// The copies whose source is missing although its deletion was not seen.
    pub orphans: Orphans,
    /// The copies that are retained after their sources were deleted.
    pub retained: RetainedCopies,
    /// The most important problem: a cluster that cannot be watched, or else the first failing object.
    pub problem: Option<Problem>,
    /// Why objects cannot be listed or watched, where that is a missing right. What was listed before stays known; changes are not seen.
    pub unwatched: Option<Problem>,
    /// While draining, once both clusters are listed: the number of objects that are left, each counted once with its copy.
    pub remaining: Option<usize>,
}

/// What an engine syncs, for bound and for claimed resources.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The name of the binding or, for a claimed resource, which several bindings may share, of the contract namespace.
    pub holder: Arc<str>,
    /// The contract namespace on the provider.
    pub contract: Arc<str>,
    pub resource: BoundResource,
    /// The rule for the namespace and the name of a copy on the provider.
    pub placement: Placement,
    /// Whether the provider is watched by namespace or cluster-wide.
    pub informer_scope: InformerScope,
    /// Several consumers may write the same provider object, and the last write wins.
    pub last_wins: bool,
    /// What is changed in a copy that is retained, as a merge patch.
    pub suspend: Option<Arc<serde_json::Value>>,
}

/// A running engine. It keeps one resource in sync until it is dropped.
pub(crate) struct Running<F: SyncStrategy> {
    pub(crate) shared: Arc<Shared<F>>,
    _subscriptions: [Subscription; 2],
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// The state that the tasks of an engine share.
pub(crate) struct Shared<F: SyncStrategy> {
    pub(crate) strategy: F,
    pub(crate) frame: Frame,
    pub(crate) sides: Sides,
    pub(super) writer: Writer,
    pub(crate) around: Surroundings,
    pub(super) meter: Meter,
    pub(super) changes: Changes,
    /// The number by which deletion guards know this engine; unique in this process.
    id: u64,
    pub(crate) index: Mutex<Index<F::Pair>>,
    pub(crate) issues: Mutex<Issues>,
    pub(crate) queue: Queue<ObjectKey>,
    pub(super) place_queue: Queue<Arc<str>>,
    /// Tasks that watch or list one provider namespace each, by consumer namespace.
    pub(super) pumps: Mutex<HashMap<Arc<str>, AbortOnDropHandle<()>>>,
    /// Whether all provider namespaces that were assigned before the start are in use.
    pub(super) places_known: channel::Sender<bool>,
    /// Whether a newly assigned provider namespace needs a list of its own, because no cluster-wide list will show it.
    pub(super) lists_places: AtomicBool,
    /// A deletion was held back. It is tried again when the deletion guards allow deletions.
    held_back: AtomicBool,
    pub(super) paused: channel::Sender<bool>,
    progress: channel::Sender<F::Progress>,
    pub(crate) changed: Notify,
}

// === impl Running ===

impl<F: SyncStrategy> Running<F> {
    /// Starts the tasks of the engine.
    pub(crate) fn start(
        frame: Frame,
        sides: Sides,
        around: Surroundings,
        strategy: F,
        mut index: Index<F::Pair>,
    ) -> Self {
        index.count_by(&around.guard);
        let writer = Writer {
            consumer: sides.consumer.write.clone(),
            provider: sides.provider.write.clone(),
            resource: Arc::new(frame.resource.clone()),
            contract: Arc::clone(&frame.contract),
            last_wins: frame.last_wins,
            holding: around.holding.clone(),
            suspend: frame.suspend.clone(),
        };
        let lists_places = F::SHARES_WATCHES || frame.informer_scope == InformerScope::Namespaced;
        let shared = Arc::new(Shared {
            index: Mutex::new(index),
            meter: Meter::new(&around.metrics, &frame.holder, &frame.resource),
            changes: Changes::of_process(),
            strategy,
            frame,
            sides,
            writer,
            around,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            issues: Mutex::default(),
            queue: Queue::new(),
            place_queue: Queue::new(),
            pumps: Mutex::default(),
            places_known: channel::Sender::new(false),
            lists_places: AtomicBool::new(lists_places),
            held_back: AtomicBool::new(false),
            paused: channel::Sender::new(false),
            progress: channel::Sender::default(),
            changed: Notify::new(),
        });
        shared.around.tally.join(&shared);
        Self {
            _subscriptions: shared.subscribe(),
            _tasks: shared.spawn(),
            shared,
        }
    }

    /// Resumes deletions whenever a deletion guard allows them again, until the handle is dropped.
    pub(crate) fn resume_by(&self, guard: Arc<Deletions>) -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(tokio::spawn(Arc::clone(&self.shared).resume_by(guard)))
    }
}

impl<F: SyncStrategy> Drop for Running<F> {
    fn drop(&mut self) {
        for guard in self.shared.strategy.guards() {
            guard.forget(self.shared.id);
        }
    }
}

impl<F: SyncStrategy> std::fmt::Debug for Running<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.shared.fmt(f)
    }
}

// === impl Shared ===

impl<F: SyncStrategy> std::fmt::Debug for Shared<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("frame", &self.frame)
            .finish_non_exhaustive()
    }
}

impl<F: SyncStrategy> Shared<F> {
    /// The progress of the engine, to read or to wait for.
    pub(crate) fn progress(&self) -> channel::Receiver<F::Progress> {
        self.progress.subscribe()
    }

    /// The number by which deletion guards know this engine; unique in this process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Stops or resumes all writes. Work that is under way is finished.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused
            .send_if_modified(|current| std::mem::replace(current, paused) != paused);
    }

    /// Sets which consumer namespaces are watched, for an engine whose watches are shared. What is known of the consumer's objects in other
    /// namespaces is forgotten.
    pub(crate) fn set_consumer_scope(&self, scope: &ConsumerScope) {
        let Some(unwatched) = self.index.lock().set_consumer_scope(scope) else {
            return;
        };
        self.issues.lock().retain_consumer_watches(&scope.watches());
        self.enqueue(unwatched, Priority::Backlog);
    }

    /// Queues all objects.
    pub(crate) fn enqueue_all(&self, priority: Priority) {
        let keys = self.index.lock().keys();
        self.enqueue(keys, priority);
    }

    fn subscribe(self: &Arc<Self>) -> [Subscription; 2] {
        let shared = Arc::downgrade(self);
        let places = self.around.namespaces.subscribe(move |change| {
            if let Some(shared) = shared.upgrade() {
                shared.place_queue.add(Arc::clone(&change.key.name), change.priority);
            }
        });
        let shared = Arc::downgrade(self);
        let consumer_namespaces = self.around.consumer_namespaces.subscribe(move |change| {
            let Some(shared) = shared.upgrade() else {
                return;
            };
            // Objects in it may have been seen before it.
            if change.old.is_none() || change.new.is_none() {
                shared.place_queue.add(Arc::clone(&change.key.name), change.priority);
            }
        });
        [places, consumer_namespaces]
    }

    fn spawn(self: &Arc<Self>) -> Vec<AbortOnDropHandle<()>> {
        let mut tasks = Vec::with_capacity(PLACE_WORKERS + 5);
        let mut spawn = |task| tasks.push(AbortOnDropHandle::new(task));
        let collection = Source::path(self.frame.resource.collection(""));
        if !F::SHARES_WATCHES {
            spawn(tokio::spawn(Arc::clone(self).watch_consumer(collection.clone())));
        }
        if let Some(place) = self.frame.placement.fixed(&self.frame.contract) {
            self.use_place(&"".into(), Some(place), false, false);
        } else if self.frame.informer_scope == InformerScope::Cluster && !F::SHARES_WATCHES {
            let shared = Arc::clone(self);
            spawn(tokio::spawn(async move {
                // The list shows copies only in provider namespaces that are in use when it begins.
                let mut places_known = shared.places_known.subscribe();
                let _ = places_known.wait_for(|known| *known).await;
                let provider = shared.sides.provider.watch.clone();
                let collection = collection.guarded(&shared.around.guard, NameRule::Object);
                watch::run(provider, collection, Lean, events::provider_cluster(shared)).await;
            }));
        }
        for _ in 0..PLACE_WORKERS {
            spawn(tokio::spawn(Arc::clone(self).keep_places()));
        }
        spawn(tokio::spawn(Arc::clone(self).follow_holder()));
        spawn(tokio::spawn(Arc::clone(self).publish()));
        spawn(tokio::spawn(Arc::clone(self).work()));
        tasks
    }

    /// Watches the consumer's objects, and starts again with a list whenever the strategy asks for one.
    async fn watch_consumer(self: Arc<Self>, collection: Source) {
        let mut rounds = self.strategy.relists();
        loop {
            let client = self.sides.consumer.watch.clone();
            let watch = watch::run(
                client,
                collection.clone(),
                Lean,
                events::consumer(Arc::clone(&self), None),
            );
            let asked = async {
                let again = match &mut rounds {
                    Some(rounds) => rounds.changed().await.is_ok(),
                    None => false,
                };
                if !again {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! { () = watch => {}, () = asked => {} }
        }
    }

    /// Queues all objects when this konnector becomes another holder than before: what the former one had written counts no more.
    async fn follow_holder(self: Arc<Self>) {
        let holding = &self.around.holding;
        let (mut standing, mut known) = (holding.standing(), holding.instance());
        while standing.changed().await.is_ok() {
            let Some(now) = holding.instance() else {
                continue;
            };
            if known.as_ref().is_some_and(|before| *before != now) {
                self.enqueue_all(Priority::Backlog);
            }
            known = Some(now);
        }
    }

    /// Publishes the progress if it changed.
    pub(crate) fn tell_progress(&self) {
        self.progress.send_if_modified(|current| {
            // Observed under the channel's lock, so that an older progress never replaces a newer one.
            let progress = self.observe_progress();
            let news = *current != progress;
            *current = progress;
            news
        });
    }

    async fn publish(self: Arc<Self>) {
        loop {
            let start = Instant::now();
            self.tell_progress();
            let pause = PROGRESS_INTERVAL.max(start.elapsed() * PROGRESS_PART);
            self.changed.notified().await;
            sleep(pause).await;
        }
    }

    pub(crate) fn observe_progress(&self) -> F::Progress {
        let index = self.index.lock();
        let issues = self.issues.lock();
        let consumer_synced = index.consumer_synced();
        let provider_synced = *self.places_known.borrow() && index.provider_synced();
        let common = Progress {
            consumer_synced,
            provider_synced,
            objects: index.consumer_count(),
            orphans: index.orphans(),
            retained: index.retained(),
            pending: self.queue.len(),
            failing: issues.count(),
            problem: issues.problem(),
            unwatched: issues.forbidden_watch(),
            remaining: None,
        };
        self.tell_guard(&index);
        let is_quiet = self.queue.is_quiet();
        self.meter.tell(&common, is_quiet);
        self.strategy.observe(common, is_quiet, &index)
    }
}

#[cfg(test)]
#[path = "engine/tests/engine.rs"]
mod tests;
