//! The index of an engine: what is known of every object of one resource on both clusters.

use std::{collections::HashMap, sync::Arc};

use ahash::RandomState;
use bindery_runtime::{
    cache::ObjectKey,
    guard::{Guard, Held},
};

use crate::model::{
    Placement,
    object::{Object, Version},
    uid::Uid,
};

mod contents;
mod ends;
mod interruptions;
mod listing;
mod orphans;
mod retained;
mod scope;

pub(crate) use contents::{Compared, Contents, Shown};
use ends::RecentEnds;
use interruptions::Interruptions;
pub(crate) use listing::Listing;
pub use orphans::Orphans;
pub(crate) use orphans::{Orphan, OrphanKind};
pub(crate) use retained::LISTED_MAX;
pub use retained::{RetainedCopies, RetentionTimes};
use scope::ConsumerLists;
pub(crate) use scope::ConsumerScope;

/// The index of one engine: a pair for each object that either cluster has. It sends no requests and never waits.
///
/// Memory that a burst of objects took is freed when they are gone.
#[derive(Debug)]
pub(crate) struct Index<P: Known> {
    contract: Arc<str>,
    placement: Placement,
    reader: P::Reader,
    /// The pairs by consumer namespace, then by name.
    rows: Rows<P>,
    places: HashMap<Arc<str>, Place>,
    /// Why the backend refuses a provider namespace, by consumer namespace.
    refusals: HashMap<Arc<str>, Arc<str>>,
    /// Consumer namespaces by the provider namespace of their copies.
    sources: HashMap<Arc<str>, Arc<str>>,
    /// Which consumer namespaces are watched, and which of them were listed.
    consumer_lists: ConsumerLists,
    consumer_count: usize,
    /// The number of pairs whose copy has no source whose deletion was seen. Until both clusters are listed, this includes copies
    /// whose source is only not known yet.
    unsourced: usize,
    /// The number of copies that are retained after their sources were deleted.
    retained: usize,
    /// The objects of the consumer whose end was seen last, since the answer to the creation of a copy may come later.
    recent_ends: RecentEnds,
    interruptions: Interruptions,
    /// Number of the list that began last.
    round: u32,
    /// The number of known objects of the provider, and the length of what is kept of them beside their contents.
    provided: Provided,
    /// Counts them for the guard of the provider.
    held: Option<Held>,
}

/// A number of objects of the provider, and the length of the texts of theirs that are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Provided {
    objects: u64,
    bytes: u64,
}

type Rows<P> = HashMap<Arc<str>, Row<P>>;

/// The objects of one consumer namespace, by name. Entries are boxed, so that a table that grows moves only pointers, and
/// wastes little memory.
type Row<P> = HashMap<Arc<str>, Box<Entry<P>>, RandomState>;

/// A pair, and the numbers of the lists that showed its sides last.
#[derive(Debug, Default)]
struct Entry<P> {
    pair: P,
    consumer_round: u32,
    provider_round: u32,
}

/// Maps shrink only if their capacity exceeds four times their length by more than this.
const SPARE: usize = 256;

