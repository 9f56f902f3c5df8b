//! Lets consumer objects go without the provider's word: once its export is gone, or the user forces an unbind.
//!
//! The finalizer of a synced object waits for its copy on the provider. Where nobody will say that the copy is gone, the
//! finalizer is taken away here, from objects that are being deleted and from no others.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bindery_api::{
    annotations::{PAUSED, TRUE},
    finalizers::SYNCER,
};
use bindery_runtime::{
    backoff::Backoff,
    cache::{Cache, ObjectKey, Subscription},
    client::Clients,
    errors,
    queue::Queue,
    watch::Source,
};
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Client, Resource,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::Request,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

const WORKERS: usize = 8;
const RETRY: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(30));

/// Which objects to let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Those that somebody deletes.
    Deleted,
    /// All: they are deleted here.
    All,
}

/// How far it has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Objects that are left; `None` before they were listed.
    pub remaining: Option<usize>,
    /// What is amiss.
    pub problem: Option<String>,
}

/// Lets the objects of one resource go until dropped.
#[derive(Debug)]
pub struct Releaser {
    mode: Mode,
    progress: watch::Receiver<Released>,
    _subscription: Subscription,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// An object of any kind, as far as it matters here.
#[derive(Clone, Debug, Default, Deserialize)]
struct Meta {
    metadata: ObjectMeta,
}

/// One write.
#[derive(Debug, PartialEq)]
enum Op {
    Nothing,
    Delete,
    Release(Value),
}

struct Shared {
    client: Client,
    cache: Cache<Meta>,
    /// Path of the collection over all namespaces, in two halves around the namespace.
    root: String,
    plural: String,
    mode: Mode,
    queue: Queue<ObjectKey>,
    counted: Arc<Notify>,
    progress: watch::Sender<Released>,
}

// === impl Meta ===

impl Resource for Meta {
    type DynamicType = ();
    type Scope = kube::core::DynamicResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

// === impl Releaser ===

impl Releaser {
    /// Starts to let go. `None` if the CRD serves no version.
    pub fn start(clients: &Clients, crd: &CustomResourceDefinition, mode: Mode) -> Option<Self> {
        let version = crd.spec.versions.iter().find(|version| version.served)?;
        let root = format!("/apis/{}/{}", crd.spec.group, version.name);
        let plural = crd.spec.names.plural.clone();
        let cache: Cache<Meta> = Cache::start(clients.watch.clone(), Source::path(format!("{root}/{plural}")));
        let queue = Queue::new();
        let counted = Arc::new(Notify::new());
        let subscription = cache.subscribe({
            let (queue, counted) = (queue.clone(), Arc::clone(&counted));
            move |change| {
                counted.notify_one();
                queue.add(change.key.clone(), change.lane);
            }
        });
        let shared = Arc::new(Shared {
            client: clients.write.clone(),
            cache,
            root,
            plural,
            mode,
            queue,
            counted,
            progress: watch::Sender::default(),
        });
        let progress = shared.progress.subscribe();
        let workers = (0..WORKERS).map(|_| tokio::spawn(work(Arc::clone(&shared))));
        let publisher = tokio::spawn(count(Arc::clone(&shared)));
        Some(Self {
            mode,
            progress,
            _subscription: subscription,
            _tasks: workers.chain([publisher]).map(AbortOnDropHandle::new).collect(),
        })
    }

