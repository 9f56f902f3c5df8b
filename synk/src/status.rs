//! Describes a set: its versions, and each object of the newest version.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::{
    health::Health,
    object::{Identity, ObjectRef},
    wire::{self, NAMESPACE, Phase, ResourceSet, SetName, Version},
};

/// The state of a set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// The name of the set.
    pub set: SetName,
    /// The namespace that the set was last applied with, if the newest version records it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// All existing versions, newest first.
    pub versions: Vec<VersionStatus>,
    /// The objects of the newest version, in its order.
    pub objects: Vec<ObjectStatus>,
}

/// The state of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionStatus {
    /// The name of the version.
    #[serde(serialize_with = "wire::as_text")]
    pub version: Version,
    /// The progress of its application.
    pub phase: Phase,
    /// True if the version is being deleted, with the objects that it owns.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
    /// The time when the application began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// The time when the application ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<Timestamp>,
    /// The number of objects that the version lists.
    pub objects: usize,
    /// The number of objects that could not be applied.
    pub failed: usize,
}

/// The state of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectStatus {
    /// The object of this state.
    #[serde(flatten)]
    pub object: ObjectRef,
    /// The health of the object.
    pub health: Health,
    /// The ResourceSet that owns the object; CRDs have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Why the object could not be applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

// === impl Status ===

impl Status {
    /// Makes the state from the versions of a set. `live` holds the live objects of [`objects`], in that order.
    pub fn of(set: &SetName, sets: &[ResourceSet], live: &[Option<Value>]) -> Self {
        let versions = newest_first(sets);
        let newest = versions.first().map(|(_, newest)| *newest);
        let annotations = newest.and_then(|newest| newest.metadata.annotations.as_ref());
        let errors = newest.map(errors).unwrap_or_default();
        let objects = newest.into_iter().flat_map(|newest| newest.spec.objects());
        let live = live.iter().map(Option::as_ref).chain(std::iter::repeat(None));
        Self {
            set: set.clone(),
            namespace: annotations.and_then(|all| all.get(NAMESPACE)).cloned(),
            objects: objects
                .zip(live)
                .map(|(object, live)| ObjectStatus {
                    health: Health::of(live),
                    owner: live.and_then(owner),
                    error: errors.get(&object.identity()).cloned(),
                    object,
                })
                .collect(),
            versions: versions
                .into_iter()
                .map(|(version, set)| VersionStatus::of(version, set))
                .collect(),
        }
    }

    /// Whether the newest version is applied and all its objects are healthy.
    pub fn is_healthy(&self) -> bool {
        let settled = self
            .versions
            .first()
            .is_some_and(|newest| newest.phase == Phase::Settled && !newest.deleting);
        settled && self.objects.iter().all(|object| object.health.is_healthy())
    }
}

/// Returns the objects of the newest version.
pub fn objects(sets: &[ResourceSet]) -> Vec<ObjectRef> {
    let newest = newest_first(sets).into_iter().next();
    newest.into_iter().flat_map(|(_, set)| set.spec.objects()).collect()
}

fn newest_first(sets: &[ResourceSet]) -> Vec<(Version, &ResourceSet)> {
    let mut versions: Vec<_> = sets.iter().filter_map(|set| Some((set.version()?, set))).collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(version.number));
    versions
}

/// Returns why objects could not be applied.
fn errors(set: &ResourceSet) -> BTreeMap<Identity, String> {
    let groups = set.status.failed.iter();
    let items = groups.flat_map(|group| group.items.iter().map(|item| (&group.gvk, item)));
    let errors = items.filter_map(|(gvk, item)| {
        let object = wire::listed(gvk, item.namespace.as_deref(), &item.name);
        Some((object.identity(), item.error.clone()?))
    });
    errors.collect()
}

/// Returns the name of the ResourceSet that owns an object.
fn owner(live: &Value) -> Option<String> {
    let references = live["metadata"]["ownerReferences"].as_array()?;
    let set = references.iter().find(|reference| wire::is_resource_set(reference))?;
    set["name"].as_str().map(str::to_owned)
}

// === impl VersionStatus ===

