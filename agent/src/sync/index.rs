//! All pairs of one resource, as both watches and our own writes made them.

use std::{collections::HashMap, sync::Arc};

use bindery_runtime::cache::ObjectKey;

use super::{
    object::{Object, Version},
    pair::{Consumer, Owner, Pair, Provider},
    plan::wants_place,
    projection::{Fingerprint, LastProjection},
};

/// The index of one engine. It knows no client and waits for nothing.
#[derive(Debug)]
pub(crate) struct Index {
    contract: Arc<str>,
    /// By consumer namespace, then by name.
    rows: HashMap<Arc<str>, HashMap<Arc<str>, Pair>>,
    places: HashMap<Arc<str>, Place>,
    /// Consumer namespaces that get no place, and why.
    refusals: HashMap<Arc<str>, Arc<str>>,
    /// Consumer namespaces by the provider namespace of their copies.
    sources: HashMap<Arc<str>, Arc<str>>,
    consumer_synced: bool,
    consumer_count: usize,
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

/// What a write or a read taught us, to be noted before the next plan.
#[derive(Debug)]
pub(crate) enum Learned {
    Consumer(Option<Object>),
    Provider(Option<Object>),
    Held {
        version: Version,
        namespace: Arc<str>,
    },
    Noted {
        version: Version,
        uid: Arc<str>,
    },
    Written {
        uid: Arc<str>,
        source_uid: Arc<str>,
        version: Version,
        last: LastProjection,
    },
    StatusWritten {
        version: Version,
        status: Option<Fingerprint>,
    },
    ProviderGone,
    ProviderDeleting,
    ConsumerGone,
}

/// Who stood where when a plan was made: an answer that comes after somebody else took the name says nothing of that one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cast {
    pub consumer: Option<Arc<str>>,
    pub provider: Option<Arc<str>>,
}

/// Keys that a list showed, to tell in the end which are gone.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    keys: std::collections::HashSet<ObjectKey, ahash::RandomState>,
}

impl Index {
    pub(crate) fn new(contract: Arc<str>) -> Self {
        Self {
            contract,
            rows: HashMap::new(),
            places: HashMap::new(),
            refusals: HashMap::new(),
            sources: HashMap::new(),
            consumer_synced: false,
            consumer_count: 0,
        }
    }

    /// The pair of a key with its place, if both sides are known well enough to decide.
    pub(crate) fn known(&mut self, key: &ObjectKey) -> Option<(&mut Pair, Place)> {
        if !self.consumer_synced {
            return None;
        }
        let place = self.places.get(&key.namespace).filter(|place| place.listed)?;
        let place = place.clone();
        let pair = self.rows.get_mut(&key.namespace)?.get_mut(&key.name)?;
        Some((pair, place))
    }

