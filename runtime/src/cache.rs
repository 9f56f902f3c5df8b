//! All objects of a kind, kept current by a watch, for those who decide.

use std::{fmt, hash::Hash, sync::Arc};

use kube::{Client, Resource};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::watch as channel;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    errors,
    queue::Lane,
    watch::{self, Decode, Event, Name, Source},
};

mod objects;

use objects::Objects;

/// Namespace and name of an object; the namespace is empty for cluster-scoped ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Namespace, or empty.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

/// A change of one object in a cache.
#[derive(Debug)]
pub struct Change<'a, K> {
    /// Which object.
    pub key: &'a ObjectKey,
    /// What the cache held before.
    pub old: Option<&'a Arc<K>>,
    /// What it holds now; `None` when the object is gone.
    pub new: Option<&'a Arc<K>>,
    /// Whether this happened now or was found in a list.
    pub lane: Lane,
}

type Handler<K> = Arc<dyn Fn(&Change<'_, K>) + Send + Sync>;

/// A cache. Clones share one watch, which ends with the last of them.
pub struct Cache<K> {
    shared: Arc<Shared<K>>,
    pump: Arc<AbortOnDropHandle<()>>,
}

struct Shared<K> {
    /// Whoever reads does so recursively: a handler that is told of all there is may read the cache itself, or one whose own
    /// handlers read this one, though somebody waits to write meanwhile.
    objects: RwLock<Objects<K>>,
    handlers: RwLock<Vec<(u64, Handler<K>)>>,
    health: channel::Sender<Health>,
}

/// How a cache's watch is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// A complete list was seen once, so that what is missing in the cache was missing then.
    pub synced: bool,
    /// What the API server last refused, or why it cannot be reached; `None` while all is well.
    pub failure: Option<String>,
}

/// Keeps a handler called; dropping it ends that.
#[must_use = "a dropped subscription ends at once"]
pub struct Subscription {
    end: Option<Box<dyn FnOnce() + Send + Sync>>,
}

// === impl ObjectKey ===

impl ObjectKey {
    /// Key of a namespaced object, or, with an empty namespace, of a cluster-scoped one.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Key of an object.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self::new(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

// === impl Cache ===

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            pump: Arc::clone(&self.pump),
        }
    }
}

impl<K> fmt::Debug for Cache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("objects", &self.shared.objects.read_recursive().len())
            .field("running", &!self.pump.is_finished())
            .finish_non_exhaustive()
    }
}

impl<K> Cache<K>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    /// Starts to watch.
    pub fn start(client: Client, source: Source) -> Self {
        let shared = Arc::new(Shared {
            objects: RwLock::default(),
            handlers: RwLock::default(),
            health: channel::Sender::default(),
        });
        let sink = sink(Arc::clone(&shared));
        let pump = tokio::spawn(watch::run(
            client,
            source,
            Typed(std::marker::PhantomData::<fn() -> K>),
            sink,
        ));
        Self {
            shared,
            pump: Arc::new(AbortOnDropHandle::new(pump)),
        }
    }

    /// One object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.shared.objects.read_recursive().get(namespace, name).cloned()
    }

    /// One object by its key.
    pub fn get_key(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.get(&key.namespace, &key.name)
    }

    /// All objects that a filter admits, in no order.
    pub fn list(&self, admit: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let objects = self.shared.objects.read_recursive();
        objects.values().filter(|object| admit(object)).cloned().collect()
    }

    /// All objects of a namespace, in no order.
    pub fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        let objects = self.shared.objects.read_recursive();
        objects.in_namespace(namespace).cloned().collect()
    }

    /// How the watch is doing, to read or to wait for.
    pub fn health(&self) -> channel::Receiver<Health> {
        self.shared.health.subscribe()
    }

    /// True once a complete list was seen.
    pub fn is_synced(&self) -> bool {
        self.shared.health.borrow().synced
    }

    /// Waits until a complete list was seen.
    pub async fn synced(&self) {
        // The sender lives in this cache, so waiting cannot fail.
        let _ = self.health().wait_for(|health| health.synced).await;
    }

    /// Calls a handler for every change from now on, after a first call for every object there is. Handlers run inside
    /// the watch: they note what to do and do not do it.
    pub fn subscribe(&self, handler: impl Fn(&Change<'_, K>) + Send + Sync + 'static) -> Subscription {
        let handler: Handler<K> = Arc::new(handler);
        // Holding the objects keeps changes away until the handler has seen all there is.
        let objects = self.shared.objects.read_recursive();
        let id = {
            let mut handlers = self.shared.handlers.write();
            let id = handlers.last().map_or(0, |(last, _)| last + 1);
            handlers.push((id, Arc::clone(&handler)));
            id
        };
        for (key, object) in objects.iter() {
            handler(&Change {
                key: &key,
                old: None,
                new: Some(object),
                lane: Lane::Backlog,
            });
        }
        drop(objects);
        let shared = Arc::downgrade(&self.shared);
        Subscription {
            end: Some(Box::new(move || {
                if let Some(shared) = shared.upgrade() {
                    shared.handlers.write().retain(|(other, _)| *other != id);
                }
            })),
        }
    }
}

