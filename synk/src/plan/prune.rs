//! Finds the objects that left the set.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    PlanInput, Prune,
    ownership::{is_of, owners},
    reads::is_read,
};
use crate::{
    object::{Identity, ObjectRef, owner_references},
    order,
    wire::SetName,
};

/// The objects that left the set.
#[derive(Debug)]
pub(super) struct Left {
    /// Objects to delete, in reverse order of their application.
    pub pruned: Vec<Prune>,
    /// Objects that stay and only lose the set as owner.
    pub released: Vec<Prune>,
    /// Number of live objects that the set owns, those that left included, CRDs excluded. A plan that deletes more than
    /// half of them is refused unless the user allows it.
    pub owned: usize,
}

/// Finds the objects that left the set. Only objects that this set alone owns are deleted. An object with another owner
/// is left as it is; Kubernetes would not collect it either. CRDs are never deleted, nor is a namespace in which an
/// object of the set stays.
pub(super) fn prune(input: &PlanInput<'_>) -> Left {
    // An identity is group, kind, namespace and name, without the API version.
    let wanted: BTreeMap<Identity, &ObjectRef> = input
        .manifests
        .iter()
        .map(|manifest| (manifest.object.identity(), &manifest.object))
        .collect();
    // Two API groups may serve the same object.
    let wanted_uids: BTreeSet<_> = wanted
        .keys()
        .filter_map(|identity| uid(input.live.get(identity)?))
        .collect();
    // The newest version comes first, so that its reference to an object is used.
    let listed = input.versions.iter().rev().flat_map(|known| &known.objects);

    let mut owned = BTreeSet::new();
    let mut pruned = BTreeMap::new();
    for object in listed
        .chain(wanted.values().copied())
        .filter(|object| !object.gvk.is_crd())
    {
        let identity = object.identity();
        let Some(live) = input.live.get(&identity) else {
            continue;
        };
        let Some(uid) =
            uid(live).filter(|_| live["metadata"]["deletionTimestamp"].is_null() && is_owned(live, input.set))
        else {
            continue;
        };
        owned.insert(uid);
        if !wanted.contains_key(&identity) && !wanted_uids.contains(uid) && is_alone(live, input.set) {
            pruned.entry(uid).or_insert_with(|| as_read(object, live));
        }
    }
    let uids: BTreeSet<&str> = pruned.keys().copied().collect();
    let mut all: Vec<_> = pruned
        .into_iter()
        .map(|(uid, object)| Prune {
            object,
            uid: uid.to_owned(),
        })
        .collect();
    all.sort_by_key(|prune| std::cmp::Reverse(order::key(&prune.object)));
    let is_released = |prune: &Prune| prune.object.gvk.is_namespace() && is_used(input, &prune.object.name, &uids);
    let (released, pruned) = all.into_iter().partition(is_released);
    Left {
        pruned,
        released,
        owned: owned.len(),
    }
}

/// Whether the set is applied with this namespace, or the namespace holds an object of the set that stays. An object
/// whose kind is no longer served cannot be read, and counts as staying.
fn is_used(input: &PlanInput<'_>, namespace: &str, pruned: &BTreeSet<&str>) -> bool {
    let is_inside = |object: &ObjectRef| object.namespace.as_deref() == Some(namespace);
    let stays = |object: &ObjectRef| match input.live.get(&object.identity()) {
        Some(live) => {
            live["metadata"]["deletionTimestamp"].is_null() && !uid(live).is_some_and(|uid| pruned.contains(uid))
        }
        None => !is_read(object, input.kinds),
    };
    let mut listed = input.versions.iter().flat_map(|known| &known.objects);
    input.namespace == namespace
        || input.manifests.iter().any(|manifest| is_inside(&manifest.object))
        || listed.any(|object| is_inside(object) && stays(object))
}

fn uid(live: &Value) -> Option<&str> {
    live["metadata"]["uid"].as_str()
}

/// Returns the reference with the API version that the object was read with, because that version is served.
fn as_read(object: &ObjectRef, live: &Value) -> ObjectRef {
    ObjectRef::of(live)
        .filter(|read| read.identity() == object.identity())
        .unwrap_or_else(|| object.clone())
}

fn is_owned(live: &Value, set: &SetName) -> bool {
    owners(live).into_iter().any(|owner| is_of(owner, set))
}

/// Whether the ResourceSets that own an object are all versions of this set, and nothing else owns it.
fn is_alone(live: &Value, set: &SetName) -> bool {
    let owners = owners(live);
    owners.len() == owner_references(live).len() && owners.into_iter().all(|owner| is_of(owner, set))
}