    /// Which objects it lets go.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// How far it has come, to read or to wait for.
    pub fn progress(&self) -> watch::Receiver<Released> {
        self.progress.clone()
    }
}

fn plan(object: &Meta, mode: Mode) -> Op {
    let meta = &object.metadata;
    if is_paused(object) {
        return Op::Nothing;
    }
    if meta.deletion_timestamp.is_none() {
        return match mode {
            Mode::All => Op::Delete,
            Mode::Deleted => Op::Nothing,
        };
    }
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == SYNCER) {
        return Op::Nothing;
    }
    let others: Vec<_> = finalizers.iter().filter(|finalizer| *finalizer != SYNCER).collect();
    Op::Release(json!({"metadata": {
        "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": others,
    }}))
}

/// Whether the user wants nothing to be written to the object.
fn is_paused(object: &Meta) -> bool {
    let annotations = object.metadata.annotations.as_ref();
    annotations
        .and_then(|annotations| annotations.get(PAUSED))
        .map(String::as_str)
        == Some(TRUE)
}

async fn work(shared: Arc<Shared>) {
    while let Some(work) = shared.queue.next().await {
        match shared.apply(work.key()).await {
            Ok(()) => drop(work),
            Err(error) => {
                let problem = errors::explain(&error);
                tracing::debug!(object = %work.key(), problem, "object not let go");
                shared
                    .progress
                    .send_if_modified(|progress| progress.problem.replace(problem.clone()) != Some(problem));
                work.retry(RETRY);
            }
        }
    }
}

/// Publishes what is left, whenever something may have changed that.
async fn count(shared: Arc<Shared>) {
    let mut health = shared.cache.health();
    loop {
        let (synced, failure) = {
            let health = health.borrow_and_update();
            (health.synced, health.failure.clone())
        };
        let remaining = synced.then(|| shared.cache.list(|_| true).len());
        let problem = failure.or_else(|| shared.paused());
        shared.progress.send_if_modified(|progress| {
            let before = progress.clone();
            progress.remaining = remaining;
            if problem.is_some() || remaining == Some(0) {
                progress.problem.clone_from(&problem);
            }
            *progress != before
        });
        tokio::select! { _ = health.changed() => {}, () = shared.counted.notified() => {} }
    }
}

// === impl Shared ===

impl Shared {
    /// Says of an object that is to go that it is paused.
    fn paused(&self) -> Option<String> {
        let is_to_go = |object: &Meta| self.mode == Mode::All || object.metadata.deletion_timestamp.is_some();
        let held = self.cache.list(|object| is_paused(object) && is_to_go(object));
        let first = held.iter().map(|object| ObjectKey::of(&**object)).min()?;
        Some(format!(
            "{first} is paused: it goes when its annotation {PAUSED} is removed"
        ))
    }

    async fn apply(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let Some(object) = self.cache.get_key(key) else {
            return Ok(());
        };
        let collection = match &*key.namespace {
            "" => format!("{}/{}", self.root, self.plural),
            namespace => format!("{}/namespaces/{namespace}/{}", self.root, self.plural),
        };
        let requests = Request::new(collection);
        let request = match plan(&object, self.mode) {
            Op::Nothing => return Ok(()),
            Op::Delete => {
                let params = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid: object.metadata.uid.clone(),
                        resource_version: None,
                    }),
                    ..DeleteParams::default()
                };
                requests.delete(&key.name, &params)
            }
            Op::Release(patch) => requests.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)),
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        match self.client.request_text(request).await {
            Ok(_) => Ok(()),
            Err(error) if errors::is_object_gone(&error, &key.name) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(deleting: bool, finalizers: &[&str]) -> Meta {
        let timestamp = deleting.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({"metadata": {
            "uid": "u", "resourceVersion": "7", "deletionTimestamp": timestamp, "finalizers": finalizers,
        }}))
        .unwrap()
    }

    #[track_caller]
    fn check(deleting: bool, finalizers: &[&str], mode: Mode, expect: &Op) {
        assert_eq!(&plan(&object(deleting, finalizers), mode), expect);
    }

    #[test]
    fn only_what_is_deleted_is_let_go_and_of_its_finalizers_only_ours() {
        let release = |others: &[&str]| {
            Op::Release(json!({"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": others}}))
        };
        check(false, &[SYNCER], Mode::Deleted, &Op::Nothing);
        check(false, &[SYNCER], Mode::All, &Op::Delete);
        check(false, &[], Mode::All, &Op::Delete);
        for (deleting, mode) in [(false, Mode::All), (true, Mode::All), (true, Mode::Deleted)] {
            let mut paused = object(deleting, &[SYNCER]);
            paused.metadata.annotations = Some([(PAUSED.to_owned(), TRUE.to_owned())].into());
            assert_eq!(plan(&paused, mode), Op::Nothing);
        }
        for mode in [Mode::Deleted, Mode::All] {
            check(true, &[SYNCER], mode, &release(&[]));
            check(true, &["other", SYNCER], mode, &release(&["other"]));
            check(true, &["other"], mode, &Op::Nothing);
        }
    }
}
