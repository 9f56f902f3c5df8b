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
    cache::{Cache, ObjectKey, Subscription},
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
    index::{Cast, Index, Learned},
    object::Lean,
    plan::{self, Mode, Op, Plan},
    report::{INVALID_RETRY, Issue, Issues},
    sinks,
    write::{self, Writer},
};
use crate::events::Recorder;

/// Objects worked on at once. More only queue up in the API servers.
const WORKERS: usize = 24;
/// Consumer namespaces worked on at once.
const PLACE_WORKERS: usize = 4;
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
    pub(super) target: Target,
    pub(super) sides: Sides,
    pub(super) writer: Writer,
    pub(super) namespaces: Cache<APIServiceNamespace>,
    pub(super) consumer_namespaces: Cache<Namespace>,
    recorder: Recorder,
    metrics: Arc<Metrics>,
    pub(crate) index: Mutex<Index>,
    pub(crate) issues: Mutex<Issues>,
    pub(crate) queue: Queue<ObjectKey>,
    pub(super) place_queue: Queue<Arc<str>>,
    /// Watches of provider namespaces, by consumer namespace.
    pub(super) pumps: Mutex<HashMap<Arc<str>, AbortOnDropHandle<()>>>,
    /// All places that were assigned before the start are in use.
    pub(super) places_known: AtomicBool,
    draining: AtomicBool,
    pub(super) paused: channel::Sender<bool>,
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
            places_known: AtomicBool::new(false),
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
        let mut tasks = Vec::with_capacity(WORKERS + PLACE_WORKERS + 3);
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
        for _ in 0..PLACE_WORKERS {
            spawn(tokio::spawn(Arc::clone(self).keep_places()));
        }
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
            let Some((plan, place, cast)) = self.plan(key) else {
                return Ok(self.index.lock().refusal(key).map(|refusal| Issue::of_refusal(refusal)));
            };
            if plan.ops.is_empty() {
                return Ok(plan.blocked.as_ref().map(Issue::of_blocked));
            }
            let mut learned_any = false;
            for op in &plan.ops {
                match self.apply(key, &place, op).await {
                    Ok(Some(learned)) => {
                        self.index.lock().learn(key, learned, &cast);
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
                        if let Some(learned) = learned {
                            self.index.lock().learn(key, learned, &cast);
                        }
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
    fn plan(&self, key: &ObjectKey) -> Option<(Plan, Arc<str>, Cast)> {
        let mut mode = Mode {
            closing: false,
            draining: self.draining.load(Ordering::Relaxed),
            status_subresource: self.target.resource.status_subresource,
        };
        let mut index = self.index.lock();
        if let Some((pair, place)) = index.known(key) {
            mode.closing = place.closing;
            pair.compare();
            let plan = plan::plan(pair, &place.namespace, mode);
            // What our own write has to be compared with is still to come.
            if plan.ops.is_empty() && !pair.is_unseen() {
                pair.forget_content();
            }
            return Some((plan, place.namespace, Cast::of(pair)));
        }
        let pair = index.pair(key)?;
        if let Some(op) = plan::unplaced(pair, mode) {
            return Some((Plan::of(op), "".into(), Cast::of(pair)));
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
        let namespace = &work.key().namespace;
        if self.index.lock().is_vacant(namespace) {
            // With its last object gone, its place may be given back.
            self.place_queue.add(Arc::clone(namespace), Lane::Backlog);
        }
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
        let provider_synced = self.places_known.load(Ordering::Relaxed) && index.provider_synced();
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

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::Scope;
    use bindery_runtime::client::Clients;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;
    use crate::sync::BoundResource;

    /// Clients of a cluster that never answers.
    fn silent() -> Clients {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let client = kube::Client::new(service, "default");
        Clients {
            watch: client.clone(),
            write: client.clone(),
            lease: client,
        }
    }

    #[tokio::test]
    async fn a_dropped_engine_leaves_no_task_behind() {
        let target = Target {
            binding: "cowboys".into(),
            contract: "kube-bind-x".into(),
            export: OwnerReference::default(),
            resource: BoundResource {
                group: "wildwest.dev".into(),
                version: "v1alpha1".into(),
                plural: "cowboys".into(),
                kind: "Cowboy".into(),
                scope: Scope::Namespaced,
                status_subresource: true,
            },
            informer_scope: InformerScope::Namespaced,
        };
        let (consumer, provider) = (silent(), silent());
        let engine = Engine::start(
            target,
            Sides {
                consumer: consumer.clone(),
                provider: provider.clone(),
            },
            Cache::start(
                provider.watch.clone(),
                Source::of::<APIServiceNamespace>(Some("kube-bind-x")),
            ),
            Cache::start(consumer.watch.clone(), Source::of::<Namespace>(None)),
            Recorder::silent(),
            Metrics::register(&mut bindery_runtime::telemetry::registry()),
        );
        engine
            .shared
            .use_place(&"wild-west".into(), Some("kube-bind-x-wild-west".into()), false);
        tokio::task::yield_now().await;
        let left = Arc::downgrade(&engine.shared);
        drop(engine);
        for _ in 0..100 {
            if left.strong_count() == 0 {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("{} tasks hold a dropped engine", left.strong_count());
    }
}