/// What is known of one object on both clusters.
pub(crate) trait Known: Contents + Default + Send + 'static {
    /// What a pair needs to interpret an object.
    type Reader: Send;

    /// UID and version of the consumer's object, if there is one.
    fn consumer(&self) -> Option<(&Uid, Version)>;

    /// UID and version of the provider's object, if there is one.
    fn provider(&self) -> Option<(&Uid, Version)>;

    /// Notes the consumer's object.
    fn see_consumer(&mut self, key: &ObjectKey, object: Object, reader: &mut Self::Reader);

    /// Notes the provider's object. Returns false if this contract never syncs it, and nothing was known before either.
    fn see_provider(&mut self, key: &ObjectKey, object: Object, reader: &mut Self::Reader) -> bool;

    /// Notes that the consumer's object of this UID was seen to end, whether or not it is the known one.
    fn consumer_ended(&mut self, uid: &str);

    /// Notes that the consumer's object is gone.
    fn lose_consumer(&mut self);

    /// Notes that the provider's object is gone. `uid` is its UID, if its end was seen.
    fn lose_provider(&mut self, uid: Option<&str>);

    /// Forgets all that is known of the provider's object.
    fn forget_provider(&mut self);

    /// Makes the next version that the consumer shows count as newer than the known one.
    fn rewind_consumer(&mut self);

    /// Makes the next version that the provider shows count as newer than the known one.
    fn rewind_provider(&mut self);

    /// True if the object needs a provider namespace: to be copied to, or to see that its copy is gone.
    fn wants_place(&self, key: &ObjectKey, reader: &Self::Reader) -> bool;

    /// The copy whose source is missing, or has another UID, although its deletion was not seen; `None` if there is none.
    fn orphan(&self) -> Option<Orphan<'_>>;

    /// The UID of the consumer's object that the copy of [`Known::orphan`] was made of, if the end of that object proves its deletion.
    fn missed_source(&self) -> Option<&Uid>;

    /// Whether the provider's object is a copy of this contract, or a retained one.
    fn has_copy(&self) -> bool;

    /// The length of the texts of the provider's object that are kept for as long as it is known, where they may be long.
    fn kept_bytes(&self) -> usize {
        0
    }

    /// The times of a copy that is retained after its source was deleted; `None` if it is not.
    fn retention(&self) -> Option<RetentionTimes> {
        None
    }
}

/// The provider namespace of a consumer namespace.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub namespace: Arc<str>,
    /// Whether its copies were listed, so that a copy that the index lacks does not exist.
    pub listed: bool,
    /// Whether its APIServiceNamespace is being deleted.
    pub closing: bool,
    /// Whether it is only the one that a backend assigns by default, since the assigned one cannot be read.
    pub assumed: bool,
}

/// The UIDs of the objects that a plan was made for. The answer to a request of the plan says nothing of an object that
/// took the name since.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlannedUids {
    pub consumer: Option<Uid>,
    pub provider: Option<Uid>,
}

impl<P: Known> Index<P> {
    pub(crate) fn with(contract: Arc<str>, placement: Placement, reader: P::Reader) -> Self {
        Self {
            contract,
            placement,
            reader,
            rows: HashMap::new(),
            places: HashMap::new(),
            refusals: HashMap::new(),
            sources: HashMap::new(),
            consumer_lists: ConsumerLists::default(),
            consumer_count: 0,
            unsourced: 0,
            retained: 0,
            recent_ends: RecentEnds::default(),
            interruptions: Interruptions::default(),
            round: 0,
            provided: Provided::default(),
            held: None,
        }
    }

    /// Counts the provider's objects for its guard from now on.
    pub(crate) fn count_by(&mut self, guard: &Guard) {
        self.held = Some(guard.hold(self.provided.objects, self.provided.bytes));
    }

    /// Notes that what is known of the provider's object of a pair has changed.
    fn count_provided(&mut self, before: Provided, after: Provided) {
        if before == after {
            return;
        }
        let change = |count: u64, before: u64, after: u64| (count + after).saturating_sub(before);
        self.provided = Provided {
            objects: change(self.provided.objects, before.objects, after.objects),
            bytes: change(self.provided.bytes, before.bytes, after.bytes),
        };
        if let Some(held) = &mut self.held {
            held.resize(self.provided.objects, self.provided.bytes);
        }
    }

    /// The pair of a key and its provider namespace; `None` unless both clusters were listed, so that a plan can decide.
    pub(crate) fn known(&mut self, key: &ObjectKey) -> Option<(&mut P, Place)> {
        if !self.consumer_lists.is_listed(&key.namespace) {
            return None;
        }
        let place = self.places.get(&key.namespace).filter(|place| place.listed)?;
        let place = place.clone();
        let entry = self.rows.get_mut(&key.namespace)?.get_mut(&key.name)?;
        Some((&mut entry.pair, place))
    }

    /// True if a pair needs a provider namespace, and none is in use, or one that is being given up.
    pub(crate) fn needs_place(&self, key: &ObjectKey) -> bool {
        let wants = |pair: &P| pair.wants_place(key, &self.reader);
        let is_there = self.places.get(&key.namespace).is_some_and(|place| !place.closing);
        self.pair(key).is_some_and(wants) && !is_there
    }

