//! Watches the resources of a drain and writes to their objects.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bindery_api::v1alpha2::APIServiceBinding;
use bindery_runtime::{
    backoff::Backoff,
    cache::ObjectKey,
    client::Clients,
    errors, preconditions,
    queue::{Priority, Queue},
    watch::{self, Event, Source},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
    core::Request,
};
use parking_lot::Mutex;
use tokio::{
    sync::{Mutex as AsyncMutex, Notify, watch as channel},
    task::JoinSet,
    time::sleep,
};

use super::{
    DrainMode, DrainProgress,
    plan::DrainOp,
    state::{Collection, DrainState, DrainedObject},
};
use crate::{discovery, model::BoundResource};

/// Objects of one resource that are written to at a time.
const WORKERS: usize = 8;
const RETRY: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(30));
/// Why nothing is written although the cache shows that the binding ends.
const NOT_ENDING: &str = "the binding is not being deleted any more, as after a restore";

/// A collection to drain.
pub(super) struct Drained {
    pub(super) collection: Collection,
    /// The resource in a version that the consumer serves; `None` if that has to be found out.
    pub(super) served: Option<BoundResource>,
    /// The labels of the objects to drain; `None` for all objects.
    pub(super) selector: Option<String>,
}

/// The binding whose end is the reason of a drain.
pub(super) struct Ending {
    name: String,
    uid: Option<String>,
    /// The round of lists after which it was seen to be ending.
    proven: AsyncMutex<Option<u64>>,
}

/// What the tasks of a drain share.
pub(super) struct Shared {
    consumer: Clients,
    mode: DrainMode,
    /// The binding that has to be ending whenever something is written; `None` if nothing has to.
    ending: Option<Ending>,
    /// Counts the begins and the ends of lists.
    round: AtomicU64,
    state: Mutex<DrainState>,
    changed: Notify,
    pub(super) progress: channel::Sender<DrainProgress>,
}

struct DecodeMetadata;

impl watch::Decode for DecodeMetadata {
    type Object = DrainedObject;

    fn decode(&self, json: &str) -> serde_json::Result<DrainedObject> {
        serde_json::from_str(json)
    }
}

/// Publishes the progress whenever it changes. Changes that come meanwhile are published together.
pub(super) async fn publish(shared: Arc<Shared>) {
    loop {
        let progress = shared.state.lock().progress();
        shared.progress.send_if_modified(|before| {
            let is_news = *before != progress;
            *before = progress;
            is_news
        });
        shared.changed.notified().await;
    }
}

/// Drains one collection, without end.
pub(super) async fn drain(shared: Arc<Shared>, drained: Drained) {
    let served = match drained.served {
        Some(served) => Some(served),
        None => shared.find(&drained.collection).await,
    };
    let Some(served) = served else {
        return shared.update(|state| state.is_nowhere(&drained.collection));
    };
    let queue = Queue::new();
    let namespace = drained.collection.namespace.as_deref().unwrap_or_default();
    let mut source = Source::path(served.collection(namespace));
    if let Some(selector) = drained.selector {
        source = source.labels(selector);
    }
    let handler = {
        let (shared, collection, queue) = (Arc::clone(&shared), drained.collection.clone(), queue.clone());
        move |event: Event<DrainedObject>| {
            if matches!(event, Event::Reset | Event::Complete(_)) {
                shared.round.fetch_add(1, Ordering::Relaxed);
            }
            let priority = match &event {
                Event::Complete(_) => Priority::Backlog,
                _ => Priority::Live,
            };
            let keys = shared.update(|state| state.watched(&collection, event));
            for key in keys {
                queue.add(key, priority);
            }
        }
    };
    // The tasks end with the set, when the drain is dropped.
    let mut tasks = JoinSet::new();
    tasks.spawn(watch::run(
        shared.consumer.watch.clone(),
        source,
        DecodeMetadata,
        handler,
    ));
    for _ in 0..WORKERS {
        let (shared, collection) = (Arc::clone(&shared), drained.collection.clone());
        tasks.spawn(shared.work(collection, served.clone(), queue.clone()));
    }
    while tasks.join_next().await.is_some() {}
}

// === impl Ending ===

