//! Runs the watches, the workers and the places of one engine.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bindery_api::v1alpha2::{APIServiceNamespace, InformerScope};
use bindery_runtime::{
    backoff::Backoff,
    cache::{Cache, Subscription},
    errors,
    queue::{Lane, Queue, Work},
    watch::{self, Source},
};
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch as channel},
    time::{Instant, sleep},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Metrics, Progress, Sides, Target,
    index::{Index, Learned},
    object::Lean,
    places::{self, Observed},
    plan::{self, Mode, Op, Plan},
    report::{INVALID_RETRY, Issue, Issues, Watched},
    sinks,
    write::{self, Writer},
};
use crate::events::Recorder;
use bindery_runtime::cache::ObjectKey;

/// Objects worked on at once. More only queue up in the API servers.
const WORKERS: usize = 24;
/// Plans for one object in a row, each after the operations of the one before: a creation needs two.
const ROUNDS: usize = 6;
/// Progress is published at most this often.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// Keeps one resource in sync until it is dropped.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    _subscriptions: [Subscription; 2],
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// What the tasks of an engine share.
pub(crate) struct Shared {
    target: Target,
    sides: Sides,
    writer: Writer,
    namespaces: Cache<APIServiceNamespace>,
    consumer_namespaces: Cache<Namespace>,
    recorder: Recorder,
    metrics: Arc<Metrics>,
    pub(crate) index: Mutex<Index>,
    pub(crate) issues: Mutex<Issues>,
    pub(crate) queue: Queue<ObjectKey>,
    place_queue: Queue<Arc<str>>,
    /// Watches of provider namespaces, by consumer namespace.
    pumps: Mutex<HashMap<Arc<str>, AbortOnDropHandle<()>>>,
    draining: AtomicBool,
    paused: channel::Sender<bool>,
    progress: channel::Sender<Progress>,
    pub(crate) changed: Notify,
}

// === impl Engine ===