fn sink<K: Resource + Send + Sync + 'static>(shared: Arc<Shared<K>>) -> impl FnMut(Event<K>) + Send {
    let mut listed: Option<Objects<K>> = None;
    move |event| match event {
        Event::Reset => listed = Some(Objects::default()),
        Event::Listed(object) => {
            if let Some(listed) = &mut listed {
                listed.insert(&ObjectKey::of(&object), Arc::new(object));
            }
        }
        Event::Unreadable(Name { namespace, name }) => {
            // As it was last read: that it is there now is certain, and its absence would be taken for an end.
            let known = shared.objects.read().get(&namespace, &name).cloned();
            if let Some((listed, known)) = listed.as_mut().zip(known) {
                listed.insert(&ObjectKey::new(namespace, name), known);
            }
        }
        Event::Complete(_) => {
            if let Some(listed) = listed.take() {
                shared.replace(&listed);
            }
            shared.health.send_if_modified(|health| {
                let well = Health {
                    synced: true,
                    failure: None,
                };
                std::mem::replace(health, well.clone()) != well
            });
        }
        Event::Following => shared.well(),
        // A list replaces all that was known, whatever its versions.
        Event::Rewound => {}
        Event::Applied(object) => {
            shared.well();
            shared.set(&ObjectKey::of(&object), Some(&Arc::new(object)), Lane::Live);
        }
        Event::Deleted(object) => {
            shared.well();
            shared.set(&ObjectKey::of(&object), None, Lane::Live);
        }
        Event::Failed(error) => {
            let failure = errors::explain(&error);
            shared
                .health
                .send_if_modified(|health| health.failure.replace(failure.clone()) != Some(failure));
        }
    }
}

// === impl Shared ===

impl<K: Resource> Shared<K> {
    fn well(&self) {
        self.health.send_if_modified(|health| health.failure.take().is_some());
    }

    fn set(&self, key: &ObjectKey, new: Option<&Arc<K>>, lane: Lane) {
        let old = {
            let mut objects = self.objects.write();
            match new {
                Some(object) => objects.insert(key, Arc::clone(object)),
                None => objects.remove(key),
            }
        };
        let handlers = self.handlers.read().clone();
        for (_, handler) in handlers {
            handler(&Change {
                key,
                old: old.as_ref(),
                new,
                lane,
            });
        }
    }

    /// Takes over a complete list: only what differs is a change.
    fn replace(&self, listed: &Objects<K>) {
        let gone: Vec<ObjectKey> = {
            let objects = self.objects.read();
            let known = objects.iter().map(|(key, _)| key);
            known
                .filter(|key| listed.get(&key.namespace, &key.name).is_none())
                .collect()
        };
        for key in gone {
            self.set(&key, None, Lane::Backlog);
        }
        for (key, object) in listed.iter() {
            let known = self.objects.read().get(&key.namespace, &key.name).is_some_and(|known| {
                known.meta().resource_version == object.meta().resource_version && known.meta().uid == object.meta().uid
            });
            if !known {
                self.set(&key, Some(object), Lane::Backlog);
            }
        }
    }
}

// === impl Subscription ===

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end();
        }
    }
}

/// Decodes whole objects and forgets who manages which of their fields.
struct Typed<K>(std::marker::PhantomData<fn() -> K>);

impl<K: Resource + DeserializeOwned + Send> Decode for Typed<K> {
    type Object = K;