    /// Whether an object waits for its provider namespace, or for the list of the copies there.
    pub(crate) fn waits_for_place(&self, key: &ObjectKey) -> bool {
        self.pair(key).is_some() && (self.needs_place(key) || self.place(&key.namespace).is_some())
    }

    /// Notes why the backend refuses a provider namespace, or that it does not. Returns true if that is news.
    pub(crate) fn set_refusal(&mut self, consumer_namespace: &Arc<str>, refusal: Option<&Arc<str>>) -> bool {
        let before = match refusal {
            Some(refusal) => self
                .refusals
                .insert(Arc::clone(consumer_namespace), Arc::clone(refusal)),
            None => self.refusals.remove(consumer_namespace),
        };
        before.as_ref() != refusal
    }

    /// Why the backend refuses the provider namespace that a pair waits for.
    pub(crate) fn refusal(&self, key: &ObjectKey) -> Option<&Arc<str>> {
        self.refusals.get(&key.namespace).filter(|_| self.needs_place(key))
    }

    pub(crate) fn pair(&self, key: &ObjectKey) -> Option<&P> {
        Some(&self.rows.get(&key.namespace)?.get(&key.name)?.pair)
    }

    /// True when all consumer namespaces that are watched were listed.
    pub(crate) fn consumer_synced(&self) -> bool {
        self.consumer_lists.is_complete()
    }

    /// Whether the events of a watch of the consumer count: that of a namespace or, with `None`, that of the whole cluster.
    pub(crate) fn has_watch(&self, namespace: Option<&str>) -> bool {
        self.consumer_lists.scope().has_watch(namespace)
    }

    /// Sets which consumer namespaces are watched. The consumer's objects in all others are forgotten; returns all keys in these namespaces.
    /// `None` if the scope is the same as before.
    pub(crate) fn set_consumer_scope(&mut self, scope: &ConsumerScope) -> Option<Vec<ObjectKey>> {
        if !self.consumer_lists.set_scope(scope) {
            return None;
        }
        self.interruptions.keep_watches(|watch| scope.has_watch(watch));
        let unwatched: Vec<_> = self.rows.keys().filter(|one| !scope.has(one)).cloned().collect();
        let keys = unwatched.iter().flat_map(|namespace| self.keys_in(namespace));
        let keys: Vec<_> = keys.collect();
        for key in &keys {
            self.consumer_deleted(key, None);
        }
        Some(keys)
    }

    /// True when all provider namespaces that are in use were listed.
    pub(crate) fn provider_synced(&self) -> bool {
        self.places.values().all(|place| place.listed)
    }

    /// The number of known objects of the consumer.
    pub(crate) fn consumer_count(&self) -> usize {
        self.consumer_count
    }

