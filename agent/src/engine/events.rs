//! Handles the events of an engine's watches: notes each object in the index, and queues it if there is something to do.

use std::sync::{Arc, Weak, atomic::Ordering};

use bindery_api::{annotations, names};
use bindery_runtime::{
    cache::ObjectKey,
    queue::Priority,
    watch::{Event, ObjectName},
};

use crate::{
    engine::{Shared, report::Watched, strategy::SyncStrategy},
    index::{Contents as _, Index, Known as _, Listing, Place},
    model::object::{Meta, Object, Version},
};

/// Returns the event handler for the watch of the consumer's objects in one namespace or, with `None`, in all. A list of a namespace tells
/// nothing of the others. Events are ignored once the engine watches other namespaces.
pub(crate) fn consumer<F: SyncStrategy>(
    shared: Arc<Shared<F>>,
    namespace: Option<Arc<str>>,
) -> impl FnMut(Event<Object>) + Send {
    let mut listing = None;
    let mut is_listed = false;
    move |event| {
        let current = || Some(shared.index.lock()).filter(|index| index.has_watch(namespace.as_deref()));
        if current().is_none() {
            return;
        }
        let watched = Watched::Consumer(namespace.clone());
        shared.watch_state(&watched, &event);
        if matches!(event, Event::Failed(_)) && current().is_none() {
            // The watch ended meanwhile: its failure would stay.
            shared.issues.lock().set_watch(watched, None);
            return;
        }
        shared.doubt_if_anew(&event, &mut is_listed);
        if !matches!(event, Event::Complete(_)) {
            shared.strategy.consumer_event(&event);
        }
        match event {
            Event::Rewound => shared.index.lock().consumer_rewound(namespace.as_ref()),
            Event::Reset => listing = Some(shared.index.lock().begin_in(namespace.as_ref())),
            Event::Listed(object) => {
                if let Some(listing) = &mut listing {
                    let key = object.key();
                    if let Some(mut index) = current() {
                        index.consumer_shown(&key, object, listing);
                    }
                }
            }
            Event::Unreadable(named) => {
                if let Some(listing) = &mut listing {
                    listing.saw(ObjectKey::new(named.namespace, named.name));
                }
            }
            Event::Complete(version) => {
                let Some(mut listing) = listing.take() else {
                    return;
                };
                let Some(mut index) = current() else {
                    return;
                };
                let gone = index.consumer_listed(&mut listing, parse(&version));
                let keys = shared.due(&mut index, namespace.as_ref());
                let places = index.places();
                // With the index locked: no deletion may rely on an older count, and no progress may show an empty queue.
                shared.tell_guard(&index);
                shared.enqueue(gone.into_iter().chain(keys), Priority::Backlog);
                drop(index);
                shared.strategy.consumer_event(&Event::Complete(version));
                // Also at those that cannot be listed: the objects tell whether they are still needed.
                for (place, _) in &places {
                    shared.look_at_place(place, Priority::Backlog);
                }
            }
            Event::Applied(object) => {
                let key = object.key();
                let Some(mut index) = current() else {
                    return;
                };
                if index.consumer_changed(&key, object) && shared.is_due(&mut index, &key) {
                    shared.changes.shown(&key);
                    shared.queue.add(key, Priority::Live);
                }
            }
            Event::Deleted(object) => {
                let key = object.key();
                if let Some(mut index) = current() {
                    index.consumer_deleted(&key, Some(&object.meta.uid));
                }
                shared.changes.shown(&key);
                shared.queue.add(key, Priority::Live);
            }
            Event::Ended | Event::Failed(_) => shared.index.lock().consumer_interrupted(namespace.as_ref()),
            Event::Following => {
                let waiting = shared.index.lock().consumer_followed(namespace.as_ref());
                shared.enqueue(waiting, Priority::Live);
            }
        }
    }
}

/// Returns the event handler for the watch of one provider namespace, which holds the copies of one consumer namespace. The
/// handler does not keep the engine alive, since the engine owns the watch.
pub(crate) fn provider_namespace<F: SyncStrategy>(
    shared: Weak<Shared<F>>,
    consumer_namespace: Arc<str>,
    namespace: Arc<str>,
) -> impl FnMut(Event<Object>) + Send {
    let mut listing = None;
    let mut is_listed = false;
    move |event| {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        shared.watch_state(&Watched::Provider(Arc::clone(&namespace)), &event);
        shared.doubt_if_anew(&event, &mut is_listed);
        match event {
            Event::Rewound => shared.index.lock().provider_rewound(&consumer_namespace),
            Event::Reset => listing = Some(shared.index.lock().begin_copies(Some(&consumer_namespace))),
            Event::Listed(object) => {
                if let Some(listing) = &mut listing {
                    shared.tell_copy(&consumer_namespace, &object);
                    shared.copy_shown(&mut shared.index.lock(), &consumer_namespace, object, listing);
                }
            }
            Event::Unreadable(named) => {
                if let Some(listing) = &mut listing {
                    listing.saw(ObjectKey::new(Arc::clone(&consumer_namespace), named.name));
                }
            }
            Event::Complete(version) => {
                let Some(mut listing) = listing.take() else {
                    return;
                };
                let mut index = shared.index.lock();
                let gone = index.provider_listed(&consumer_namespace, &mut listing, parse(&version));
                shared.tell_gone(&index, &gone);
                shared.tell_guard(&index);
                let keys = shared.due(&mut index, Some(&consumer_namespace));
                shared.enqueue(gone.into_iter().chain(keys), Priority::Backlog);
                shared.look_at_place(&consumer_namespace, Priority::Backlog);
            }
            other => live(&shared, &consumer_namespace, other),
        }
    }
}

