//! All pairs of one resource, as both watches and our own writes made them.

use std::{collections::HashMap, sync::Arc};

use ahash::RandomState;
use bindery_runtime::cache::ObjectKey;

use crate::model::{
    Placement,
    object::{Object, Version},
    uid::Uid,
};

mod contents;
mod listing;
mod tally;

pub(crate) use contents::{Compared, Contents, Shown};
pub(crate) use listing::Listing;
pub(crate) use tally::Tally;

/// The index of one engine. It knows no client and waits for nothing.
///
/// Of each object it holds its name and a pair, as long as either cluster has it; what a burst has taken is given back when
/// its objects are gone.
#[derive(Debug)]
pub(crate) struct Index<P: Known> {
    contract: Arc<str>,
    placement: Placement,
    reader: P::Reader,
    /// By consumer namespace, then by name.
    rows: Rows<P>,
    places: HashMap<Arc<str>, Place>,
    /// Consumer namespaces that get no place, and why.
    refusals: HashMap<Arc<str>, Arc<str>>,
    /// Consumer namespaces by the provider namespace of their copies.
    sources: HashMap<Arc<str>, Arc<str>>,
    consumer_synced: bool,
    consumer_count: usize,
    /// Number of the list that began last.
    round: u32,
}

type Rows<P> = HashMap<Arc<str>, Row<P>>;

/// The objects of one consumer namespace, by name. Entries are boxed, so that a table that grows copies none and has little
/// room to spare.
type Row<P> = HashMap<Arc<str>, Box<Entry<P>>, RandomState>;

/// A pair, and the numbers of the lists that showed its sides last.
#[derive(Debug, Default)]
struct Entry<P> {
    pair: P,
    consumer_round: u32,
    provider_round: u32,
}

/// Room for so many more than there are is given back by no map.
const SPARE: usize = 256;

/// What is known of one object on both clusters.
pub(crate) trait Known: Contents + Default + Send + 'static {
    /// What it takes to read an object.
    type Reader: Send;

    /// UID and version of the consumer's object, if there is one.
    fn consumer(&self) -> Option<(&Uid, Version)>;

    /// UID and version of the provider's object, if there is one.
    fn provider(&self) -> Option<(&Uid, Version)>;

    /// Notes the consumer's object.
    fn see_consumer(&mut self, key: &ObjectKey, object: Object, reader: &mut Self::Reader);

    /// Notes the provider's object; false if it is of no interest, and was of none.
    fn see_provider(&mut self, key: &ObjectKey, object: Object, reader: &mut Self::Reader) -> bool;

    /// The end of a consumer's object was seen, whether or not it is the one that is known.
    fn consumer_ended(&mut self, uid: &str);

    /// The consumer's object is gone.
    fn lose_consumer(&mut self);

    /// The provider's object is gone; `uid` is whose end was seen, if it was.
    fn lose_provider(&mut self, uid: Option<&str>);

    /// Nothing is known of the provider's object any more.
    fn forget_provider(&mut self);

    /// Whatever is shown of the consumer's object next is newer than what is known.
    fn rewind_consumer(&mut self);

    /// Whatever is shown of the provider's object next is newer than what is known.
    fn rewind_provider(&mut self);

    /// True if the object needs a provider namespace: to be copied to, or to see that its copy is gone.
    fn wants_place(&self, key: &ObjectKey, reader: &Self::Reader) -> bool;

    /// Copies of ours, and those of them whose source is missing without its end having been seen.
    fn tally(&self) -> Tally;
}

/// The provider namespace of a consumer namespace.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub namespace: Arc<str>,
    /// Its copies have been listed, so that one that is missing here is missing there.
    pub listed: bool,
    /// It is being taken away.
    pub closing: bool,
}