    fn decode(&self, json: &str) -> serde_json::Result<K> {
        let mut object: K = serde_json::from_str(json)?;
        object.meta_mut().managed_fields = None;
        Ok(object)
    }

    fn version(object: &K) -> Option<u64> {
        object.meta().resource_version.as_ref()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use parking_lot::Mutex;

    use super::*;

    fn map(name: &str, version: &str) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        map.metadata.namespace = Some("ns".to_owned());
        map.metadata.resource_version = Some(version.to_owned());
        map
    }

    #[test]
    fn a_second_list_reports_only_what_differs() {
        let shared = Arc::new(Shared {
            objects: RwLock::default(),
            handlers: RwLock::default(),
            health: channel::Sender::default(),
        });
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let handler: Handler<ConfigMap> = Arc::new(move |change: &Change<'_, ConfigMap>| {
            log.lock().push((change.key.name.to_string(), change.new.is_some()));
        });
        shared.handlers.write().push((0, handler));
        let mut sink = sink(Arc::clone(&shared));
        let mut list = |objects: Vec<ConfigMap>| {
            sink(Event::Reset);
            for object in objects {
                sink(Event::Listed(object));
            }
            sink(Event::Complete("9".to_owned()));
            let mut changes = std::mem::take(&mut *seen.lock());
            changes.sort();
            changes
        };
        let change = |name: &str, there: bool| (name.to_owned(), there);
        assert_eq!(
            list(vec![map("a", "1"), map("b", "1")]),
            [change("a", true), change("b", true)]
        );
        assert_eq!(
            list(vec![map("a", "1"), map("c", "2")]),
            [change("b", false), change("c", true)]
        );
        assert_eq!(list(vec![map("a", "1"), map("c", "3")]), [change("c", true)]);
        assert!(shared.health.borrow().synced);
    }

    #[tokio::test]
    async fn a_handler_may_read_the_cache_though_somebody_waits_to_write() {
        let cache = Cache {
            shared: Arc::new(Shared {
                objects: RwLock::default(),
                handlers: RwLock::default(),
                health: channel::Sender::default(),
            }),
            pump: Arc::new(AbortOnDropHandle::new(tokio::spawn(std::future::pending()))),
        };
        let first = Arc::new(map("a", "1"));
        cache.shared.set(&ObjectKey::of(&*first), Some(&first), Lane::Live);
        let (sender, found) = std::sync::mpsc::channel();
        let task = std::thread::spawn(move || {
            let (inner, writer) = (cache.clone(), Arc::clone(&cache.shared));
            let _subscription = cache.subscribe(move |_| {
                let writer = Arc::clone(&writer);
                let shared = Arc::clone(&writer);
                std::thread::spawn(move || {
                    let second = Arc::new(map("b", "1"));
                    writer.objects.write().insert(&ObjectKey::of(&*second), second);
                });
                // Nobody else can begin to read once somebody waits to write.
                while shared.objects.try_read().is_some() {
                    std::thread::yield_now();
                }
                let one = inner.get("ns", "a").is_some();
                let _ = sender.send((one, inner.list(|_| true).len(), inner.list_in("ns").len()));
            });
        });
        let found = tokio::task::spawn_blocking(move || found.recv_timeout(std::time::Duration::from_secs(30)));
        assert_eq!(found.await.unwrap().expect("it hangs"), (true, 1, 1));
        task.join().unwrap();
    }

    #[test]
    fn an_object_that_cannot_be_read_stays_as_it_was() {
        let shared = Arc::new(Shared {
            objects: RwLock::default(),
            handlers: RwLock::default(),
            health: channel::Sender::default(),
        });
        let mut sink = sink(Arc::clone(&shared));
        for event in [
            Event::Reset,
            Event::Listed(map("a", "1")),
            Event::Complete("1".to_owned()),
            Event::Reset,
            Event::Unreadable(Name {
                namespace: "ns".into(),
                name: "a".into(),
            }),
            Event::Unreadable(Name {
                namespace: "ns".into(),
                name: "never-read".into(),
            }),
            Event::Complete("2".to_owned()),
        ] {
            sink(event);
        }
        let known: Vec<_> = shared.objects.read().iter().map(|(key, _)| key.to_string()).collect();
        assert_eq!(known, ["ns/a"]);
    }
}