/// Returns the event handler for a cluster-wide watch of the provider. Objects outside the namespaces in use are ignored.
pub(crate) fn provider_cluster<F: SyncStrategy>(shared: Arc<Shared<F>>) -> impl FnMut(Event<Object>) + Send {
    let mut listing: Option<Listing> = None;
    // The provider namespaces that were in use when the list began. The list shows everything in them.
    let mut places = Vec::new();
    // Objects of the list that cannot be decoded, in any namespace, since it may come into use while the list runs. All
    // other objects of such a namespace are shown by a list of its own.
    let mut unreadable: Vec<ObjectName> = Vec::new();
    let mut is_listed = false;
    move |event| {
        shared.watch_state(&Watched::Provider("".into()), &event);
        shared.doubt_if_anew(&event, &mut is_listed);
        match event {
            Event::Rewound => {
                let mut index = shared.index.lock();
                for namespace in index.listed_places() {
                    index.provider_rewound(&namespace);
                }
            }
            Event::Reset => {
                let mut index = shared.index.lock();
                listing = Some(index.begin_copies(None));
                places = index.places();
                shared.lists_places.store(true, Ordering::Relaxed);
                unreadable = Vec::new();
            }
            Event::Listed(object) => {
                let namespace = shared.index.lock().consumer_namespace(&object.meta.namespace);
                if let Some((namespace, listing)) = namespace.zip(listing.as_mut()) {
                    shared.tell_copy(&namespace, &object);
                    shared.copy_shown(&mut shared.index.lock(), &namespace, object, listing);
                }
            }
            Event::Unreadable(named) => unreadable.push(named),
            Event::Complete(version) => {
                let Some(mut listing) = listing.take() else {
                    return;
                };
                let mut index = shared.index.lock();
                for ObjectName { namespace, name } in std::mem::take(&mut unreadable) {
                    if let Some(consumer_namespace) = index.consumer_namespace(&namespace) {
                        listing.saw(ObjectKey::new(consumer_namespace, name));
                    }
                }
                for (namespace, place) in std::mem::take(&mut places) {
                    let is_same = |now: &Place| Arc::ptr_eq(&now.namespace, &place);
                    if !index.place(&namespace).is_some_and(is_same) {
                        // It was assigned while the list ran, and gets a list of its own.
                        continue;
                    }
                    let gone = index.provider_listed(&namespace, &mut listing, parse(&version));
                    shared.tell_gone(&index, &gone);
                    shared.tell_guard(&index);
                    let keys = shared.due(&mut index, Some(&namespace));
                    shared.enqueue(gone.into_iter().chain(keys), Priority::Backlog);
                    shared.look_at_place(&namespace, Priority::Backlog);
                }
            }
            Event::Applied(ref object) | Event::Deleted(ref object) => {
                let namespace = shared.index.lock().consumer_namespace(&object.meta.namespace);
                if let Some(namespace) = namespace {
                    live(&shared, &namespace, event);
                }
            }
            Event::Failed(_) => shared.list_places(),
            Event::Following | Event::Ended => {}
        }
    }
}

fn live<F: SyncStrategy>(shared: &Shared<F>, consumer_namespace: &Arc<str>, event: Event<Object>) {
    match event {
        Event::Applied(object) => {
            let Some(key) = shared.source_of(consumer_namespace, &object.meta) else {
                return;
            };
            shared.strategy.copy_shown(&key, &object);
            let mut index = shared.index.lock();
            if index.provider_seen(&key, object) && shared.is_due(&mut index, &key) {
                shared.queue.add(key, Priority::Live);
            }
        }
        Event::Deleted(object) => {
            let Some(key) = shared.source_of(consumer_namespace, &object.meta) else {
                return;
            };
            let mut index = shared.index.lock();
            index.provider_deleted(&key, Some(&object.meta.uid));
            shared.tell_gone(&index, std::slice::from_ref(&key));
            drop(index);
            shared.queue.add(key, Priority::Live);
        }
        _ => {}
    }
}

/// Parses a resource version. One that is no number counts as the oldest, so that no object counts as gone because of it.
fn parse(version: &str) -> Version {
    Version(version.parse().unwrap_or(0))
}

