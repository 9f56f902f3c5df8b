//! A cache of all objects of a kind, kept current by a watch (a shared informer).

use std::{
    fmt,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use kube::{Client, Resource};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::{sync::watch as channel, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    errors,
    guard::Held,
    queue::Priority,
    watch::{self, Decode, Event, ObjectName, Source},
};

mod objects;

use objects::Objects;

/// Key of an object in a cache or queue: its namespace, empty for a cluster-scoped object, and its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

/// A change of one object in a cache.
#[derive(Debug)]
pub struct Change<'a, K> {
    /// Key of the object.
    pub key: &'a ObjectKey,
    /// The object as the cache held it before; `None` if it is new.
    pub old: Option<&'a Arc<K>>,
    /// The object as the cache holds it now; `None` if it was deleted.
    pub new: Option<&'a Arc<K>>,
    /// Whether the object changed just now or was found in a list.
    pub priority: Priority,
}

type Handler<K> = Arc<dyn Fn(&Change<'_, K>) + Send + Sync>;

/// A cache of objects of one kind. Clones share one watch, which ends when the last of them is dropped.
pub struct Cache<K> {
    shared: Arc<Shared<K>>,
    watch: Arc<AbortOnDropHandle<()>>,
}

struct Shared<K> {
    /// Locked recursively by readers: a handler may read this cache while [`Cache::subscribe`] holds the lock, even if a writer
    /// waits for it.
    objects: RwLock<Objects<K>>,
    handlers: RwLock<Vec<(u64, Handler<K>)>>,
    health: channel::Sender<Health>,
    /// Whether the watch is interrupted. No part of the health, as each watch ends after minutes, which nobody has to be woken for.
    is_interrupted: AtomicBool,
}

/// Health of a cache's watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// When the last complete list was seen: an object that the cache lacks did not exist then. `None` before the first one.
    pub listed: Option<Instant>,
    /// Why the last request failed; `None` if it succeeded.
    pub failure: Option<String>,
}

/// A registered handler; dropping it removes the handler.
#[must_use = "a dropped subscription ends at once"]
pub struct Subscription {
    end: Option<Box<dyn FnOnce() + Send + Sync>>,
}

// === impl Health ===

impl Health {
    /// Whether a complete list was seen.
    pub fn is_synced(&self) -> bool {
        self.listed.is_some()
    }
}

// === impl ObjectKey ===

impl ObjectKey {
    /// Makes the key of a namespaced object, or, with an empty namespace, of a cluster-scoped one.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Returns the key of an object.
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
            watch: Arc::clone(&self.watch),
        }
    }
}

impl<K> fmt::Debug for Cache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("objects", &self.shared.objects.read_recursive().len())
            .field("running", &!self.watch.is_finished())
            .finish_non_exhaustive()
    }
}