impl Engine {
    /// Starts to sync. `namespaces` are those of the contract, `consumer_namespaces` all of the consumer.
    pub fn start(
        target: Target,
        sides: Sides,
        namespaces: Cache<APIServiceNamespace>,
        consumer_namespaces: Cache<Namespace>,
        recorder: Recorder,
        metrics: Arc<Metrics>,
    ) -> Self {
        let writer = Writer {
            consumer: sides.consumer.write.clone(),
            provider: sides.provider.write.clone(),
            resource: Arc::new(target.resource.clone()),
            contract: Arc::clone(&target.contract),
        };
        let shared = Arc::new(Shared {
            index: Mutex::new(Index::new(Arc::clone(&target.contract))),
            target,
            sides,
            writer,
            namespaces,
            consumer_namespaces,
            recorder,
            metrics,
            issues: Mutex::default(),
            queue: Queue::new(),
            place_queue: Queue::new(),
            pumps: Mutex::default(),
            draining: AtomicBool::new(false),
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

    /// How it is going, to read or to wait for.
    pub fn progress(&self) -> channel::Receiver<Progress> {
        self.shared.progress.subscribe()
    }

    /// From now on deletes every object of the consumer, and with it its copy.
    pub fn drain(&self) {
        if !self.shared.draining.swap(true, Ordering::Relaxed) {
            let keys = self.shared.index.lock().keys();
            self.shared.enqueue(keys, Lane::Backlog);
        }
    }

    /// Stops or resumes all writes. What is under way is finished.
    pub fn pause(&self, paused: bool) {
        self.shared
            .paused
            .send_if_modified(|current| std::mem::replace(current, paused) != paused);
    }
}

// === impl Shared ===

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn subscribe(self: &Arc<Self>) -> [Subscription; 2] {
        let shared = Arc::downgrade(self);
        let places = self.namespaces.subscribe(move |change| {
            if let Some(shared) = shared.upgrade() {
                shared.place_queue.add(Arc::clone(&change.key.name), change.lane);
            }
        });
        let shared = Arc::downgrade(self);
        let consumer_namespaces = self.consumer_namespaces.subscribe(move |change| {
            if change.new.is_none()
                && let Some(shared) = shared.upgrade()
            {
                shared.place_queue.add(Arc::clone(&change.key.name), change.lane);
            }
        });
        [places, consumer_namespaces]
    }

    fn spawn(self: &Arc<Self>) -> Vec<AbortOnDropHandle<()>> {
        let mut tasks = Vec::with_capacity(WORKERS + 4);
        let mut spawn = |task| tasks.push(AbortOnDropHandle::new(task));
        let collection = Source::path(self.target.resource.collection(""));
        let consumer = self.sides.consumer.watch.clone();
        spawn(tokio::spawn(watch::run(
            consumer,
            collection.clone(),
            Lean,
            sinks::consumer(Arc::clone(self)),
        )));
        if self.target.informer_scope == InformerScope::Cluster {
            let shared = Arc::clone(self);
            spawn(tokio::spawn(async move {
                let provider = shared.sides.provider.watch.clone();
                watch::run(provider, collection, Lean, sinks::provider_cluster(shared)).await;
            }));
        }
        spawn(tokio::spawn(Arc::clone(self).keep_places()));
        spawn(tokio::spawn(Arc::clone(self).publish()));
        for _ in 0..WORKERS {
            spawn(tokio::spawn(Arc::clone(self).work()));
        }
        tasks
    }

    async fn work(self: Arc<Self>) {
        let mut paused = self.paused.subscribe();
        while let Some(work) = self.queue.next().await {
            // The sender lives as long as this task.
            let _ = paused.wait_for(|paused| !paused).await;
            let outcome = self.sync(work.key()).await;
            self.finish(work, outcome);
            self.changed.notify_one();
        }
    }

    /// Brings one object in sync, as far as that goes now.
    async fn sync(&self, key: &ObjectKey) -> Result<Option<Issue>, Issue> {
        let mut reread = false;
        for _ in 0..ROUNDS {
            let Some((plan, place)) = self.plan(key) else {
                return Ok(self.index.lock().refusal(key).map(|refusal| Issue::of_refusal(refusal)));
            };
            if plan.ops.is_empty() {
                return Ok(plan.blocked.as_ref().map(Issue::of_blocked));
            }
            let mut learned_any = false;
            for op in &plan.ops {
                match self.apply(key, &place, op).await {
                    Ok(Some(learned)) => {
                        self.index.lock().learn(key, learned);
                        learned_any = true;
                    }
                    Ok(None) => {}
                    Err(error) if is_stale(&error) && !reread => {
                        // The object is not what the watch has shown so far: look, and plan anew.
                        reread = true;
                        let read = if op.on_consumer() {
                            Op::ReadConsumer
                        } else {
                            Op::ReadProvider
                        };
                        let learned = self
                            .apply(key, &place, &read)
                            .await
                            .map_err(|error| issue(&error, &read))?;
                        self.index.lock().learn(key, learned.unwrap_or(Learned::ConsumerGone));
                        learned_any = true;
                        break;
                    }
                    Err(error) => return Err(issue(&error, op)),
                }
            }
            if !learned_any {
                // The watch brings the rest.
                return Ok(None);
            }
        }
        Err(Issue {
            reason: "Unstable",
            message: "the object changes faster than it can be written".to_owned(),
            transient: true,
        })
    }

    /// Plans one object, or asks for the place that is missing to do so.
    fn plan(&self, key: &ObjectKey) -> Option<(Plan, Arc<str>)> {
        let mode = Mode {
            draining: self.draining.load(Ordering::Relaxed),
            status_subresource: self.target.resource.status_subresource,
        };
        let mut index = self.index.lock();
        if let Some((pair, place)) = index.known(key) {
            pair.compare();
            let plan = plan::plan(pair, &place, mode);
            if plan.ops.is_empty() {
                pair.forget_content();
            }
            return Some((plan, place));
        }
        let unplaced = index.pair(key).and_then(|pair| plan::unplaced(pair, mode));
        if let Some(op) = unplaced {
            return Some((Plan::of(op), "".into()));
        }
        if index.needs_place(key) {
            self.place_queue.add(Arc::clone(&key.namespace), Lane::Live);
        }
        None
    }

    async fn apply(&self, key: &ObjectKey, place: &str, op: &Op) -> Result<Option<Learned>, kube::Error> {
        let start = Instant::now();
        let outcome = self.writer.apply(write::Target { key, place }, op).await;
        let resource = &self.target.resource.plural;
        self.metrics
            .operation(resource, op.name(), outcome.is_ok(), start.elapsed().as_secs_f64());
        tracing::debug!(%resource, %key, op = op.name(), ok = outcome.is_ok(), "synced");
        outcome
    }

    fn finish(&self, work: Work<ObjectKey>, outcome: Result<Option<Issue>, Issue>) {
        let (issue, failed) = match &outcome {
            Ok(issue) => (issue.as_ref(), false),
            Err(issue) => (Some(issue), true),
        };
        // A first conflict is the normal course of two writers, no trouble.
        if !(failed && work.failures() == 0 && issue.is_some_and(|issue| issue.transient)) {
            let news = self.issues.lock().set(work.key(), issue);
            if let Some(issue) = issue.filter(|_| news) {
                self.recorder
                    .warn(&self.reference(work.key()), issue.reason, &issue.message);
            }
        }
        match outcome {
            Ok(_) => drop(work),
            Err(issue) if issue.reason == "Invalid" => work.again_after(INVALID_RETRY),
            Err(_) => work.retry(Backoff::OBJECT),
        }
    }

    fn reference(&self, key: &ObjectKey) -> ObjectReference {
        let index = self.index.lock();
        let uid = index
            .pair(key)
            .and_then(|pair| pair.consumer.as_ref())
            .map(|consumer| consumer.uid.to_string());
        ObjectReference {
            api_version: Some(self.target.resource.api_version()),
            kind: Some(self.target.resource.kind.to_string()),
            namespace: Some(key.namespace.to_string()).filter(|namespace| !namespace.is_empty()),
            name: Some(key.name.to_string()),
            uid,
            ..ObjectReference::default()
        }
    }

    /// Works on consumer namespaces: asks for places, takes them into use when they are assigned, gives them back.
    async fn keep_places(self: Arc<Self>) {
        self.namespaces.synced().await;
        self.consumer_namespaces.synced().await;
        while let Some(work) = self.place_queue.next().await {
            let namespace = Arc::clone(work.key());
            match self.keep_place(&namespace).await {
                Ok(()) => drop(work),
                Err(error) => {
                    let failure = errors::explain(&error);
                    tracing::warn!(%namespace, failure, "cannot get a provider namespace");
                    self.issues
                        .lock()
                        .set_watch(Watched::Provider(Arc::clone(&namespace)), Some(failure));
                    self.changed.notify_one();
                    work.retry(Backoff::OBJECT);
                }
            }
        }
    }

    async fn keep_place(self: &Arc<Self>, namespace: &Arc<str>) -> Result<(), kube::Error> {
        let request = self.namespaces.get(&self.target.contract, namespace);
        let assigned = request.as_deref().and_then(places::assigned);
        self.use_place(namespace, assigned);
        self.note_refusal(namespace, request.as_deref().and_then(places::refusal).as_ref());
        let wanted = {
            let index = self.index.lock();
            let keys = index.keys_in(namespace);
            keys.iter().any(|key| index.pair(key).is_some_and(plan::wants_place))
        };
        let seen = Observed {
            wanted,
            exists: self.consumer_namespaces.get("", namespace).is_some(),
            request: request.as_deref(),
            export: &self.target.export,
        };
        if !*self.paused.borrow()
            && let Some(op) = places::plan(&seen)
        {
            let provider = &self.sides.provider.write;
            places::apply(provider, &self.target.contract, namespace, &self.target.export, op).await?;
        }
        self.issues
            .lock()
            .set_watch(Watched::Provider(Arc::clone(namespace)), None);
        Ok(())
    }

    /// Has the objects of a consumer namespace say why they get no place, or no longer say it.
    fn note_refusal(&self, consumer_namespace: &Arc<str>, refusal: Option<&Arc<str>>) {
        let mut index = self.index.lock();
        if !index.set_refusal(consumer_namespace, refusal) {
            return;
        }
        let keys = index.keys_in(consumer_namespace);
        drop(index);
        self.enqueue(keys, Lane::Live);
    }

    /// Watches the provider namespace that a consumer namespace has been given, and stops to watch one before it.
    fn use_place(self: &Arc<Self>, consumer_namespace: &Arc<str>, assigned: Option<Arc<str>>) {
        let mut index = self.index.lock();
        if index.place(consumer_namespace).map(|place| &place.namespace) == assigned.as_ref() {
            return;
        }
        index.set_place(consumer_namespace, assigned.clone());
        let keys = index.keys_in(consumer_namespace);
        drop(index);
        let Some(namespace) = assigned else {
            self.pumps.lock().remove(consumer_namespace);
            self.enqueue(keys, Lane::Backlog);
            return;
        };
        let source = Source::path(self.target.resource.collection(&namespace));
        let sink = sinks::provider_namespace(Arc::clone(self), Arc::clone(consumer_namespace), namespace);
        let client = self.sides.provider.watch.clone();
        let pump = if self.target.informer_scope == InformerScope::Cluster {
            // The one watch brings what changes; what was there before is listed once.
            tokio::spawn(watch::list(client, source, Lean, sink))
        } else {
            tokio::spawn(watch::run(client, source, Lean, sink))
        };
        self.pumps
            .lock()
            .insert(Arc::clone(consumer_namespace), AbortOnDropHandle::new(pump));
    }

    async fn publish(self: Arc<Self>) {
        loop {
            let progress = self.observe_progress();
            self.progress.send_if_modified(|current| {
                let news = *current != progress;
                *current = progress;
                news
            });
            self.changed.notified().await;
            sleep(PROGRESS_INTERVAL).await;
        }
    }

    fn observe_progress(&self) -> Progress {
        let index = self.index.lock();
        let issues = self.issues.lock();
        let consumer_synced = index.consumer_synced();
        let provider_synced = self.namespaces.is_synced() && index.provider_synced();
        let draining = self.draining.load(Ordering::Relaxed);
        Progress {
            consumer_synced,
            provider_synced,
            objects: index.consumer_count(),
            pending: self.queue.len(),
            failing: issues.count(),
            problem: issues.problem(),
            remaining: (draining && consumer_synced && provider_synced).then(|| index.remaining()),
        }
    }
}

/// True if a write was refused because the object is not the one, or not in the state, that was planned for.
fn is_stale(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let tested = status.code == 422 && status.details.as_ref().is_none_or(|details| details.causes.is_empty());
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let uid = status.code == 422 && causes.into_iter().any(|cause| cause.field == "metadata.uid");
    status.code == 409 || status.code == 404 || tested || uid
}

fn issue(error: &kube::Error, op: &Op) -> Issue {
    Issue::of_error(error, if op.on_consumer() { "consumer" } else { "provider" })
}
