//! Notes which known objects a list shows, and which are gone when it is complete.
//!
//! Every list has a number (`round`), which is stored with each object that it shows. When the list is complete, objects
//! with a lower number were not shown. So a list of a hundred thousand objects keeps no second set of their names.
//!
//! Lists may overlap, one of a provider namespace and one of the whole provider. An object keeps the higher number, so that
//! what a later list has shown counts as shown for earlier lists too.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use ahash::RandomState;
use bindery_runtime::cache::ObjectKey;

use crate::{
    index::{Entry, Index, Known, Place, is_newer},
    model::{
        object::{Object, Version},
        uid::Uid,
    },
};

/// A list that is under way.
#[derive(Debug)]
pub(crate) struct Listing {
    round: u32,
    /// The consumer namespace of a list of the consumer; `None` for one of the whole cluster, and for lists of the provider.
    namespace: Option<Arc<str>>,
    /// The newest version of an object that was known before the list was asked for. A list in an older version is of a cluster that went
    /// back in time.
    known: Version,
    /// Keys of shown objects that no pair has as its key: objects that cannot be decoded, and copies that are never synced
    /// or in another object's place. The key of a copy is its own name, in the consumer's namespace.
    named: HashSet<ObjectKey, RandomState>,
    /// Objects by the keys of their pairs, where the list shows an older version than is known. The version of the list tells which of
    /// both is the truth.
    older: Vec<(ObjectKey, Object)>,
}

// === impl Listing ===

impl Listing {
    /// Notes an object that the list shows, by its key alone.
    pub(crate) fn saw(&mut self, key: ObjectKey) {
        self.named.insert(key);
    }
}

// === impl Index ===

impl<P: Known> Index<P> {
    /// Begins a list of either cluster that was asked for before anything was known.
    #[cfg(test)]
    pub(crate) fn begin(&mut self) -> Listing {
        self.listing(None, Version::default())
    }

    /// Begins a list of the consumer, of one namespace or of all, before it is asked for.
    pub(crate) fn begin_in(&mut self, namespace: Option<&Arc<str>>) -> Listing {
        let known = self.newest(namespace, Known::consumer);
        self.listing(namespace, known)
    }

    /// Begins a list of the provider, of the copies of one consumer namespace or of all, before it is asked for.
    pub(crate) fn begin_copies(&mut self, namespace: Option<&Arc<str>>) -> Listing {
        let known = self.newest(namespace, Known::provider);
        self.listing(None, known)
    }

    fn listing(&mut self, namespace: Option<&Arc<str>>, known: Version) -> Listing {
        self.round += 1;
        Listing {
            round: self.round,
            namespace: namespace.cloned(),
            known,
            named: HashSet::default(),
            older: Vec::new(),
        }
    }

