//! Runs the watches, the workers and the places of one engine.

pub(crate) mod budget;
pub(crate) mod deletion_guard;
pub(crate) mod events;
pub(crate) mod metrics;
mod missing;
mod namespaces;
pub(crate) mod report;
pub(crate) mod strategy;
mod work;

pub use budget::Budget;
pub use deletion_guard::{Deletions, Frozen, Kind};
use metrics::Meter;
pub use metrics::Metrics;
use report::Issues;
pub use report::{Cause, Problem};
use strategy::SyncStrategy;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bindery_api::v1alpha2::{APIServiceNamespace, InformerScope};
use bindery_runtime::{
    cache::{Cache, ObjectKey, Subscription},
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
    events::Recorder,
    index::Index,
    model::{BoundResource, Placement, object::Lean},
};

/// Consumer namespaces worked on at once.
const PLACE_WORKERS: usize = 4;
/// Progress is published at most this often.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);
/// And so seldom that counting takes no larger part of the time than one in so many: it may go through all objects.
const PROGRESS_PART: u32 = 20;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// What engines share with others.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Those of the contract.
    pub namespaces: Cache<APIServiceNamespace>,
    /// All of the consumer.
    pub consumer_namespaces: Cache<Namespace>,
    /// Where events go.
    pub recorder: Recorder,
    /// Where work is counted.
    pub metrics: Arc<Metrics>,
    /// How much of it there is at a time, for all engines of a provider.
    pub budget: Budget,
}

/// How an engine is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The consumer's objects were listed.
    pub consumer_synced: bool,
    /// The copies were listed, in every provider namespace in use.
    pub provider_synced: bool,
    /// Consumer objects.
    pub objects: usize,
    /// Objects that wait to be worked on.
    pub pending: usize,
    /// Objects whose last attempt failed, or that are left alone because of a conflict.
    pub failing: usize,
    /// What is amiss, in one sentence: a cluster that cannot be reached, or the first failing object.
    pub problem: Option<Problem>,
    /// While draining, once both sides are known: objects left on either side.
    pub remaining: Option<usize>,
}

/// What an engine syncs, whatever its strategy.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The binding; of a claimed resource, which bindings share, the contract.
    pub holder: Arc<str>,
    /// The contract namespace on the provider.
    pub contract: Arc<str>,
    pub resource: BoundResource,
    /// Where copies go.
    pub placement: Placement,
    /// Whether the provider is watched by namespace or as a whole.
    pub informer_scope: InformerScope,
    /// Several consumers share names, and each write replaces the one before it.
    pub last_wins: bool,
}

/// Keeps one resource in sync until it is dropped.
pub(crate) struct Running<F: SyncStrategy> {
    pub(crate) shared: Arc<Shared<F>>,
    _subscriptions: [Subscription; 2],
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// What the tasks of an engine share.
pub(crate) struct Shared<F: SyncStrategy> {
    pub(crate) strategy: F,
    pub(crate) frame: Frame,
    pub(crate) sides: Sides,
    pub(super) writer: Writer,
    pub(super) around: Surroundings,
    pub(super) meter: Meter,
    /// Tells this engine from others of the binding.
    id: u64,
    pub(crate) index: Mutex<Index<F::Pair>>,
    pub(crate) issues: Mutex<Issues>,
    pub(crate) queue: Queue<ObjectKey>,
    pub(super) place_queue: Queue<Arc<str>>,
    /// Watches of provider namespaces, by consumer namespace.
    pub(super) pumps: Mutex<HashMap<Arc<str>, AbortOnDropHandle<()>>>,
    /// All places that were assigned before the start are in use.
    pub(super) places_known: channel::Sender<bool>,
    /// A place that comes is listed by itself: the list of all of the provider has begun without it.
    pub(super) lists_places: AtomicBool,
    /// Consumer namespaces whose end was seen.
    ended_namespaces: Mutex<HashSet<Arc<str>>>,
    /// The consumer went back in time, and not all sources have been there since.
    pub(super) rewound: AtomicBool,
    /// Raised when so much may have changed that the missing have to be counted anew.
    epoch: AtomicU64,
    /// When the missing were counted last, and in which epoch. Never held while anything else is locked.
    counted: Mutex<Option<(u64, Instant)>>,
    /// Something waits for deletions to be allowed.
    held_back: AtomicBool,
    pub(super) paused: channel::Sender<bool>,
    progress: channel::Sender<F::Progress>,
    pub(crate) changed: Notify,
}

// === impl Running ===

impl<F: SyncStrategy> Running<F> {
    /// Starts to sync.
    pub(crate) fn start(frame: Frame, sides: Sides, around: Surroundings, strategy: F, index: Index<F::Pair>) -> Self {
        let writer = Writer {
            consumer: sides.consumer.write.clone(),
            provider: sides.provider.write.clone(),
            resource: Arc::new(frame.resource.clone()),
            contract: Arc::clone(&frame.contract),
            last_wins: frame.last_wins,
        };
        let lists_places = F::SHARES_WATCHES || frame.informer_scope == InformerScope::Namespaced;
        let shared = Arc::new(Shared {
            index: Mutex::new(index),
            meter: Meter::new(&around.metrics, &frame.holder, &frame.resource),
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
            ended_namespaces: Mutex::default(),
            rewound: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            counted: Mutex::default(),
            held_back: AtomicBool::new(false),
            paused: channel::Sender::new(false),
            progress: channel::Sender::default(),
            changed: Notify::new(),
        });
        Self {
            _subscriptions: shared.subscribe(),
            _tasks: shared.spawn(),
            shared,
        }
    }