/// The UIDs of the objects that a plan was made for. The answer to a request of the plan says nothing of an object that took the
/// name since.
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
            consumer_synced: false,
            consumer_count: 0,
            round: 0,
        }
    }

    /// The pair of a key with its place, if both sides are known well enough to decide.
    pub(crate) fn known(&mut self, key: &ObjectKey) -> Option<(&mut P, Place)> {
        if !self.consumer_synced {
            return None;
        }
        let place = self.places.get(&key.namespace).filter(|place| place.listed)?;
        let place = place.clone();
        let entry = self.rows.get_mut(&key.namespace)?.get_mut(&key.name)?;
        Some((&mut entry.pair, place))
    }

    /// True if a pair waits for a provider namespace that nobody has asked for yet.
    pub(crate) fn needs_place(&self, key: &ObjectKey) -> bool {
        let wants = |pair: &P| pair.wants_place(key, &self.reader);
        self.pair(key).is_some_and(wants) && !self.places.contains_key(&key.namespace)
    }

    /// Notes why a consumer namespace gets no place; true if that is news.
    pub(crate) fn set_refusal(&mut self, consumer_namespace: &Arc<str>, refusal: Option<&Arc<str>>) -> bool {
        let before = match refusal {
            Some(refusal) => self
                .refusals
                .insert(Arc::clone(consumer_namespace), Arc::clone(refusal)),
            None => self.refusals.remove(consumer_namespace),
        };
        before.as_ref() != refusal
    }

    /// Why a pair that waits for a place gets none.
    pub(crate) fn refusal(&self, key: &ObjectKey) -> Option<&Arc<str>> {
        self.refusals.get(&key.namespace).filter(|_| self.needs_place(key))
    }

    pub(crate) fn pair(&self, key: &ObjectKey) -> Option<&P> {
        Some(&self.rows.get(&key.namespace)?.get(&key.name)?.pair)
    }

    pub(crate) fn consumer_synced(&self) -> bool {
        self.consumer_synced
    }

    /// True when all provider namespaces that are in use were listed.
    pub(crate) fn provider_synced(&self) -> bool {
        self.places.values().all(|place| place.listed)
    }

    /// Consumer objects known.
    pub(crate) fn consumer_count(&self) -> usize {
        self.consumer_count
    }

    /// Copies, and those of them whose source is missing without its end having been seen.
    pub(crate) fn tally(&self) -> Tally {
        // What its place holds may not be known yet.
        let listed = |namespace: &Arc<str>| self.places.get(namespace).is_some_and(|place| place.listed);
        let rows = self.rows.iter().filter(|(namespace, _)| listed(namespace));
        let entries = rows.flat_map(|(_, row)| row.values());
        entries
            .map(|entry| entry.pair.tally())
            .fold(Tally::default(), Tally::and)
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

    /// True if a consumer namespace has objects that need a place.
    pub(crate) fn is_wanted(&self, namespace: &Arc<str>) -> bool {
        let row = self.rows.get(namespace).into_iter().flatten();
        row.into_iter().any(|(name, entry)| {
            let key = ObjectKey::new(Arc::clone(namespace), Arc::clone(name));
            entry.pair.wants_place(&key, &self.reader)
        })
    }

    /// True if a consumer namespace has a place and no object that would need one.
    pub(crate) fn is_vacant(&self, namespace: &Arc<str>) -> bool {
        self.places.contains_key(namespace) && !self.rows.contains_key(namespace)
    }

    /// True if a consumer namespace certainly has no object, and no copy of one is left in its place.
    pub(crate) fn is_known_empty(&self, namespace: &Arc<str>) -> bool {
        let is_listed = self.places.get(namespace).is_none_or(|place| place.listed);
        self.consumer_synced && is_listed && !self.rows.contains_key(namespace)
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

    /// Consumer namespaces whose copies were listed before.
    pub(crate) fn listed_places(&self) -> Vec<Arc<str>> {
        let listed = self.places.iter().filter(|(_, place)| place.listed);
        listed.map(|(namespace, _)| Arc::clone(namespace)).collect()
    }

    /// Consumer namespaces with a place, and the provider namespaces of these.
    pub(crate) fn places(&self) -> Vec<(Arc<str>, Arc<str>)> {
        let places = self.places.iter();
        places
            .map(|(namespace, place)| (Arc::clone(namespace), Arc::clone(&place.namespace)))
            .collect()
    }

    /// Takes a provider namespace into use, or out of it. What was seen in the one before is forgotten.
    pub(crate) fn set_place(&mut self, consumer_namespace: &Arc<str>, namespace: Option<Arc<str>>, closing: bool) {
        let row = self.rows.get_mut(consumer_namespace);
        for entry in row.into_iter().flat_map(HashMap::values_mut) {
            entry.pair.forget_provider();
        }
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
            };
            self.places.insert(Arc::clone(consumer_namespace), place);
        }
    }

    /// Notes whether a place in use is being taken away.
    pub(crate) fn set_closing(&mut self, consumer_namespace: &Arc<str>, closing: bool) {
        if let Some(place) = self.places.get_mut(consumer_namespace) {
            place.closing = closing;
        }
    }

    /// The consumer has gone back in time: what it shows next is believed.
    pub(crate) fn consumer_rewound(&mut self) {
        let entries = self.rows.values_mut().flat_map(HashMap::values_mut);
        entries.for_each(|entry| entry.pair.rewind_consumer());
    }

    /// The provider has gone back in time: what it shows next of these objects is believed.
    pub(crate) fn provider_rewound(&mut self, consumer_namespace: &Arc<str>) {
        let row = self.rows.get_mut(consumer_namespace);
        let entries = row.into_iter().flat_map(HashMap::values_mut);
        entries.for_each(|entry| entry.pair.rewind_provider());
    }

    /// Notes a consumer object from list, watch or read; false if something newer is known.
    pub(crate) fn consumer_seen(&mut self, key: &ObjectKey, object: Object) -> bool {
        let pair = &mut Self::entry(&mut self.rows, key).pair;
        let known = pair.consumer();
        if known.is_some_and(|known| is_newer(known, &object)) {
            return false;
        }
        self.consumer_count += usize::from(known.is_none());
        pair.see_consumer(key, object, &mut self.reader);
        true
    }

    /// Notes that a consumer object is gone; `uid` is whose end was seen, if it is known.
    pub(crate) fn consumer_deleted(&mut self, key: &ObjectKey, uid: Option<&str>) {
        let pair = &mut Self::entry(&mut self.rows, key).pair;
        if let Some(uid) = uid {
            pair.consumer_ended(uid);
        }
        if is_successor(pair.consumer(), uid) {
            return;
        }
        self.consumer_count -= usize::from(pair.consumer().is_some());
        pair.lose_consumer();
        self.sweep(key);
    }

    /// Notes a provider object from list, watch or read; false if that is no news.
    pub(crate) fn provider_seen(&mut self, key: &ObjectKey, object: Object) -> bool {
        let pair = &mut Self::entry(&mut self.rows, key).pair;
        if pair.provider().is_some_and(|known| is_newer(known, &object)) {
            return false;
        }
        let is_news = pair.see_provider(key, object, &mut self.reader);
        self.sweep(key);
        is_news
    }

    /// Notes that a provider object is gone; `uid` is whose end was seen, if it is known.
    pub(crate) fn provider_deleted(&mut self, key: &ObjectKey, uid: Option<&str>) {
        let pair = &mut Self::entry(&mut self.rows, key).pair;
        if is_successor(pair.provider(), uid) {
            return;
        }
        pair.lose_provider(uid);
        self.sweep(key);
    }

    /// Notes something of a pair.
    pub(crate) fn note(&mut self, key: &ObjectKey, note: impl FnOnce(&mut P)) {
        let pair = &mut Self::entry(&mut self.rows, key).pair;
        self.consumer_count -= usize::from(pair.consumer().is_some());
        note(pair);
        self.consumer_count += usize::from(pair.consumer().is_some());
        self.sweep(key);
    }

    fn entry<'a>(rows: &'a mut Rows<P>, key: &ObjectKey) -> &'a mut Entry<P> {
        let row = rows.entry(Arc::clone(&key.namespace)).or_default();
        row.entry(Arc::clone(&key.name)).or_default()
    }

    /// Forgets a pair of which nothing is left.
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
            }
        }
    }
}

fn is_empty<P: Known>(pair: &P) -> bool {
    pair.consumer().is_none() && pair.provider().is_none()
}

/// Gives back what a map has room for far beyond what it holds: what a burst has taken.
pub(crate) fn give_back<K: Eq + std::hash::Hash, V, S: std::hash::BuildHasher>(map: &mut HashMap<K, V, S>) {
    if map.capacity() > 4 * map.len() + SPARE {
        map.shrink_to(2 * map.len());
    }
}

fn is_newer((uid, version): (&Uid, Version), object: &Object) -> bool {
    version > object.meta.resource_version && *uid == *object.meta.uid
}

/// True if somebody else has the name by now.
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