    /// True if a pair waits for a provider namespace that nobody has asked for yet.
    pub(crate) fn needs_place(&self, key: &ObjectKey) -> bool {
        self.pair(key).is_some_and(wants_place) && !self.places.contains_key(&key.namespace)
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

    pub(crate) fn pair(&self, key: &ObjectKey) -> Option<&Pair> {
        self.rows.get(&key.namespace)?.get(&key.name)
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

    /// Objects of either side that a drain has to see gone.
    pub(crate) fn remaining(&self) -> usize {
        let pairs = self.rows.values().flat_map(HashMap::values);
        pairs
            .filter(|pair| pair.consumer.is_some() || pair.provider.as_ref().is_some_and(is_ours))
            .count()
    }

    /// All keys of a consumer namespace.
    pub(crate) fn keys_in(&self, namespace: &Arc<str>) -> Vec<ObjectKey> {
        let row = self.rows.get(namespace).into_iter().flat_map(HashMap::keys);
        row.map(|name| ObjectKey::new(Arc::clone(namespace), Arc::clone(name)))
            .collect()
    }

    /// True if a consumer namespace has objects that need a place.
    pub(crate) fn is_wanted(&self, namespace: &Arc<str>) -> bool {
        let row = self.rows.get(namespace);
        row.is_some_and(|row| row.values().any(wants_place))
    }

    /// True if a consumer namespace has a place and no object that would need one.
    pub(crate) fn is_vacant(&self, namespace: &Arc<str>) -> bool {
        self.places.contains_key(namespace) && !self.rows.contains_key(namespace)
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

    /// Takes a provider namespace into use, or out of it. What was seen in the one before is forgotten.
    pub(crate) fn set_place(&mut self, consumer_namespace: &Arc<str>, namespace: Option<Arc<str>>, closing: bool) {
        for pair in self
            .rows
            .get_mut(consumer_namespace)
            .into_iter()
            .flat_map(HashMap::values_mut)
        {
            pair.provider = None;
            pair.provider_gone = false;
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

    /// Notes a consumer object from list, watch or read; false if something newer is known.
    pub(crate) fn consumer_seen(&mut self, key: &ObjectKey, object: Object) -> bool {
        let pair = Self::row(&mut self.rows, key);
        let newer = |known: &Consumer| known.uid == object.meta.uid && known.version > object.meta.resource_version;
        if pair.consumer.as_ref().is_some_and(newer) {
            return false;
        }
        if pair.consumer.replace(Consumer::of(object)).is_none() {
            self.consumer_count += 1;
        }
        true
    }

    /// Notes that a consumer object is gone; `uid` is whose end was seen, if it is known.
    pub(crate) fn consumer_deleted(&mut self, key: &ObjectKey, uid: Option<&str>) {
        let pair = Self::row(&mut self.rows, key);
        let successor = |known: &Consumer| uid.is_some_and(|uid| *known.uid != *uid);
        if pair.consumer.as_ref().is_some_and(successor) {
            return;
        }
        if pair.consumer.take().is_some() {
            self.consumer_count -= 1;
        }
        pair.compared = None;
        self.sweep(key);
    }

    /// Notes a provider object from list, watch or read; false if something newer is known.
    pub(crate) fn provider_seen(&mut self, key: &ObjectKey, object: Object) -> bool {
        let pair = Self::row(&mut self.rows, key);
        let newer = |known: &Provider| known.uid == object.meta.uid && known.version > object.meta.resource_version;
        if pair.provider.as_ref().is_some_and(newer) {
            return false;
        }
        pair.provider = Some(Provider::of(object, &self.contract));
        pair.provider_gone = false;
        true
    }

    /// Notes that a provider object is gone; `uid` is whose end was seen, if it is known.
    pub(crate) fn provider_deleted(&mut self, key: &ObjectKey, uid: Option<&str>) {
        let pair = Self::row(&mut self.rows, key);
        let successor = |known: &Provider| uid.is_some_and(|uid| *known.uid != *uid);
        if pair.provider.as_ref().is_some_and(successor) {
            return;
        }
        let known = pair.provider.take().map(|known| known.uid);
        pair.last_gone = uid.map(Arc::from).or(known).or_else(|| pair.last_gone.take());
        pair.provider_gone = true;
        self.sweep(key);
    }

    /// Ends a list of the consumer's objects: what is neither listed nor newer is gone. Answers what changed so.
    pub(crate) fn consumer_listed(&mut self, listing: &Listing, version: Version) -> Vec<ObjectKey> {
        self.consumer_synced = true;
        let gone = self.unlisted(None, listing, |pair| {
            pair.consumer
                .as_ref()
                .is_some_and(|consumer| consumer.version <= version)
        });
        for key in &gone {
            self.consumer_deleted(key, None);
        }
        gone
    }

    /// Ends a list of a provider namespace.
    pub(crate) fn provider_listed(
        &mut self,
        consumer_namespace: &Arc<str>,
        listing: &Listing,
        version: Version,
    ) -> Vec<ObjectKey> {
        if let Some(place) = self.places.get_mut(consumer_namespace) {
            place.listed = true;
        }
        let gone = self.unlisted(Some(consumer_namespace), listing, |pair| {
            pair.provider
                .as_ref()
                .is_some_and(|provider| provider.version <= version)
        });
        for key in &gone {
            self.provider_deleted(key, None);
        }
        gone
    }

    /// Notes what an operation taught, of those that were there when it was planned.
    pub(crate) fn learn(&mut self, key: &ObjectKey, learned: Learned, cast: &Cast) {
        match learned {
            Learned::Consumer(Some(object)) => drop(self.consumer_seen(key, object)),
            Learned::Provider(Some(object)) => drop(self.provider_seen(key, object)),
            Learned::Consumer(None) | Learned::ConsumerGone => {
                let current = self
                    .pair(key)
                    .and_then(|pair| pair.consumer.as_ref())
                    .map(|consumer| &consumer.uid);
                if current == cast.consumer.as_ref() {
                    self.consumer_deleted(key, None);
                }
            }
            Learned::Provider(None) | Learned::ProviderGone => {
                let current = self
                    .pair(key)
                    .and_then(|pair| pair.provider.as_ref())
                    .map(|provider| &provider.uid);
                if current == cast.provider.as_ref() {
                    self.provider_deleted(key, None);
                }
            }
            Learned::ProviderDeleting => {
                let provider = Self::row(&mut self.rows, key).provider.as_mut();
                if let Some(provider) = provider.filter(|provider| Some(&provider.uid) == cast.provider.as_ref()) {
                    provider.deleting = true;
                }
            }
            Learned::Written {
                uid,
                source_uid,
                version,
                last,
            } => self.written(key, uid, &source_uid, version, last),
            Learned::Held { .. } | Learned::Noted { .. } | Learned::StatusWritten { .. } => {
                let consumer = Self::row(&mut self.rows, key).consumer.as_mut();
                if let Some(consumer) = consumer.filter(|consumer| Some(&consumer.uid) == cast.consumer.as_ref()) {
                    consumer.learn(learned);
                }
            }
        }
    }

    /// Notes our own write, unless the watch was quicker, also with its end.
    fn written(&mut self, key: &ObjectKey, uid: Arc<str>, source_uid: &str, version: Version, last: LastProjection) {
        let pair = Self::row(&mut self.rows, key);
        let known = |known: &Provider| known.uid == uid && known.version >= version;
        if pair.provider.as_ref().is_some_and(known) || pair.last_gone.as_ref() == Some(&uid) {
            return;
        }
        pair.provider_gone = false;
        pair.provider = Some(Provider {
            uid,
            version,
            deleting: false,
            owner: Owner::Ours {
                source_uid: source_uid.into(),
            },
            last: Some(last),
            seen: None,
            content: None,
        });
    }

    fn row<'a>(rows: &'a mut HashMap<Arc<str>, HashMap<Arc<str>, Pair>>, key: &ObjectKey) -> &'a mut Pair {
        let row = rows.entry(Arc::clone(&key.namespace)).or_default();
        row.entry(Arc::clone(&key.name)).or_default()
    }

    fn unlisted(
        &self,
        namespace: Option<&Arc<str>>,
        listing: &Listing,
        applies: impl Fn(&Pair) -> bool,
    ) -> Vec<ObjectKey> {
        let rows = self
            .rows
            .iter()
            .filter(|(row, _)| namespace.is_none_or(|namespace| namespace == *row));
        let pairs = rows.flat_map(|(row, pairs)| pairs.iter().map(move |(name, pair)| (row, name, pair)));
        pairs
            .filter(|(_, _, pair)| applies(pair))
            .map(|(row, name, _)| ObjectKey::new(Arc::clone(row), Arc::clone(name)))
            .filter(|key| !listing.keys.contains(key))
            .collect()
    }

    /// Forgets a pair of which nothing is left.
    fn sweep(&mut self, key: &ObjectKey) {
        let Some(row) = self.rows.get_mut(&key.namespace) else {
            return;
        };
        if row.get(&key.name).is_some_and(Pair::is_empty) {
            row.remove(&key.name);
        }
        if row.is_empty() {
            self.rows.remove(&key.namespace);
        }
    }

    fn sweep_row(&mut self, namespace: &Arc<str>) {
        if let Some(row) = self.rows.get_mut(namespace) {
            row.retain(|_, pair| !pair.is_empty());
            if row.is_empty() {
                self.rows.remove(namespace);
            }
        }
    }
}

fn is_ours(provider: &Provider) -> bool {
    matches!(provider.owner, Owner::Ours { .. })
}

// === impl Listing ===

impl Cast {
    pub(crate) fn of(pair: &Pair) -> Self {
        Self {
            consumer: pair.consumer.as_ref().map(|consumer| Arc::clone(&consumer.uid)),
            provider: pair.provider.as_ref().map(|provider| Arc::clone(&provider.uid)),
        }
    }
}

impl Listing {
    pub(crate) fn saw(&mut self, key: ObjectKey) {
        self.keys.insert(key);
    }
}

// === impl Consumer ===

impl Consumer {
    /// Notes our own write, unless the watch shows something newer. An answer with the version that is known says that the
    /// write changed nothing, as of a status that this cluster cannot hold: that is noted too, or it would be written again.
    fn learn(&mut self, learned: Learned) {
        let (Learned::Held { version, .. } | Learned::Noted { version, .. } | Learned::StatusWritten { version, .. }) =
            learned
        else {
            return;
        };
        if self.version > version {
            return;
        }
        self.version = version;
        match learned {
            Learned::Held { namespace, .. } => {
                self.held = true;
                self.noted_namespace = Some((*namespace).into());
            }
            Learned::Noted { uid, .. } => self.noted_uid = Some((*uid).into()),
            Learned::StatusWritten { status, .. } => self.status = status,
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
