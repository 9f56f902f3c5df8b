//! Puts what the watches show into the index, and queues what changed.

use std::sync::{Arc, Weak};

use bindery_runtime::{cache::ObjectKey, queue::Lane, watch::Event};

use super::{
    engine::Shared,
    flavour::Flavour,
    index::Listing,
    object::{Meta, Object, Version},
    report::Watched,
};

/// The sink of the watch of the consumer's objects.
pub(crate) fn consumer<F: Flavour>(shared: Arc<Shared<F>>) -> impl FnMut(Event<Object>) + Send {
    let mut listing = Listing::default();
    let mut is_rewound = false;
    move |event| {
        shared.watch_state(&Watched::Consumer, &event);
        if !matches!(event, Event::Complete(_)) {
            shared.flavour.hear(&event);
        }
        match event {
            Event::Rewound => {
                is_rewound = true;
                shared.index.lock().consumer_rewound();
            }
            Event::Reset => listing = Listing::default(),
            Event::Listed(object) => {
                let key = key_of(&object);
                shared.index.lock().consumer_seen(&key, object);
                listing.saw(key);
            }
            Event::Unreadable(named) => listing.saw(ObjectKey::new(named.namespace, named.name)),
            Event::Complete(version) => {
                let listing = std::mem::take(&mut listing);
                let mut index = shared.index.lock();
                let gone = index.consumer_listed(&listing, parse(&version));
                let keys = index.keys();
                let places = index.listed_places();
                // Before others draw conclusions from what is missing.
                shared.begin_count(std::mem::take(&mut is_rewound));
                drop(index);
                shared.count_missing();
                shared.flavour.hear(&Event::Complete(version));
                shared.enqueue(gone.into_iter().chain(keys), Lane::Backlog);
                for place in &places {
                    shared.look_at_place(place, Lane::Backlog);
                }
            }
            Event::Applied(object) => {
                let key = key_of(&object);
                if shared.index.lock().consumer_seen(&key, object) {
                    shared.queue.add(key, Lane::Live);
                }
            }
            Event::Deleted(object) => {
                let key = key_of(&object);
                shared.index.lock().consumer_deleted(&key, Some(&object.meta.uid));
                shared.queue.add(key, Lane::Live);
            }
            Event::Failed(_) | Event::Following => {}
        }
    }
}

/// The sink of the watch of one provider namespace, which holds the copies of one consumer namespace. It keeps no engine
/// alive, for the engine holds the watch.
pub(crate) fn provider_namespace<F: Flavour>(
    shared: Weak<Shared<F>>,
    consumer_namespace: Arc<str>,
    namespace: Arc<str>,
) -> impl FnMut(Event<Object>) + Send {
    let mut listing = Listing::default();
    let mut is_rewound = false;
    move |event| {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        shared.watch_state(&Watched::Provider(Arc::clone(&namespace)), &event);
        match event {
            Event::Rewound => {
                is_rewound = F::HAS_PROVIDERS_SOURCES;
                shared.index.lock().provider_rewound(&consumer_namespace);
            }
            Event::Reset => listing = Listing::default(),
            Event::Listed(object) => {
                listing.saw(ObjectKey::new(
                    Arc::clone(&consumer_namespace),
                    Arc::clone(&object.meta.name),
                ));
                if let Some(key) = shared.source_of(&consumer_namespace, &object.meta) {
                    shared.index.lock().provider_seen(&key, object);
                }
            }
            Event::Unreadable(named) => listing.saw(ObjectKey::new(Arc::clone(&consumer_namespace), named.name)),
            Event::Complete(version) => {
                let mut index = shared.index.lock();
                let listing = std::mem::take(&mut listing);
                shared.begin_count(std::mem::take(&mut is_rewound));
                let gone = index.provider_listed(&consumer_namespace, &listing, parse(&version));
                let keys = index.keys_in(&consumer_namespace);
                shared.enqueue(gone.into_iter().chain(keys), Lane::Backlog);
                shared.look_at_place(&consumer_namespace, Lane::Backlog);
            }
            other => live(&shared, &consumer_namespace, other),
        }
    }
}

