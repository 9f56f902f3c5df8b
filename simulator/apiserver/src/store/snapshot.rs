//! Backups of a store.

use std::{collections::BTreeMap, sync::Arc};

use super::{Store, Stored};
use crate::{ClusterSettings, ObjectKey, endpoint::Endpoints};

/// What becomes of the revision of the store when a snapshot is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revisions {
    /// The revision goes back to that of the snapshot.
    Kept,
    /// The revision is that of the snapshot plus this number, and all older ones count as compacted.
    Bumped(u64),
}

/// A backup of a cluster. Clones share the objects.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) objects: Arc<BTreeMap<ObjectKey, Arc<Stored>>>,
    pub(crate) revision: u64,
    pub(crate) settings: ClusterSettings,
    pub(crate) endpoints: Endpoints,
    pub(crate) stamp: u64,
}

impl Snapshot {
    /// Revision of the store when the backup was taken.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// If the backup has this object, the object as it was.
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<serde_json::Value>> {
        self.objects.get(key).map(|stored| &stored.value)
    }

    /// The same backup without the objects of these keys, as if etcd had lost them.
    #[must_use]
    pub fn without(&self, is_lost: impl Fn(&ObjectKey, &serde_json::Value) -> bool) -> Self {
        let kept = self.objects.iter().filter(|(key, stored)| !is_lost(key, &stored.value));
        Self {
            objects: Arc::new(kept.map(|(key, stored)| (key.clone(), Arc::clone(stored))).collect()),
            ..self.clone()
        }
    }

    /// All objects of the backup, in the order of their keys.
    pub fn objects(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<serde_json::Value>)> {
        self.objects.iter().map(|(key, stored)| (key, &stored.value))
    }
}

impl Store {
    pub(crate) fn objects(&self) -> BTreeMap<ObjectKey, Arc<Stored>> {
        self.objects.clone()
    }

    /// The store of a restored backup. Nothing is known of its past.
    pub(crate) fn restored(snapshot: &Snapshot, revisions: Revisions) -> Self {
        let revision = match revisions {
            Revisions::Kept => snapshot.revision,
            Revisions::Bumped(by) => snapshot.revision + by,
        };
        Self {
            objects: BTreeMap::clone(&snapshot.objects),
            ..Self::new(revision)
        }
    }
}
