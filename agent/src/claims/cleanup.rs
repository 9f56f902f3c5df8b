//! Deletes the consumer's copies of what a provider owned, without the provider's word: for a binding that ends while its
//! provider cannot be reached.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bindery_api::{
    annotations::{PAUSED, TRUE},
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
use crate::{model::BoundResource, release::Released};

const RETRY: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(30));

/// Deletes until dropped.
#[derive(Debug)]
pub struct Cleanup {
    progress: channel::Receiver<Released>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// What is left of each resource; `None` before it was listed.
type Left = BTreeMap<GroupResource, Option<Copies>>;
type Copies = BTreeMap<ObjectKey, Found>;

/// What was found under a name.
#[derive(Clone, Debug, PartialEq)]
enum Found {
    /// A copy of this UID, which is to go.
    Copy(String),
    /// Its user wants it left alone.
    Paused,
    /// It may be anything.
    Unreadable,
}

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
            let (key, found) = entry(&object);
            listed.insert(key, found);
        }
        Event::Unreadable(named) => {
            listed.insert(ObjectKey::new(named.namespace, named.name), Found::Unreadable);
        }
        Event::Complete(_) => {
            let listed = std::mem::take(&mut listed);
            for key in listed.keys() {
                queue.add(key.clone(), Lane::Backlog);
            }
            shared.set(&resource, |left| *left = Some(listed));
        }
        Event::Applied(object) => {
            let (key, found) = entry(&object);
            shared.set(&resource, |left| {
                left.get_or_insert_default().insert(key.clone(), found);
            });
            queue.add(key, Lane::Live);
        }
        Event::Deleted(object) => {
            let (key, _) = entry(&object);
            shared.set(&resource, |left| drop(left.get_or_insert_default().remove(&key)));
        }
        Event::Failed(error) => shared.problem(&resource, Some(errors::explain(&error))),
        Event::Following => shared.problem(&resource, None),
        Event::Rewound => {}
    }
}

fn entry(object: &Meta) -> (ObjectKey, Found) {
    let meta = &object.metadata;
    let key = ObjectKey::new(
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    );
    let annotations = meta.annotations.as_ref();
    let is_paused = annotations
        .and_then(|annotations| annotations.get(PAUSED))
        .map(String::as_str)
        == Some(TRUE);
    let found = match &meta.uid {
        _ if is_paused => Found::Paused,
        Some(uid) => Found::Copy(uid.clone()),
        None => Found::Unreadable,
    };
    (key, found)
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
                uid: Some(uid),
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

/// Says of the first copy that does not go why that is.
fn held(left: &Left) -> Option<String> {
    let all = left
        .iter()
        .filter_map(|(resource, copies)| Some((resource, copies.as_ref()?)));
    let mut all = all.flat_map(|(resource, copies)| copies.iter().map(move |(key, found)| (resource, key, found)));
    all.find_map(|(resource, key, found)| match found {
        Found::Copy(_) => None,
        Found::Paused => Some(format!(
            "{resource}: {key} is paused: it goes when its annotation {PAUSED} is removed"
        )),
        Found::Unreadable => Some(format!(
            "{resource}: {key} cannot be read, so that nobody knows what it is; it is left: delete it by hand"
        )),
    })
}

// === impl Shared ===

impl Shared {
    /// The UID of a copy that is to go.
    fn uid(&self, resource: &GroupResource, key: &ObjectKey) -> Option<String> {
        let left = self.left.lock();
        match left.get(resource)?.as_ref()?.get(key)? {
            Found::Copy(uid) => Some(uid.clone()),
            Found::Paused | Found::Unreadable => None,
        }
    }

    fn set(&self, resource: &GroupResource, change: impl FnOnce(&mut Option<Copies>)) {
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
        let problem = problem.or_else(|| held(&left));
        let released = Released { remaining, problem };
        self.progress.send_if_modified(|before| {
            let news = *before != released;
            *before = released;
            news
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_was_read_and_is_not_paused_goes() {
        let secrets = GroupResource::new("", "secrets");
        let shared = Arc::new(Shared {
            left: Mutex::new([(secrets.clone(), None)].into()),
            problems: Mutex::default(),
            progress: channel::Sender::default(),
        });
        let queue = Queue::new();
        let mut sink = sink(Arc::clone(&shared), secrets.clone(), queue);
        let copy = |name: &str, paused: &str| -> Meta {
            let json = json!({"metadata": {
                "namespace": "west", "name": name, "uid": format!("uid-{name}"), "annotations": {PAUSED: paused},
            }});
            serde_json::from_value(json).unwrap()
        };
        let mut list = |with_broken: bool, paused: &str| {
            sink(Event::Reset);
            sink(Event::Listed(copy("colt", "false")));
            sink(Event::Listed(copy("permit", paused)));
            if with_broken {
                sink(Event::Unreadable(watch::ObjectName {
                    namespace: "west".into(),
                    name: "broken".into(),
                }));
            }
            sink(Event::Complete("1".into()));
            shared.progress.subscribe().borrow().clone()
        };
        let says = |released: Released, remaining: usize, part: Option<&str>| {
            assert_eq!(released.remaining, Some(remaining));
            match part {
                None => assert_eq!(released.problem, None),
                Some(part) => assert!(released.problem.clone().unwrap().contains(part), "{released:?}"),
            }
        };
        says(list(true, TRUE), 3, Some("west/broken cannot be read"));
        let uid = |name: &str| shared.uid(&secrets, &ObjectKey::new("west", name));
        assert_eq!(uid("colt").as_deref(), Some("uid-colt"));
        assert_eq!((uid("permit"), uid("broken")), (None, None));
        says(list(false, TRUE), 2, Some("west/permit is paused"));
        says(list(false, "false"), 2, None);
        let uid = |name: &str| shared.uid(&secrets, &ObjectKey::new("west", name));
        assert_eq!(uid("permit").as_deref(), Some("uid-permit"), "it goes on");
    }
}