    /// The newest version that is known of an object on one side.
    fn newest<'a>(
        &'a self,
        namespace: Option<&Arc<str>>,
        side: impl Fn(&'a P) -> Option<(&'a Uid, Version)>,
    ) -> Version {
        let one = namespace.and_then(|namespace| self.rows.get(namespace));
        let all = namespace.is_none().then(|| self.rows.values());
        let entries = all.into_iter().flatten().chain(one).flat_map(HashMap::values);
        let versions = entries
            .filter_map(|entry| side(&entry.pair))
            .map(|(_, version)| version);
        versions.max().unwrap_or_default()
    }

    /// Notes an object of the consumer that a list shows.
    pub(crate) fn consumer_shown(&mut self, key: &ObjectKey, object: Object, listing: &mut Listing) {
        if self.consumer_version(key).is_some_and(|known| is_newer(known, &object)) {
            listing.older.push((key.clone(), object));
        } else {
            self.consumer_seen(key, object);
        }
        if let Some(entry) = self.known_entry(key) {
            entry.consumer_round = entry.consumer_round.max(listing.round);
        }
    }

    /// Notes a copy that a list shows. `copy` is its own name in the consumer's namespace, `source` the key of its source.
    pub(crate) fn provider_shown(
        &mut self,
        source: Option<&ObjectKey>,
        copy: ObjectKey,
        object: Object,
        listing: &mut Listing,
    ) {
        let Some(source) = source else {
            return listing.saw(copy);
        };
        if self
            .provider_version(source)
            .is_some_and(|known| is_newer(known, &object))
        {
            listing.older.push((source.clone(), object));
        } else {
            self.provider_seen(source, object);
        }
        if self.copy_of(source) != copy {
            listing.saw(copy);
        } else if let Some(entry) = self.known_entry(source) {
            entry.provider_round = entry.provider_round.max(listing.round);
        }
    }

    /// Ends a list of the consumer's objects: those that are neither listed nor newer are gone. Returns their keys.
    ///
    /// A list that shows an older version of an object than one that it comes after shows that the consumer went back in time and gave out
    /// higher versions since, as etcd does after a restore with `--bump-revision`. So does one in an older version than was known before.
    pub(crate) fn consumer_listed(&mut self, listing: &mut Listing, version: Version) -> Vec<ObjectKey> {
        let namespace = listing.namespace.as_ref();
        self.consumer_lists.complete(namespace);
        if version < listing.known {
            self.consumer_rewound(listing.namespace.as_ref());
        }
        let is_older = |entry: &Entry<P>| entry.pair.consumer().is_some_and(|(_, known)| known <= version);
        let mut gone = self.select(namespace, |entry| {
            entry.consumer_round < listing.round && is_older(entry)
        });
        gone.retain(|key| !listing.named.contains(key));
        for key in &gone {
            self.consumer_deleted(key, None);
        }
        let is_known_by_then =
            |index: &Self, key: &ObjectKey| index.consumer_version(key).is_some_and(|(_, known)| known <= version);
        listing.older.retain(|(key, _)| is_known_by_then(self, key));
        if !listing.older.is_empty() {
            self.consumer_rewound(listing.namespace.as_ref());
        }
        for (key, object) in std::mem::take(&mut listing.older) {
            self.consumer_seen(&key, object);
        }
        gone
    }

    /// Ends a list of a provider namespace: copies that are neither listed nor newer are gone. Returns their keys. What the list shows
    /// in an older version than one that it comes after shows that the provider went back in time, as for the consumer.
    pub(crate) fn provider_listed(
        &mut self,
        consumer_namespace: &Arc<str>,
        listing: &mut Listing,
        version: Version,
    ) -> Vec<ObjectKey> {
        if let Some(place) = self.places.get_mut(consumer_namespace) {
            place.listed = true;
        }
        if version < listing.known {
            self.provider_rewound(consumer_namespace);
        }
        let is_older = |entry: &Entry<P>| entry.pair.provider().is_some_and(|(_, known)| known <= version);
        let mut gone = self.select(Some(consumer_namespace), |entry| {
            entry.provider_round < listing.round && is_older(entry)
        });
        gone.retain(|key| listing.named.is_empty() || !listing.named.contains(&self.copy_of(key)));
        for key in &gone {
            self.provider_deleted(key, None);
        }
        let here = listing
            .older
            .extract_if(.., |(key, _)| key.namespace == *consumer_namespace);
        let is_known_by_then = |key: &ObjectKey| self.provider_version(key).is_some_and(|(_, known)| known <= version);
        let rewound: Vec<_> = here.filter(|(key, _)| is_known_by_then(key)).collect();
        if !rewound.is_empty() {
            self.provider_rewound(consumer_namespace);
        }
        for (key, object) in rewound {
            self.provider_seen(&key, object);
        }
        gone
    }

    /// The keys for which `is_due` is true, of one consumer namespace or of all. `is_due` gets the provider namespace of a
    /// pair, if it has one, and whether both clusters were listed, so that what is missing is gone.
    pub(crate) fn due(
        &mut self,
        namespace: Option<&Arc<str>>,
        is_due: impl Fn(&ObjectKey, &mut P, Option<(&Place, bool)>) -> bool,
    ) -> Vec<ObjectKey> {
        let rows: Vec<_> = match namespace {
            Some(namespace) => self
                .rows
                .get_mut(namespace)
                .map(|row| (namespace, row))
                .into_iter()
                .collect(),
            None => self.rows.iter_mut().collect(),
        };
        let mut due = Vec::new();
        for (row, entries) in rows {
            let place = self.places.get(row);
            let place = place.map(|place| (place, self.consumer_lists.is_listed(row) && place.listed));
            for (name, entry) in entries {
                let key = ObjectKey::new(Arc::clone(row), Arc::clone(name));
                if is_due(&key, &mut entry.pair, place) {
                    due.push(key);
                }
            }
        }
        due
    }

    /// The own name of the copy of a source, in the consumer's namespace.
    fn copy_of(&self, source: &ObjectKey) -> ObjectKey {
        let name = self.placement.copy_name(&self.contract, &source.name);
        if *name == *source.name {
            return source.clone();
        }
        ObjectKey::new(Arc::clone(&source.namespace), &*name)
    }

    fn consumer_version(&self, key: &ObjectKey) -> Option<(&Uid, Version)> {
        self.pair(key)?.consumer()
    }

    fn provider_version(&self, key: &ObjectKey) -> Option<(&Uid, Version)> {
        self.pair(key)?.provider()
    }

    fn known_entry(&mut self, key: &ObjectKey) -> Option<&mut Entry<P>> {
        let entry = self.rows.get_mut(&key.namespace)?.get_mut(&key.name)?;
        Some(entry)
    }

    fn select(&self, namespace: Option<&Arc<str>>, is_meant: impl Fn(&Entry<P>) -> bool) -> Vec<ObjectKey> {
        let one = namespace.and_then(|namespace| self.rows.get_key_value(namespace));
        let all = namespace.is_none().then_some(&self.rows);
        let rows = all.into_iter().flatten().chain(one);
        let entries = rows.flat_map(|(row, entries)| entries.iter().map(move |(name, entry)| (row, name, entry)));
        entries
            .filter(|(_, _, entry)| is_meant(entry))
            .map(|(row, name, _)| ObjectKey::new(Arc::clone(row), Arc::clone(name)))
            .collect()
    }
}
