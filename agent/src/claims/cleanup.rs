//! Deletes the consumer's copies of what a provider owned, without the provider's word: for a binding that ends while its
//! provider cannot be reached.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bindery_api::{
    labels,
    v1alpha2::{GroupResource, Owner},
};
use bindery_runtime::{
    backoff::Backoff,
    cache::ObjectKey,
    client::Clients,
    errors,
    queue::{Lane, Queue},
    watch::{self, Event, Source},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Client,
    api::{DeleteParams, Preconditions},
    core::Request,
};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::{sync::watch as channel, time::sleep};
use tokio_util::task::AbortOnDropHandle;

use super::discovery;
use crate::{release::Released, sync::BoundResource};

const RETRY: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(30));

/// Deletes until dropped.
#[derive(Debug)]
pub struct Cleanup {
    progress: channel::Receiver<Released>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// What is left of each resource; `None` before it was listed.
type Left = BTreeMap<GroupResource, Option<BTreeMap<ObjectKey, String>>>;

struct Shared {
    left: Mutex<Left>,
    problems: Mutex<BTreeMap<GroupResource, String>>,
    progress: channel::Sender<Released>,
}

/// A copy, as far as it matters here.
#[derive(Clone, Debug, Deserialize)]
struct Meta {
    metadata: ObjectMeta,
}

struct Decode;

impl watch::Decode for Decode {
    type Object = Meta;

    fn decode(&self, json: &str) -> serde_json::Result<Meta> {
        serde_json::from_str(json)
    }
}

// === impl Cleanup ===

impl Cleanup {
    /// Starts to delete the copies of these resources that the contract of this UID brought.
    pub fn start(consumer: &Clients, contract_uid: &str, resources: Vec<GroupResource>) -> Self {
        let left = resources.iter().map(|resource| (resource.clone(), None)).collect();
        let shared = Arc::new(Shared {
            left: Mutex::new(left),
            problems: Mutex::default(),
            progress: channel::Sender::default(),
        });
        shared.publish();
        let selector = format!(
            "{}={},{}={contract_uid}",
            labels::OWNER,
            Owner::Provider,
            labels::CONTRACT_UID
        );
        let tasks = resources.into_iter().map(|resource| {
            let shared = Arc::clone(&shared);
            let (consumer, selector) = (consumer.clone(), selector.clone());
            AbortOnDropHandle::new(tokio::spawn(clean(shared, consumer, resource, selector)))
        });
        Self {
            _tasks: tasks.collect(),
            progress: shared.progress.subscribe(),
        }
    }

    /// How far it has come, to read or to wait for.
    pub fn progress(&self) -> channel::Receiver<Released> {
        self.progress.clone()
    }
}

async fn clean(shared: Arc<Shared>, consumer: Clients, resource: GroupResource, selector: String) {
    let served = find(&shared, &consumer.write, &resource).await;
    let Some(served) = served else {
        // A resource that is not served has no copies.
        shared.set(&resource, |left| *left = Some(BTreeMap::new()));
        return;
    };
    let queue = Queue::new();
    let source = Source::path(served.collection("")).labels(selector);
    let watch = watch::run(
        consumer.watch,
        source,
        Decode,
        sink(Arc::clone(&shared), resource.clone(), queue.clone()),
    );
    tokio::join!(watch, delete(shared, consumer.write, resource, served, queue));
}

async fn find(shared: &Shared, client: &Client, resource: &GroupResource) -> Option<BoundResource> {
    for attempt in 0.. {
        match discovery::served(client, resource).await {
            Ok(served) => {
                shared.problem(resource, None);
                return discovery::highest(resource, &served);
            }
            Err(error) => shared.problem(resource, Some(errors::explain(&error))),
        }
        sleep(RETRY.delay(attempt)).await;
    }
    None
}

fn sink(shared: Arc<Shared>, resource: GroupResource, queue: Queue<ObjectKey>) -> impl FnMut(Event<Meta>) + Send {
    let mut listed = BTreeMap::new();
    move |event| match event {
        Event::Reset => listed.clear(),
        Event::Listed(object) => {
            let (key, uid) = entry(&object);
            listed.insert(key, uid);
        }
        Event::Unreadable(named) => {
            listed.insert(ObjectKey::new(named.namespace, named.name), String::new());
        }
        Event::Complete(_) => {
            let listed = std::mem::take(&mut listed);
            for key in listed.keys() {
                queue.add(key.clone(), Lane::Backlog);
            }
            shared.set(&resource, |left| *left = Some(listed));
        }
        Event::Applied(object) => {
            let (key, uid) = entry(&object);
            queue.add(key.clone(), Lane::Live);
            shared.set(&resource, |left| drop(left.get_or_insert_default().insert(key, uid)));
        }
        Event::Deleted(object) => {
            let (key, _) = entry(&object);
            shared.set(&resource, |left| drop(left.get_or_insert_default().remove(&key)));
        }
        Event::Failed(error) => shared.problem(&resource, Some(errors::explain(&error))),
        Event::Following => shared.problem(&resource, None),
    }
}

fn entry(object: &Meta) -> (ObjectKey, String) {
    let meta = &object.metadata;
    let key = ObjectKey::new(
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    );
    (key, meta.uid.clone().unwrap_or_default())
}

async fn delete(
    shared: Arc<Shared>,
    client: Client,
    resource: GroupResource,
    served: BoundResource,
    queue: Queue<ObjectKey>,
) {
    while let Some(work) = queue.next().await {
        let key = work.key().clone();
        let Some(uid) = shared.uid(&resource, &key) else {
            continue;
        };
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid).filter(|uid| !uid.is_empty()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let request = Request::new(served.collection(&key.namespace)).delete(&key.name, &params);
        let outcome = match request.map_err(kube::Error::BuildRequest) {
            Ok(request) => client.request_text(request).await,
            Err(error) => Err(error),
        };
        match outcome {
            // The watch shows its end.
            Ok(_) => drop(work),
            Err(error) if errors::is_object_gone(&error, &key.name) => drop(work),
            Err(error) => {
                shared.problem(&resource, Some(format!("{key}: {}", errors::explain(&error))));
                work.retry(RETRY);
            }
        }
    }
}

// === impl Shared ===

impl Shared {
    fn uid(&self, resource: &GroupResource, key: &ObjectKey) -> Option<String> {
        let left = self.left.lock();
        left.get(resource)?.as_ref()?.get(key).cloned()
    }

    fn set(&self, resource: &GroupResource, change: impl FnOnce(&mut Option<BTreeMap<ObjectKey, String>>)) {
        if let Some(left) = self.left.lock().get_mut(resource) {
            change(left);
        }
        self.publish();
    }

    fn problem(&self, resource: &GroupResource, problem: Option<String>) {
        let mut problems = self.problems.lock();
        match problem {
            Some(problem) => drop(problems.insert(resource.clone(), format!("{resource}: {problem}"))),
            None => drop(problems.remove(resource)),
        }
        drop(problems);
        self.publish();
    }

    fn publish(&self) {
        let left = self.left.lock();
        let remaining = left
            .values()
            .map(|left| Some(left.as_ref()?.len()))
            .sum::<Option<usize>>();
        let problem = self.problems.lock().values().next().cloned();
        let released = Released { remaining, problem };
        self.progress.send_if_modified(|before| {
            let news = *before != released;
            *before = released;
            news
        });
    }
}
