//! Reads the existing versions of a set.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    object::{Identity, ObjectRef, owner_references},
    wire::{NAMESPACE, Phase, ResourceSet, SetName, Version, listed},
};

/// All versions of one set, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Versions(Vec<Known>);

/// One existing version.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The name of the version.
    pub version: Version,
    /// UID of its ResourceSet.
    pub uid: String,
    /// True if the version is being deleted. What it owns will be deleted with it, although the objects do not show it
    /// yet.
    pub going: bool,
    /// True if the version lists entries that cannot be read.
    pub odd: bool,
    /// The progress of its application.
    pub phase: Phase,
    /// The namespace that it was applied with, if recorded.
    pub namespace: Option<String>,
    /// The objects that it lists, in its order.
    pub objects: Vec<ObjectRef>,
    /// The state of each object right after it was applied.
    pub records: BTreeMap<Identity, Record>,
}

/// The state of an object right after it was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// UID of the object.
    pub uid: String,
    /// Generation of the object, for kinds that have one.
    pub generation: Option<i64>,
}

// === impl Versions ===

impl Versions {
    /// Selects the versions of one set from ResourceSets. A ResourceSet whose name is no version is ignored.
    pub fn of(set: &SetName, sets: impl IntoIterator<Item = ResourceSet>) -> Self {
        let known = sets.into_iter().filter_map(|found| Known::of(&found));
        let mut versions: Vec<_> = known.filter(|known| known.version.set == *set).collect();
        versions.sort_by_key(|known| known.version.number);
        Self(versions)
    }

    /// Returns the highest version number.
    pub fn highest(&self) -> Option<u64> {
        self.newest().map(|known| known.version.number)
    }

    /// The version with the highest number.
    pub fn newest(&self) -> Option<&Known> {
        self.0.last()
    }

    /// Returns the version with this number.
    pub fn get(&self, number: u64) -> Option<&Known> {
        self.0.iter().find(|known| known.version.number == number)
    }

    /// Iterates over all versions, oldest first.
    pub fn iter(&self) -> std::slice::Iter<'_, Known> {
        self.0.iter()
    }

    /// Returns the number of versions.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set has no version.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a version that is being deleted, if any.
    pub fn going(&self) -> Option<&Known> {
        self.0.iter().find(|known| known.going)
    }

    /// Whether one of the versions has this UID.
    pub fn has_uid(&self, uid: &str) -> bool {
        self.0.iter().any(|known| known.uid == uid)
    }

    /// Whether the versions own a live object and nobody else does, so that it would be deleted with them.
    pub fn own(&self, live: &Value) -> bool {
        let owners = owner_references(live);
        let is_ours = |owner: &Value| owner["uid"].as_str().is_some_and(|uid| self.has_uid(uid));
        !owners.is_empty() && owners.iter().all(is_ours)
    }

    /// Returns the namespace that the set was last applied with, if recorded.
    pub fn namespace(&self) -> Option<&str> {
        self.0.iter().rev().find_map(|known| known.namespace.as_deref())
    }
}

impl<'a> IntoIterator for &'a Versions {
    type Item = &'a Known;
    type IntoIter = std::slice::Iter<'a, Known>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

// === impl Known ===

impl Known {
    /// Reads a ResourceSet; `None` if it is no version of a set.
    pub fn of(set: &ResourceSet) -> Option<Self> {
        let annotations = set.metadata.annotations.as_ref();
        let applied = set.status.applied.iter().flat_map(|group| {
            group.items.iter().filter_map(|item| {
                let object = listed(&group.gvk, item.namespace.as_deref(), &item.name);
                let record = Record {
                    uid: item.uid.clone().filter(|uid| !uid.is_empty())?,
                    generation: item.generation.filter(|generation| *generation > 0),
                };
                Some((object.identity(), record))
            })
        });
        Some(Self {
            version: set.version()?,
            uid: set.metadata.uid.clone().unwrap_or_default(),
            going: set.metadata.deletion_timestamp.is_some(),
            odd: set.spec.odd,
            phase: set.status.phase,
            namespace: annotations.and_then(|all| all.get(NAMESPACE)).cloned(),
            objects: set.spec.objects().collect(),
            records: applied.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(name: &str, label: &str, status: &serde_json::Value) -> ResourceSet {
        serde_json::from_value(json!({
            "apiVersion": "apps.cloudrobotics.com/v1alpha1", "kind": "ResourceSet",
            "metadata": {"name": name, "labels": {"name": label}, "uid": format!("u-{name}")},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn versions_are_ordered_by_number_and_others_left_out() {
        let none = json!({});
        let settled = json!({"phase": "Settled", "applied": [{"version": "v1", "kind": "ConfigMap", "items": [
            {"namespace": "shop", "name": "a", "action": "Create", "uid": "x", "generation": 0},
            {"namespace": "shop", "name": "b", "action": "Create"},
        ]}]});
        let sets = [
            set("web.v10", "web", &none),
            set("web.v9", "web", &settled),
            set("web.vx", "web", &none),
            set("web.v11", "other", &none),
            set("shop.v12", "shop", &none),
        ];
        let versions = Versions::of(&"web".parse().unwrap(), sets);
        let numbers: Vec<_> = versions.iter().map(|known| known.version.number).collect();
        assert_eq!((numbers, versions.highest()), (vec![9, 10], Some(10)));
        assert!(versions.has_uid("u-web.v9") && !versions.has_uid("u-shop.v12"));
        assert_eq!(versions.going(), None);
        let mut going = set("web.v8", "web", &none);
        going.metadata = serde_json::from_value(json!({
            "name": "web.v8", "labels": {"name": "web"}, "deletionTimestamp": "2026-01-02T03:04:05Z",
        }))
        .unwrap();
        let some = Versions::of(&"web".parse().unwrap(), [going, set("web.v9", "web", &none)]);
        assert_eq!(some.going().map(|known| known.version.number), Some(8));
        let owned = |uids: &[&str]| {
            let owners: Vec<_> = uids.iter().map(|uid| json!({"uid": uid})).collect();
            versions.own(&json!({"metadata": {"ownerReferences": owners}}))
        };
        assert!(owned(&["u-web.v9"]) && owned(&["u-web.v10", "u-web.v9"]));
        assert!(!owned(&["u-web.v9", "u-team"]) && !owned(&["u-shop.v12"]) && !owned(&[]));
        assert!(!versions.own(&json!({"metadata": {}})));
        let records: Vec<_> = versions.get(9).unwrap().records.values().collect();
        let expect = Record {
            uid: "x".to_owned(),
            generation: None,
        };
        assert_eq!(records, [&expect], "a generation of 0 is none");
    }
}