impl Ending {
    pub(super) fn of(binding: &APIServiceBinding) -> Self {
        Self {
            name: binding.name_any(),
            uid: binding.metadata.uid.clone(),
            proven: AsyncMutex::default(),
        }
    }
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(consumer: Clients, mode: DrainMode, ending: Option<Ending>, state: DrainState) -> Self {
        Self {
            consumer,
            mode,
            ending,
            round: AtomicU64::new(0),
            state: Mutex::new(state),
            changed: Notify::new(),
            progress: channel::Sender::default(),
        }
    }

    fn update<T>(&self, change: impl FnOnce(&mut DrainState) -> T) -> T {
        let changed = change(&mut self.state.lock());
        self.changed.notify_one();
        changed
    }

    /// Finds the version of a resource that the consumer serves, as long as that takes; `None` if it serves none, or has no such
    /// namespace.
    async fn find(&self, collection: &Collection) -> Option<BoundResource> {
        for attempt in 0.. {
            match self.search(collection).await {
                Ok(found) => {
                    self.update(|state| state.searched(collection, None));
                    return found;
                }
                Err(error) => self.update(|state| state.searched(collection, Some(errors::explain(&error)))),
            }
            sleep(RETRY.delay(attempt)).await;
        }
        None
    }

    async fn search(&self, collection: &Collection) -> Result<Option<BoundResource>, kube::Error> {
        if let Some(namespace) = &collection.namespace {
            // The right to list in a namespace goes with it.
            let namespaces: Api<Namespace> = Api::all(self.consumer.write.clone());
            if namespaces.get_metadata_opt(namespace).await?.is_none() {
                return Ok(None);
            }
        }
        let served = discovery::served(&self.consumer.write, &collection.resource).await?;
        Ok(discovery::highest(&collection.resource, &served))
    }

    async fn work(self: Arc<Self>, collection: Collection, served: BoundResource, queue: Queue<ObjectKey>) {
        while let Some(work) = queue.next().await {
            let key = work.key().clone();
            let failure = self.write(&collection, &served, &key).await.err();
            let problem = failure.as_ref().map(errors::explain);
            if let Some(problem) = &problem {
                tracing::debug!(object = %key, mode = ?self.mode, problem, "drained object not written");
            }
            self.update(|state| state.attempted(&collection, &key, problem));
            match failure {
                None => drop(work),
                Some(_) => work.retry(RETRY),
            }
        }
    }

    async fn write(&self, collection: &Collection, served: &BoundResource, key: &ObjectKey) -> Result<(), kube::Error> {
        let is_due = self.state.lock().plan(collection, key).is_some();
        if !is_due {
            return Ok(());
        }
        if !self.is_ending().await? {
            // It is looked at again, in case the user ends the binding once more before the cache has shown that it is back.
            return Err(kube::Error::Service(NOT_ENDING.into()));
        }
        // A list may have shown another version meanwhile.
        let Some(op) = self.state.lock().plan(collection, key) else {
            return Ok(());
        };
        let requests = Request::new(served.collection(&key.namespace));
        let request = match op {
            DrainOp::Delete { uid } => {
                let params = DeleteParams {
                    preconditions: Some(preconditions::same_uid(uid)),
                    ..DeleteParams::default()
                };
                requests.delete(&key.name, &params)
            }
            DrainOp::RemoveFinalizer(patch) => requests.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)),
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        match self.consumer.write.request_text(request).await {
            // The watch shows the outcome.
            Ok(_) => Ok(()),
            Err(error) if errors::is_object_gone(&error, &key.name) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether the binding that the drain is for is being deleted. It is read once after each list. If it is not, the konnector ends the
    /// drain when its cache shows that.
    async fn is_ending(&self) -> Result<bool, kube::Error> {
        let Some(ending) = &self.ending else {
            return Ok(true);
        };
        let mut proven = ending.proven.lock().await;
        let round = self.round.load(Ordering::Relaxed);
        if *proven == Some(round) {
            return Ok(true);
        }
        let bindings: Api<APIServiceBinding> = Api::all(self.consumer.write.clone());
        let found = bindings.get_metadata_opt(&ending.name).await?;
        let is_it = |found: &kube::core::PartialObjectMeta<APIServiceBinding>| found.metadata.uid == ending.uid;
        let is_ending = found
            .filter(is_it)
            .is_some_and(|found| found.metadata.deletion_timestamp.is_some());
        *proven = is_ending.then_some(round);
        Ok(is_ending)
    }
}