    /// All pairs.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (ObjectKey, &P)> {
        self.rows.iter().flat_map(|(namespace, row)| {
            let key = |name| ObjectKey::new(Arc::clone(namespace), Arc::clone(name));
            row.iter().map(move |(name, entry)| (key(name), &entry.pair))
        })
    }

    /// All keys of a consumer namespace.
    pub(crate) fn keys_in(&self, namespace: &Arc<str>) -> Vec<ObjectKey> {
        let row = self.rows.get(namespace).into_iter().flat_map(HashMap::keys);
        row.map(|name| ObjectKey::new(Arc::clone(namespace), Arc::clone(name)))
            .collect()
    }

    /// The key of this name, if anything is known of it.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> Option<ObjectKey> {
        let (namespace, row) = self.rows.get_key_value(namespace)?;
        let (name, _) = row.get_key_value(name)?;
        Some(ObjectKey::new(Arc::clone(namespace), Arc::clone(name)))
    }

    /// All keys of this name, whatever their namespace.
    pub(crate) fn keys_named(&self, name: &str) -> Vec<ObjectKey> {
        self.rows
            .keys()
            .filter_map(|namespace| self.key(namespace, name))
            .collect()
    }

    /// True if a consumer namespace has objects that need a provider namespace.
    pub(crate) fn is_wanted(&self, namespace: &Arc<str>) -> bool {
        let row = self.rows.get(namespace).into_iter().flatten();
        row.into_iter().any(|(name, entry)| {
            let key = ObjectKey::new(Arc::clone(namespace), Arc::clone(name));
            entry.pair.wants_place(&key, &self.reader)
        })
    }

    /// True if a consumer namespace has a provider namespace, and objects on neither cluster.
    pub(crate) fn is_vacant(&self, namespace: &Arc<str>) -> bool {
        self.places.contains_key(namespace) && !self.rows.contains_key(namespace)
    }

    /// True if a consumer namespace certainly has no object, and no copy of one is left in its provider namespace.
    pub(crate) fn is_known_empty(&self, namespace: &Arc<str>) -> bool {
        let is_listed = self.places.get(namespace).is_none_or(|place| place.listed);
        self.consumer_lists.is_listed(namespace) && is_listed && !self.rows.contains_key(namespace)
    }

    /// True unless a consumer namespace certainly has no copy in its provider namespace.
    pub(crate) fn may_hold_copies(&self, namespace: &Arc<str>) -> bool {
        let is_listed = self.places.get(namespace).is_none_or(|place| place.listed);
        let row = self.rows.get(namespace).into_iter().flat_map(HashMap::values);
        !is_listed || row.into_iter().any(|entry| entry.pair.has_copy())
    }

    /// All keys.
    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        self.rows.keys().flat_map(|namespace| self.keys_in(namespace)).collect()
    }

    pub(crate) fn place(&self, consumer_namespace: &str) -> Option<&Place> {
        self.places.get(consumer_namespace)
    }

    /// The consumer namespace whose copies live in a provider namespace.
    pub(crate) fn consumer_namespace(&self, namespace: &str) -> Option<Arc<str>> {
        self.sources.get(namespace).cloned()
    }

    /// The consumer namespaces whose copies were listed.
    pub(crate) fn listed_places(&self) -> Vec<Arc<str>> {
        let listed = self.places.iter().filter(|(_, place)| place.listed);
        listed.map(|(namespace, _)| Arc::clone(namespace)).collect()
    }

    /// The consumer namespaces that have a provider namespace, each with that.
    pub(crate) fn places(&self) -> Vec<(Arc<str>, Arc<str>)> {
        let places = self.places.iter();
        places
            .map(|(namespace, place)| (Arc::clone(namespace), Arc::clone(&place.namespace)))
            .collect()
    }

    /// Sets the provider namespace of a consumer namespace; `None` ends its use. Copies in an earlier one are forgotten.
    pub(crate) fn set_place(&mut self, consumer_namespace: &Arc<str>, namespace: Option<Arc<str>>, closing: bool) {
        let row = self.rows.get_mut(consumer_namespace);
        let mut forgotten = Provided::default();
        for entry in row.into_iter().flat_map(HashMap::values_mut) {
            self.unsourced -= usize::from(entry.pair.orphan().is_some());
            self.retained -= usize::from(entry.pair.retention().is_some());
            let before = Provided::of(&entry.pair);
            forgotten.objects += before.objects;
            forgotten.bytes += before.bytes;
            entry.pair.forget_provider();
            self.unsourced += usize::from(entry.pair.orphan().is_some());
        }
        self.count_provided(forgotten, Provided::default());
        self.sweep_row(consumer_namespace);
        if let Some(before) = self.places.remove(consumer_namespace) {
            self.sources.remove(&before.namespace);
        }
        if let Some(namespace) = namespace {
            self.sources
                .insert(Arc::clone(&namespace), Arc::clone(consumer_namespace));
            let place = Place {
                namespace,
                listed: false,
                closing,
                assumed: false,
            };
            self.places.insert(Arc::clone(consumer_namespace), place);
        }
    }

    /// Notes whether the APIServiceNamespace of a provider namespace in use is being deleted.
    pub(crate) fn set_closing(&mut self, consumer_namespace: &Arc<str>, closing: bool) {
        if let Some(place) = self.places.get_mut(consumer_namespace) {
            place.closing = closing;
        }
    }

    /// Notes whether a provider namespace in use is only assumed. Returns true if that is news.
    pub(crate) fn set_assumed(&mut self, consumer_namespace: &Arc<str>, assumed: bool) -> bool {
        let place = self.places.get_mut(consumer_namespace);
        place.is_some_and(|place| std::mem::replace(&mut place.assumed, assumed) != assumed)
    }

    /// Notes that a watch of the consumer was interrupted: that of a namespace or, with `None`, that of the whole cluster.
    pub(crate) fn consumer_interrupted(&mut self, namespace: Option<&Arc<str>>) {
        self.interruptions.begin(namespace);
    }

    /// Notes that a watch of the consumer goes on. Returns the objects that waited for it.
    pub(crate) fn consumer_followed(&mut self, namespace: Option<&Arc<str>>) -> Vec<ObjectKey> {
        self.interruptions.end(namespace)
    }

    /// Whether a copy has to wait before it is deleted, since the watch of its source is interrupted.
    pub(crate) fn awaits_consumer(&mut self, key: &ObjectKey) -> bool {
        self.interruptions.holds(key)
    }

    /// Notes that the consumer went back in time: whatever version of an object of this namespace, or with `None` of any, it shows next
    /// counts as newer.
    pub(crate) fn consumer_rewound(&mut self, namespace: Option<&Arc<str>>) {
        self.recent_ends.clear();
        let rows = self.rows.iter_mut();
        let rows = rows.filter(|(row, _)| namespace.is_none_or(|namespace| namespace == *row));
        for entry in rows.flat_map(|(_, row)| row.values_mut()) {
            self.unsourced -= usize::from(entry.pair.orphan().is_some());
            entry.pair.rewind_consumer();
            self.unsourced += usize::from(entry.pair.orphan().is_some());
        }
    }

    /// Notes that the provider went back in time: whatever version of these objects it shows next counts as newer.
    pub(crate) fn provider_rewound(&mut self, consumer_namespace: &Arc<str>) {
        let row = self.rows.get_mut(consumer_namespace);
        for entry in row.into_iter().flat_map(HashMap::values_mut) {
            self.unsourced -= usize::from(entry.pair.orphan().is_some());
            entry.pair.rewind_provider();
            self.unsourced += usize::from(entry.pair.orphan().is_some());
        }
    }

    /// Whether the end of the consumer's object of this UID was seen. The answer to an earlier read of it may still come.
    pub(crate) fn has_ended(&self, uid: &str) -> bool {
        self.recent_ends.contains(&uid.into())
    }

    /// Notes a change of a consumer object from a watch. Returns false if a newer version is known, or the end of the object: a read or the
    /// answer to a write may show it before a watch that lags does. A list that shows such an object is right, as after a restore.
    pub(crate) fn consumer_changed(&mut self, key: &ObjectKey, object: Object) -> bool {
        !self.has_ended(&object.meta.uid) && self.consumer_seen(key, object)
    }

    /// Notes a consumer object from a list, watch or read. Returns false if a newer version is known.
    pub(crate) fn consumer_seen(&mut self, key: &ObjectKey, object: Object) -> bool {
        self.recent_ends.remove(&Uid::from(&object.meta.uid));
        self.change(key, |pair, reader| {
            if pair.consumer().is_some_and(|known| is_newer(known, &object)) {
                return false;
            }
            pair.see_consumer(key, object, reader);
            true
        })
    }

    /// Notes that a consumer object is gone. `uid` is its UID, if its end was seen.
    pub(crate) fn consumer_deleted(&mut self, key: &ObjectKey, uid: Option<&str>) {
        if let Some(uid) = uid {
            self.recent_ends.add(uid.into());
        }
        self.change(key, |pair, _| {
            if let Some(uid) = uid {
                pair.consumer_ended(uid);
            }
            if !is_successor(pair.consumer(), uid) {
                pair.lose_consumer();
            }
        });
        self.sweep(key);
    }

    /// Notes a provider object from a list, watch or read. Returns false if a newer version is known or it is never synced.
    pub(crate) fn provider_seen(&mut self, key: &ObjectKey, object: Object) -> bool {
        let is_news = self.change(key, |pair, reader| {
            if pair.provider().is_some_and(|known| is_newer(known, &object)) {
                return false;
            }
            pair.see_provider(key, object, reader)
        });
        self.sweep(key);
        is_news
    }

    /// Notes that a provider object is gone. `uid` is its UID, if its end was seen.
    pub(crate) fn provider_deleted(&mut self, key: &ObjectKey, uid: Option<&str>) {
        self.change(key, |pair, _| {
            if !is_successor(pair.provider(), uid) {
                pair.lose_provider(uid);
            }
        });
        self.sweep(key);
    }

    /// Changes a pair, and forgets it if no object is left of it.
    pub(crate) fn note(&mut self, key: &ObjectKey, note: impl FnOnce(&mut P)) {
        self.change(key, |pair, _| note(pair));
        self.sweep(key);
    }

    /// Changes a pair, and keeps the counts. A source that has ended before its copy was known is noted as ended.
    fn change<R>(&mut self, key: &ObjectKey, change: impl FnOnce(&mut P, &mut P::Reader) -> R) -> R {
        let pair = &mut Self::entry(&mut self.rows, key).pair;
        self.consumer_count -= usize::from(pair.consumer().is_some());
        self.unsourced -= usize::from(pair.orphan().is_some());
        self.retained -= usize::from(pair.retention().is_some());
        let before = Provided::of(pair);
        let outcome = change(pair, &mut self.reader);
        if let Some(source) = pair.missed_source().filter(|uid| self.recent_ends.contains(uid)) {
            let source = source.text();
            pair.consumer_ended(&source);
        }
        self.consumer_count += usize::from(pair.consumer().is_some());
        self.unsourced += usize::from(pair.orphan().is_some());
        self.retained += usize::from(pair.retention().is_some());
        let after = Provided::of(pair);
        self.count_provided(before, after);
        outcome
    }

    fn entry<'a>(rows: &'a mut Rows<P>, key: &ObjectKey) -> &'a mut Entry<P> {
        let row = rows.entry(Arc::clone(&key.namespace)).or_default();
        row.entry(Arc::clone(&key.name)).or_default()
    }

    /// Forgets a pair without an object on either cluster.
    fn sweep(&mut self, key: &ObjectKey) {
        let Some(row) = self.rows.get_mut(&key.namespace) else {
            return;
        };
        if row.get(&key.name).is_some_and(|entry| is_empty(&entry.pair)) {
            row.remove(&key.name);
            give_back(row);
        }
        if row.is_empty() {
            self.rows.remove(&key.namespace);
            give_back(&mut self.rows);
        }
    }

    fn sweep_row(&mut self, namespace: &Arc<str>) {
        if let Some(row) = self.rows.get_mut(namespace) {
            row.retain(|_, entry| !is_empty(&entry.pair));
            give_back(row);
            if row.is_empty() {
                self.rows.remove(namespace);
                give_back(&mut self.rows);
            }
        }
    }
}

