//! Orphans: copies whose source is missing although its deletion was not seen.

use std::collections::HashMap;

use bindery_api::orphans::OrphanSet;
use bindery_runtime::cache::ObjectKey;

use crate::{
    index::{Index, Known},
    model::uid::Uid,
};

/// A message names at most this many orphans.
const NAMED_MAX: usize = 5;

/// A copy whose source is missing although its deletion was not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Orphan<'a> {
    /// The UID of the copy.
    pub copy: &'a Uid,
    pub kind: OrphanKind,
}

/// What is at the place of the source of an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrphanKind {
    /// There is no object.
    Missing,
    /// There is another object of the same name.
    Replaced,
}

/// The orphans of an engine, or of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// All orphans, by number and digest.
    pub set: OrphanSet,
    /// The number of those whose name another object has now.
    pub replaced: usize,
    /// The first of them by name.
    pub first: Vec<ObjectKey>,
}

// === impl Orphans ===

impl Orphans {
    /// Joins the orphans of two engines.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.set = self.set.and(other.set);
        self.replaced += other.replaced;
        self.first.extend(other.first);
        self.first.sort();
        self.first.truncate(NAMED_MAX);
        self
    }

    fn of<'a>(orphans: impl Iterator<Item = (ObjectKey, Orphan<'a>)>) -> Self {
        let mut all = Self::default();
        for (key, orphan) in orphans {
            all.set.add(&orphan.copy.text());
            all.replaced += usize::from(orphan.kind == OrphanKind::Replaced);
            let at = all.first.partition_point(|known| *known < key);
            if at < NAMED_MAX {
                all.first.truncate(NAMED_MAX - 1);
                all.first.insert(at, key);
            }
        }
        all
    }
}

// === impl Index ===

impl<P: Known> Index<P> {
    /// The number of orphans, where both clusters were listed. It may include copies in provider namespaces that are not listed yet.
    pub(crate) fn orphan_count(&self) -> usize {
        if self.consumer_synced() { self.unsourced } else { 0 }
    }

    /// The orphans. They are searched for only if there are any.
    pub(crate) fn orphans(&self) -> Orphans {
        Orphans::of(self.each_orphan())
    }

    /// The UIDs of the copies of a set of orphans, with their keys; `None` if the orphans are others now.
    pub(crate) fn orphans_in(&self, set: OrphanSet) -> Option<HashMap<Uid, ObjectKey>> {
        let mut found = OrphanSet::default();
        let orphans = self.each_orphan().map(|(key, orphan)| {
            found.add(&orphan.copy.text());
            (orphan.copy.clone(), key)
        });
        let orphans = orphans.collect();
        (found == set).then_some(orphans)
    }

    fn each_orphan(&self) -> impl Iterator<Item = (ObjectKey, Orphan<'_>)> {
        let pairs = (self.orphan_count() > 0).then(|| self.pairs());
        // In a provider namespace that is not listed yet, a copy may have ended.
        let is_listed = move |key: &ObjectKey| self.places.get(&key.namespace).is_some_and(|place| place.listed);
        pairs
            .into_iter()
            .flatten()
            .filter_map(|(key, pair)| Some((key, pair.orphan()?)))
            .filter(move |(key, _)| is_listed(key))
    }
}