    /// Joins a guard, and goes on with what it held back as soon as it allows that, until dropped.
    pub(crate) fn thaw(&self, guard: Arc<Deletions>) -> AbortOnDropHandle<()> {
        guard.join(self.shared.id);
        AbortOnDropHandle::new(tokio::spawn(Arc::clone(&self.shared).thaw(guard)))
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
    /// How it is going, to read or to wait for.
    pub(crate) fn progress(&self) -> channel::Receiver<F::Progress> {
        self.progress.subscribe()
    }

    /// Tells this engine from others that the same guard holds back.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Stops or resumes all writes. What is under way is finished.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused
            .send_if_modified(|current| std::mem::replace(current, paused) != paused);
    }

    /// Looks at all objects again.
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
            let name = Arc::clone(&change.key.name);
            if change.new.is_some() {
                shared.ended_namespaces.lock().remove(&name);
                return;
            }
            if change.priority == Priority::Live {
                shared.ended_namespaces.lock().insert(Arc::clone(&name));
            }
            shared.place_queue.add(name, change.priority);
        });
        [places, consumer_namespaces]
    }

    fn spawn(self: &Arc<Self>) -> Vec<AbortOnDropHandle<()>> {
        let mut tasks = Vec::with_capacity(PLACE_WORKERS + 4);
        let mut spawn = |task| tasks.push(AbortOnDropHandle::new(task));
        let collection = Source::path(self.frame.resource.collection(""));
        if !F::SHARES_WATCHES {
            spawn(tokio::spawn(Arc::clone(self).watch_consumer(collection.clone())));
        }
        if let Some(place) = self.frame.placement.fixed(&self.frame.contract) {
            self.use_place(&"".into(), Some(place), false);
        } else if self.frame.informer_scope == InformerScope::Cluster && !F::SHARES_WATCHES {
            let shared = Arc::clone(self);
            spawn(tokio::spawn(async move {
                // It shows what is in the places that are known by then.
                let mut places_known = shared.places_known.subscribe();
                let _ = places_known.wait_for(|known| *known).await;
                let provider = shared.sides.provider.watch.clone();
                watch::run(provider, collection, Lean, events::provider_cluster(shared)).await;
            }));
        }
        for _ in 0..PLACE_WORKERS {
            spawn(tokio::spawn(Arc::clone(self).keep_places()));
        }
        spawn(tokio::spawn(Arc::clone(self).publish()));
        spawn(tokio::spawn(Arc::clone(self).work()));
        tasks
    }

    /// Watches the consumer's objects; begins anew whenever they are all to be shown again.
    async fn watch_consumer(self: Arc<Self>, collection: Source) {
        let mut rounds = self.strategy.relists();
        loop {
            let client = self.sides.consumer.watch.clone();
            let watch = watch::run(client, collection.clone(), Lean, events::consumer(Arc::clone(&self)));
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

    /// Tells how it is going.
    pub(crate) fn tell_progress(&self) {
        self.progress.send_if_modified(|current| {
            // Observed here, or what was seen before might be told after what was seen since.
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
            self.count_if_due();
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
            pending: self.queue.len(),
            failing: issues.count(),
            problem: issues.problem(),
            remaining: None,
        };
        let is_quiet = self.queue.is_quiet();
        self.meter.tell(&common, is_quiet);
        self.strategy.observe(common, is_quiet, &index)
    }
}

#[cfg(test)]
#[path = "engine/tests/engine.rs"]
mod tests;