impl<K> Cache<K>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    /// Starts a watch in a task of its own, and returns the cache that it fills.
    pub fn start(client: Client, source: Source) -> Self {
        Self::start_with(client, source, |_| {})
    }

    /// As [`Cache::start`], with each object changed by `prepare` before the cache takes it over.
    pub fn start_with(client: Client, source: Source, prepare: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared::default());
        let handler = event_handler(Arc::clone(&shared));
        let prepare = Box::new(prepare);
        let task = tokio::spawn(watch::run(client, source, Typed { prepare }, handler));
        Self {
            shared,
            watch: Arc::new(AbortOnDropHandle::new(task)),
        }
    }

    /// Returns one object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.shared.objects.read_recursive().get(namespace, name).cloned()
    }

    /// Returns one object by its key.
    pub fn get_key(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.get(&key.namespace, &key.name)
    }

    /// Returns all objects that a filter admits, in no order.
    pub fn list(&self, admit: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let objects = self.shared.objects.read_recursive();
        objects.values().filter(|object| admit(object)).cloned().collect()
    }

    /// Returns all objects of a namespace, in no order.
    pub fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        let objects = self.shared.objects.read_recursive();
        objects.in_namespace(namespace).cloned().collect()
    }

    /// Whether the watch has ended, and has not been opened again: the cluster may have been restored from a backup since.
    pub fn is_interrupted(&self) -> bool {
        self.shared.is_interrupted.load(Ordering::Relaxed)
    }

    /// Returns the health of the watch, to read or to wait for.
    pub fn health(&self) -> channel::Receiver<Health> {
        self.shared.health.subscribe()
    }

    /// Whether a complete list was seen.
    pub fn is_synced(&self) -> bool {
        self.shared.health.borrow().is_synced()
    }

    /// Waits until a complete list was seen.
    pub async fn synced(&self) {
        // The sender lives in this cache, so waiting cannot fail.
        let _ = self.health().wait_for(Health::is_synced).await;
    }

    /// Registers a handler, which is called for every object that there is and then for every change. Handlers run inside the
    /// watch and delay it: they should only queue keys.
    pub fn subscribe(&self, handler: impl Fn(&Change<'_, K>) + Send + Sync + 'static) -> Subscription {
        let handler: Handler<K> = Arc::new(handler);
        // While the lock is held, no change comes before the handler has seen all objects.
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
                priority: Priority::Backlog,
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

/// Returns the event handler that fills a cache.
fn event_handler<K: Resource + Send + Sync + 'static>(shared: Arc<Shared<K>>) -> impl FnMut(Event<Shown<K>>) + Send {
    let mut listed: Option<Objects<K>> = None;
    move |event| match event {
        Event::Reset => listed = Some(Objects::default()),
        Event::Listed(Shown { object, held }) => {
            if let Some(listed) = &mut listed {
                listed.insert(&ObjectKey::of(&object), Arc::new(object), held);
            }
        }
        Event::Unreadable(ObjectName { namespace, name }) => {
            // It certainly exists, and leaving it out would report it as deleted, so it stays as it was last decoded.
            let known = shared.objects.read().entry(&namespace, &name);
            if let Some((listed, (known, held))) = listed.as_mut().zip(known) {
                listed.insert(&ObjectKey::new(namespace, name), known, held);
            }
        }
        Event::Complete(_) => {
            if let Some(listed) = listed.take() {
                shared.replace(listed);
            }
            shared.health.send_if_modified(|health| {
                let well = Health {
                    listed: Some(Instant::now()),
                    failure: None,
                };
                std::mem::replace(health, well.clone()) != well
            });
        }
        Event::Following => {
            shared.is_interrupted.store(false, Ordering::Relaxed);
            shared.recovered();
        }
        Event::Ended => shared.is_interrupted.store(true, Ordering::Relaxed),
        // A list replaces all that was known, whatever its versions.
        Event::Rewound => {}
        Event::Applied(Shown { object, held }) => {
            shared.recovered();
            shared.set(&ObjectKey::of(&object), Some((&Arc::new(object), held)), Priority::Live);
        }
        Event::Deleted(Shown { object, .. }) => {
            shared.recovered();
            shared.set(&ObjectKey::of(&object), None, Priority::Live);
        }
        Event::Failed(error) => {
            // A list that broke off is begun anew.
            listed = None;
            let failure = errors::explain(&error);
            shared
                .health
                .send_if_modified(|health| health.failure.replace(failure.clone()) != Some(failure));
        }
    }
}

// === impl Shared ===

impl<K> Default for Shared<K> {
    fn default() -> Self {
        Self {
            objects: RwLock::default(),
            handlers: RwLock::default(),
            health: channel::Sender::default(),
            is_interrupted: AtomicBool::new(false),
        }
    }
}

impl<K: Resource> Shared<K> {
    /// Clears the failure.
    fn recovered(&self) {
        self.health.send_if_modified(|health| health.failure.take().is_some());
    }

    /// Stores or removes an object, and calls the handlers.
    fn set(&self, key: &ObjectKey, new: Option<(&Arc<K>, Option<Box<Held>>)>, priority: Priority) {
        let (new, held) = new.unzip();
        let old = {
            let mut objects = self.objects.write();
            match new {
                Some(object) => objects.insert(key, Arc::clone(object), held.flatten()),
                None => objects.remove(key),
            }
        };
        let handlers = self.handlers.read().clone();
        for (_, handler) in handlers {
            handler(&Change {
                key,
                old: old.as_ref(),
                new,
                priority,
            });
        }
    }

    /// Takes over a complete list; only objects whose UID or version differ are changes.
    fn replace(&self, listed: Objects<K>) {
        let gone: Vec<ObjectKey> = {
            let objects = self.objects.read();
            let known = objects.iter().map(|(key, _)| key);
            known
                .filter(|key| listed.get(&key.namespace, &key.name).is_none())
                .collect()
        };
        for key in gone {
            self.set(&key, None, Priority::Backlog);
        }
        for (key, object, held) in listed.into_entries() {
            let known = self.objects.read().get(&key.namespace, &key.name).is_some_and(|known| {
                known.meta().resource_version == object.meta().resource_version && known.meta().uid == object.meta().uid
            });
            if !known {
                self.set(&key, Some((&object, held)), Priority::Backlog);
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

/// Decodes whole objects without their managed fields.
struct Typed<K> {
    prepare: Box<dyn Fn(&mut K) + Send + Sync>,
}

/// An object as it was decoded. Of an API server that is not trusted, it counts as held.
struct Shown<K> {
    object: K,
    // Boxed: most caches are of API servers that are trusted, and have none.
    held: Option<Box<Held>>,
}

impl<K: Resource + DeserializeOwned + Send> Decode for Typed<K> {
    type Object = Shown<K>;

    const COUNTS_OBJECTS: bool = true;

    fn decode(&self, json: &str) -> serde_json::Result<Shown<K>> {
        let mut object: K = serde_json::from_str(json)?;
        object.meta_mut().managed_fields = None;
        (self.prepare)(&mut object);
        Ok(Shown { object, held: None })
    }

    fn version(shown: &Shown<K>) -> Option<u64> {
        shown.object.meta().resource_version.as_ref()?.parse().ok()
    }

    fn name(shown: &Shown<K>) -> (&str, &str) {
        let meta = shown.object.meta();
        (
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }

    fn hold(shown: &mut Shown<K>, held: Held) {
        shown.held = Some(Box::new(held));
    }
}

#[cfg(test)]
mod tests;