impl Provided {
    /// What is known of the provider's object of a pair.
    fn of(pair: &impl Known) -> Self {
        match pair.provider() {
            Some((uid, _)) => Self {
                objects: 1,
                bytes: (uid.kept_bytes() + pair.kept_bytes()) as u64,
            },
            None => Self::default(),
        }
    }
}

fn is_empty<P: Known>(pair: &P) -> bool {
    pair.consumer().is_none() && pair.provider().is_none()
}

/// Frees the spare capacity of a map where it far exceeds the length, as after a burst.
pub(crate) fn give_back<K: Eq + std::hash::Hash, V, S: std::hash::BuildHasher>(map: &mut HashMap<K, V, S>) {
    if map.capacity() > 4 * map.len() + SPARE {
        map.shrink_to(2 * map.len());
    }
}

fn is_newer((uid, version): (&Uid, Version), object: &Object) -> bool {
    version > object.meta.resource_version && *uid == *object.meta.uid
}

/// True if the object that is gone has another UID than the known one, which has taken its name.
fn is_successor(known: Option<(&Uid, Version)>, gone: Option<&str>) -> bool {
    known.is_some_and(|(known, _)| gone.is_some_and(|gone| *known != *gone))
}

// === impl PlannedUids ===

impl PlannedUids {
    pub(crate) fn of(pair: &impl Known) -> Self {
        let uid = |known: Option<(&Uid, Version)>| known.map(|(uid, _)| uid.clone());
        Self {
            consumer: uid(pair.consumer()),
            provider: uid(pair.provider()),
        }
    }
}

#[cfg(test)]
mod tests;