impl VersionStatus {
    fn of(version: Version, set: &ResourceSet) -> Self {
        Self {
            version,
            phase: set.status.phase,
            deleting: set.metadata.deletion_timestamp.is_some(),
            started: set.status.started_at,
            finished: set.status.finished_at,
            objects: set.spec.objects().count(),
            failed: set.status.failed.iter().map(|group| group.items.len()).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn version(number: u64, phase: &str, names: &[&str], failed: &[&str]) -> ResourceSet {
        let items = |names: &[&str]| -> Vec<Value> {
            let item = |name: &&str| json!({"namespace": "shop", "name": name, "error": "too bad"});
            names.iter().map(item).collect()
        };
        serde_json::from_value(json!({
            "apiVersion": wire::API_VERSION, "kind": wire::KIND,
            "metadata": {
                "name": format!("web.v{number}"), "labels": {"name": "web"},
                "annotations": {NAMESPACE: format!("shop-{number}")},
            },
            "spec": {"resources": [{"version": "v1", "kind": "Pod", "items": items(names)}]},
            "status": {
                "phase": phase, "startedAt": "2026-01-02T03:04:05Z",
                "failed": [{"version": "v1", "kind": "Pod", "items": items(failed)}],
            },
        }))
        .unwrap()
    }

    fn pod(phase: &str, owner: &str) -> Value {
        let foreign = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other"});
        let owner = json!({"apiVersion": wire::API_VERSION, "kind": wire::KIND, "name": owner});
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"ownerReferences": [foreign, owner]}, "status": {"phase": phase},
        })
    }

    fn web() -> SetName {
        "web".parse().unwrap()
    }

    #[test]
    fn the_newest_version_is_shown_with_its_objects() {
        let sets = [
            version(2, "Settled", &["old"], &[]),
            version(10, "Failed", &["a", "b", "c"], &["c"]),
            version(9, "Failed", &[], &[]),
        ];
        let names: Vec<_> = objects(&sets).into_iter().map(|object| object.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let live = [Some(pod("Succeeded", "web.v10")), None, Some(pod("Pending", "web.v2"))];
        let status = Status::of(&web(), &sets, &live);
        assert_eq!(status.namespace.as_deref(), Some("shop-10"));
        let versions: Vec<_> = status
            .versions
            .iter()
            .map(|one| (one.version.number, one.objects, one.failed))
            .collect();
        assert_eq!(versions, [(10, 3, 1), (9, 0, 0), (2, 1, 0)]);
        let shown = serde_json::to_value(&status).unwrap();
        assert_eq!(
            shown["versions"][0],
            json!({
                "version": "web.v10", "phase": "Failed", "started": "2026-01-02T03:04:05Z", "objects": 3, "failed": 1,
            })
        );
        let object = |name: &str, more: Value| {
            let mut object = json!({"version": "v1", "kind": "Pod", "namespace": "shop", "name": name});
            object
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            object
        };
        let pending = json!({"state": "Progressing", "reason": "it is not ready"});
        assert_eq!(
            shown["objects"],
            json!([
                object("a", json!({"health": {"state": "Healthy"}, "owner": "web.v10"})),
                object("b", json!({"health": {"state": "Missing"}})),
                object("c", json!({"health": pending, "owner": "web.v2", "error": "too bad"})),
            ])
        );
        assert!(!status.is_healthy());
    }

    #[test]
    fn a_set_is_healthy_when_it_is_settled_and_all_its_objects_are() {
        #[track_caller]
        fn check(phase: &str, live: &[Option<Value>], expect: bool) {
            let sets = [version(1, phase, &["a"], &[])];
            assert_eq!(Status::of(&web(), &sets, live).is_healthy(), expect);
        }
        check("Settled", &[Some(pod("Succeeded", "web.v1"))], true);
        check("Settled", &[Some(pod("Pending", "web.v1"))], false);
        check("Settled", &[None], false);
        check("Settled", &[], false);
        check("Pending", &[Some(pod("Succeeded", "web.v1"))], false);
        check("Failed", &[Some(pod("Succeeded", "web.v1"))], false);
        assert!(!Status::of(&web(), &[], &[]).is_healthy());
    }
}