/// The sink of a watch over the whole provider: objects outside the places in use are none of ours.
pub(crate) fn provider_cluster<F: Flavour>(shared: Arc<Shared<F>>) -> impl FnMut(Event<Object>) + Send {
    // By provider namespace, mapped or not: places are assigned while a long list runs.
    let mut listed: Vec<(Arc<str>, Arc<str>)> = Vec::new();
    let mut is_rewound = false;
    move |event| {
        shared.watch_state(&Watched::Provider("".into()), &event);
        match event {
            Event::Rewound => {
                is_rewound = F::HAS_PROVIDERS_SOURCES;
                let mut index = shared.index.lock();
                for namespace in index.listed_places() {
                    index.provider_rewound(&namespace);
                }
            }
            Event::Reset => listed.clear(),
            Event::Listed(object) => {
                listed.push((Arc::clone(&object.meta.namespace), Arc::clone(&object.meta.name)));
                let mut index = shared.index.lock();
                let consumer_namespace = index.consumer_namespace(&object.meta.namespace);
                if let Some(key) = consumer_namespace.and_then(|namespace| shared.source_of(&namespace, &object.meta)) {
                    index.provider_seen(&key, object);
                }
            }
            Event::Unreadable(named) => listed.push((named.namespace, named.name)),
            Event::Complete(version) => {
                let mut index = shared.index.lock();
                shared.begin_count(std::mem::take(&mut is_rewound));
                let mut listing = Listing::default();
                for (namespace, name) in std::mem::take(&mut listed) {
                    if let Some(consumer_namespace) = index.consumer_namespace(&namespace) {
                        listing.saw(ObjectKey::new(consumer_namespace, name));
                    }
                }
                for namespace in index.listed_places() {
                    let gone = index.provider_listed(&namespace, &listing, parse(&version));
                    let keys = index.keys_in(&namespace);
                    shared.enqueue(gone.into_iter().chain(keys), Lane::Backlog);
                }
            }
            Event::Applied(ref object) | Event::Deleted(ref object) => {
                let namespace = shared.index.lock().consumer_namespace(&object.meta.namespace);
                if let Some(namespace) = namespace {
                    live(&shared, &namespace, event);
                }
            }
            Event::Failed(_) | Event::Following => {}
        }
    }
}

fn live<F: Flavour>(shared: &Shared<F>, consumer_namespace: &Arc<str>, event: Event<Object>) {
    match event {
        Event::Applied(object) => {
            let Some(key) = shared.source_of(consumer_namespace, &object.meta) else {
                return;
            };
            if shared.index.lock().provider_seen(&key, object) {
                shared.queue.add(key, Lane::Live);
            }
        }
        Event::Deleted(object) => {
            let Some(key) = shared.source_of(consumer_namespace, &object.meta) else {
                return;
            };
            shared.index.lock().provider_deleted(&key, Some(&object.meta.uid));
            shared.queue.add(key, Lane::Live);
        }
        _ => {}
    }
}

fn key_of(object: &Object) -> ObjectKey {
    ObjectKey::new(Arc::clone(&object.meta.namespace), Arc::clone(&object.meta.name))
}

/// A version that cannot be read is older than all: nothing counts as gone on its word.
fn parse(version: &str) -> Version {
    Version(version.parse().unwrap_or(0))
}

impl<F: Flavour> Shared<F> {
    /// The object that a copy in the place of a consumer namespace was made of, or would be. Names come from the other
    /// cluster, and go into the paths of requests: what is no name of an object is nobody's.
    fn source_of(&self, consumer_namespace: &Arc<str>, copy: &Meta) -> Option<ObjectKey> {
        let name = self.frame.placement.source_name(&self.frame.contract, copy)?;
        if name.is_empty() || matches!(&*name, "." | "..") || name.contains(['/', '%', '?', '#']) {
            return None;
        }
        Some(ObjectKey::new(Arc::clone(consumer_namespace), name))
    }

    fn watch_state(&self, watched: &Watched, event: &Event<Object>) {
        let failure = match event {
            Event::Failed(error) => Some(error),
            Event::Rewound | Event::Reset | Event::Listed(_) | Event::Unreadable(_) => return,
            _ => None,
        };
        let mut issues = self.issues.lock();
        if issues.set_watch(watched.clone(), failure) {
            let waiting = issues.transient();
            drop(issues);
            self.enqueue(waiting, Lane::Live);
        }
        self.changed.notify_one();
    }

    pub(crate) fn enqueue(&self, keys: impl IntoIterator<Item = ObjectKey>, lane: Lane) {
        for key in keys {
            self.queue.add(key, lane);
        }
        self.changed.notify_one();
    }
}