impl<F: SyncStrategy> Shared<F> {
    /// The key of the source of a copy in the provider namespace of a consumer namespace. Its name, which the copy's annotations may
    /// tell, comes from the other cluster and becomes a part of request paths, so one that is not valid is ignored: `None`.
    fn source_of(&self, consumer_namespace: &Arc<str>, copy: &Meta) -> Option<ObjectKey> {
        let noted = copy.annotations.get(annotations::CONSUMER_NAME);
        let placement = &self.frame.placement;
        let name = placement.source_name(&self.frame.contract, &copy.name, noted)?;
        let name: names::ObjectName = name.parse().ok()?;
        Some(ObjectKey::new(Arc::clone(consumer_namespace), name))
    }

    /// If the first cluster-wide list fails before it begins, lists every provider namespace in use by itself.
    fn list_places(self: &Arc<Self>) {
        let index = self.index.lock();
        let begun = self.lists_places.swap(true, Ordering::Relaxed);
        let places = if begun { Vec::new() } else { index.places() };
        drop(index);
        for (namespace, place) in places {
            self.watch_place(&namespace, place);
        }
    }

    /// Tells the strategy of a copy in the provider namespace of a consumer namespace.
    fn tell_copy(&self, consumer_namespace: &Arc<str>, copy: &Object) {
        if let Some(source) = self.source_of(consumer_namespace, &copy.meta) {
            self.strategy.copy_shown(&source, copy);
        }
    }

    /// Tells the strategy which copies are gone, by the keys of their sources.
    fn tell_gone(&self, index: &Index<F::Pair>, keys: &[ObjectKey]) {
        for key in keys {
            let pair = index.pair(key);
            if pair.is_none_or(|pair| pair.provider().is_none()) {
                self.strategy
                    .copy_gone(key, pair.is_some_and(|pair| pair.consumer().is_some()));
            }
        }
    }

    /// Notes a copy that a list shows in the provider namespace of a consumer namespace.
    fn copy_shown(
        &self,
        index: &mut Index<F::Pair>,
        consumer_namespace: &Arc<str>,
        object: Object,
        listing: &mut Listing,
    ) {
        let source = self.source_of(consumer_namespace, &object.meta);
        let copy = ObjectKey::new(Arc::clone(consumer_namespace), Arc::clone(&object.meta.name));
        index.provider_shown(source.as_ref(), copy, object, listing);
    }

    /// The keys to queue after a list, of one consumer namespace or of all. Objects in sync need no worker.
    fn due(&self, index: &mut Index<F::Pair>, namespace: Option<&Arc<str>>) -> Vec<ObjectKey> {
        let issues = self.issues.lock();
        index.due(namespace, |key, pair, place: Option<(&Place, bool)>| {
            if issues.is_noted(key) {
                return true;
            }
            match place {
                Some((place, true)) => !self.is_at_rest(key, pair, place),
                // The list of the other cluster is still to come. When it is complete, the pair is checked again.
                Some((_, false)) => self.strategy.unplaced(key, pair, true).is_some(),
                None => true,
            }
        })
    }

    /// Whether a worker has to process an object that a watch shows. Most events show our own writes of objects in sync.
    fn is_due(&self, index: &mut Index<F::Pair>, key: &ObjectKey) -> bool {
        let Some((pair, place)) = index.known(key) else {
            return true;
        };
        !self.is_at_rest(key, pair, &place) || self.issues.lock().is_noted(key)
    }

    /// Whether a pair needs no plan. If so, the contents of its objects are dropped.
    fn is_at_rest(&self, key: &ObjectKey, pair: &mut F::Pair, place: &Place) -> bool {
        let is_at_rest = self.strategy.is_at_rest(key, pair, place);
        if is_at_rest {
            pair.forget_content();
        }
        is_at_rest
    }

    /// Holds back all writes if a watch lists anew, until it is proven once more that this konnector holds the contract: the cluster may
    /// have been restored from a backup. `is_listed` tells whether the watch has had a complete list.
    fn doubt_if_anew(&self, event: &Event<Object>, is_listed: &mut bool) {
        match event {
            Event::Reset if *is_listed => self.around.holding.doubt(),
            Event::Complete(_) => *is_listed = true,
            _ => {}
        }
    }

    fn watch_state(&self, watched: &Watched, event: &Event<Object>) {
        if let Event::Listed(object) | Event::Applied(object) | Event::Deleted(object) = event {
            self.meter.shown(
                watched.is_consumer(),
                object.meta.resource_version,
                object.content_length(),
            );
        }
        let failure = match event {
            Event::Failed(error) => Some(error),
            Event::Rewound | Event::Reset | Event::Listed(_) | Event::Unreadable(_) | Event::Ended => return,
            _ => None,
        };
        let mut issues = self.issues.lock();
        if issues.set_watch(watched.clone(), failure) {
            let waiting = issues.transient();
            drop(issues);
            self.enqueue(waiting, Priority::Live);
        }
        self.changed.notify_one();
    }

    pub(crate) fn enqueue(&self, keys: impl IntoIterator<Item = ObjectKey>, priority: Priority) {
        for key in keys {
            self.queue.add(key, priority);
        }
        self.changed.notify_one();
    }
}
