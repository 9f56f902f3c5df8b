//! Defines the ResourceSet: the list of objects of one version of a set, and the outcome of its application.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::{NAME_LABEL, NAMESPACE, Version, each, each_lenient, lenient};
use crate::{
    object::{Gvk, ObjectRef},
    order,
};

/// `apiVersion` of a ResourceSet.
pub const API_VERSION: &str = "apps.cloudrobotics.com/v1alpha1";
/// `kind` of a ResourceSet.
pub const KIND: &str = "ResourceSet";
/// Name of the CRD of ResourceSets.
pub const CRD_NAME: &str = "resourcesets.apps.cloudrobotics.com";

/// One version of a set. It is cluster-scoped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSet {
    /// Always [`API_VERSION`].
    pub api_version: String,
    /// Always [`KIND`].
    pub kind: String,
    /// Metadata. The name is a [`Version`].
    pub metadata: ObjectMeta,
    /// The objects that the version contains.
    #[serde(default, deserialize_with = "lenient")]
    pub spec: Spec,
    /// The outcome of its application.
    #[serde(default, deserialize_with = "lenient")]
    pub status: Status,
}

/// The list of objects of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spec {
    /// Objects by kind: first Namespaces, ServiceAccounts and Secrets, then the other kinds by group, version and kind.
    pub resources: Vec<Group<Item>>,
    /// True if the list contains entries that could not be read.
    #[serde(skip)]
    pub odd: bool,
}

/// The outcome of applying a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The progress of the application.
    #[serde(default, deserialize_with = "lenient")]
    pub phase: Phase,
    /// The time when the application began.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// The time when the application ended.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// The objects that were applied.
    #[serde(default, deserialize_with = "each_lenient", skip_serializing_if = "Vec::is_empty")]
    pub applied: Vec<Group<Applied>>,
    /// The objects that could not be applied.
    #[serde(default, deserialize_with = "each_lenient", skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Group<Applied>>,
}

/// The progress of applying a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The application has begun and has not ended.
    #[default]
    Pending,
    /// All objects are applied.
    Settled,
    /// Some objects could not be applied.
    Failed,
}

/// Objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group<I> {
    /// The kind of the objects.
    #[serde(flatten)]
    pub gvk: Gvk,
    /// The objects of the group.
    #[serde(
        default = "Vec::new",
        deserialize_with = "each_lenient",
        bound(deserialize = "I: serde::de::DeserializeOwned")
    )]
    pub items: Vec<I>,
}

/// An object of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// The namespace; `None` for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: String,
}

/// The outcome for one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The namespace; `None` for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: String,
    /// The action on the object.
    #[serde(default, deserialize_with = "lenient")]
    pub action: Action,
    /// UID of the live object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Generation of the object after the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The error, if the action failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An action on an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// No action.
    #[default]
    None,
    /// The object was created.
    Create,
    /// The object was changed.
    Update,
    /// The object was deleted and created again.
    Replace,
    /// Only the owner was changed, because of annotation [`super::IGNORE`].
    Ignored,
}

// === impl ResourceSet ===

impl ResourceSet {
    /// Makes the ResourceSet of a version whose application begins now. `namespace` is the one that the set is applied with.
    pub fn begin(version: &Version, namespace: &str, objects: &[ObjectRef], now: Timestamp) -> Self {
        let mut objects: Vec<_> = objects.iter().collect();
        objects.sort_by_key(|object| order::wire_key(object));
        let item = |object: &ObjectRef| Item {
            namespace: object.namespace.clone(),
            name: object.name.clone(),
        };
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            metadata: ObjectMeta {
                name: Some(version.to_string()),
                labels: Some(BTreeMap::from([(NAME_LABEL.to_owned(), version.set.to_string())])),
                annotations: Some(BTreeMap::from([(NAMESPACE.to_owned(), namespace.to_owned())])),
                ..ObjectMeta::default()
            },
            spec: Spec {
                resources: grouped(objects.into_iter().map(|object| (&object.gvk, item(object)))),
                odd: false,
            },
            status: Status {
                started_at: Some(now),
                ..Status::default()
            },
        }
    }

    /// Returns the version that the name stands for. `None` if the name is no version of the set in its label.
    pub fn version(&self) -> Option<Version> {
        let version: Version = self.metadata.name.as_deref()?.parse().ok()?;
        let label = self.metadata.labels.as_ref()?.get(NAME_LABEL)?;
        (label == version.set.as_str()).then_some(version)
    }
}

// === impl Spec ===

impl<'de> Deserialize<'de> for Spec {
    /// Deserializes the entries that fit, and records whether others were skipped: pruning would miss objects that are
    /// not known to be listed.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spec = Value::deserialize(deserializer)?;
        let (groups, mut is_all) = each::<Value>(&spec["resources"]);
        is_all &= spec.is_null() || spec.is_object();
        let mut resources = Vec::with_capacity(groups.len());
        for group in groups {
            let (items, has_all) = each(&group["items"]);
            let gvk = serde_json::from_value(group).ok();
            is_all &= has_all && gvk.is_some();
            resources.extend(gvk.map(|gvk| Group { gvk, items }));
        }
        Ok(Self {
            resources,
            odd: !is_all,
        })
    }
}

impl Spec {
    /// Returns all objects of the list.
    pub fn objects(&self) -> impl Iterator<Item = ObjectRef> {
        self.resources.iter().flat_map(|group| {
            let items = group.items.iter();
            items.map(|item| listed(&group.gvk, item.namespace.as_deref(), &item.name))
        })
    }
}

// === impl Group ===

/// Groups consecutive objects of the same kind.
pub(crate) fn grouped<'a, I>(items: impl Iterator<Item = (&'a Gvk, I)>) -> Vec<Group<I>> {
    let mut groups: Vec<Group<I>> = Vec::new();
    for (gvk, item) in items {
        match groups.last_mut() {
            Some(group) if group.gvk == *gvk => group.items.push(item),
            _ => groups.push(Group {
                gvk: gvk.clone(),
                items: vec![item],
            }),
        }
    }
    groups
}

/// Returns the object of an entry. An empty namespace means none.
pub(crate) fn listed(gvk: &Gvk, namespace: Option<&str>, name: &str) -> ObjectRef {
    ObjectRef {
        gvk: gvk.clone(),
        namespace: namespace.filter(|namespace| !namespace.is_empty()).map(str::to_owned),
        name: name.to_owned(),
    }
}

/// Makes the owner reference from an object to one version of its set.
pub fn owner_reference(version: &Version, uid: &str) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": KIND, "name": version.to_string(), "uid": uid, "blockOwnerDeletion": true,
    })
}

/// Whether an owner reference names a ResourceSet.
pub fn is_resource_set(reference: &Value) -> bool {
    let group = reference["apiVersion"]
        .as_str()
        .and_then(|version| version.split_once('/'));
    reference["kind"] == KIND && group.is_some_and(|(group, _)| group == "apps.cloudrobotics.com")
}

/// Returns the CRD of ResourceSets.
#[expect(clippy::missing_panics_doc, reason = "what is written here is a definition")]
pub fn crd() -> CustomResourceDefinition {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": CRD_NAME},
        "spec": {
            "group": "apps.cloudrobotics.com",
            "scope": "Cluster",
            "names": {"plural": "resourcesets", "singular": "resourceset", "kind": KIND, "listKind": "ResourceSetList"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "additionalPrinterColumns": [
                    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
            }],
        },
    });
    serde_json::from_value(definition).expect("the definition above is one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_another_synk_is_read_and_its_list_is_whole() {
        let set: ResourceSet = serde_json::from_value(json!({
            "apiVersion": API_VERSION, "kind": KIND,
            "metadata": {"name": "web.v2", "labels": {"name": "web"}, "uid": "u"},
            "spec": {"resources": [
                {"version": "v1", "kind": "ConfigMap", "items": [{"namespace": "shop", "name": "a"}, {"name": "b"}]},
                {"group": "apps", "version": "v1", "kind": "Deployment", "items": [{"namespace": "", "name": "c"}]},
            ]},
            "status": {
                "phase": "Failed", "startedAt": "2026-01-02T03:04:05Z",
                "applied": [{"version": "v1", "kind": "ConfigMap", "items": [
                    {"namespace": "shop", "name": "a", "action": "Create", "uid": "x", "generation": 1},
                ]}],
                "failed": [{"group": "apps", "version": "v1", "kind": "Deployment", "items": [
                    {"name": "c", "action": "None", "error": "why"},
                ]}],
            },
        }))
        .unwrap();
        assert_eq!(set.version().unwrap().number, 2);
        let names: Vec<_> = set.spec.objects().map(|object| object.to_string()).collect();
        assert_eq!(
            names,
            ["configmap/a in namespace shop", "configmap/b", "deployment.apps/c"]
        );
        assert_eq!(set.status.failed[0].items[0].error.as_deref(), Some("why"));
    }

    #[test]
    fn what_begins_is_pending_and_lists_its_objects_by_kind() {
        let object = |kind: &str, name: &str| ObjectRef {
            gvk: Gvk::new("v1", kind),
            namespace: Some("shop".to_owned()),
            name: name.to_owned(),
        };
        let version = "web.v1".parse().unwrap();
        let objects = [
            object("Secret", "a"),
            object("ConfigMap", "b"),
            object("ConfigMap", "c"),
        ];
        let shuffled = [objects[2].clone(), objects[0].clone(), objects[1].clone()];
        let set = ResourceSet::begin(&version, "shop", &shuffled, Timestamp::UNIX_EPOCH);
        assert_eq!(set.metadata.annotations.as_ref().unwrap()[NAMESPACE], "shop");
        let value = serde_json::to_value(&set).unwrap();
        assert_eq!(
            value["spec"],
            json!({"resources": [
                {"version": "v1", "kind": "Secret", "items": [{"namespace": "shop", "name": "a"}]},
                {"version": "v1", "kind": "ConfigMap", "items": [
                    {"namespace": "shop", "name": "b"}, {"namespace": "shop", "name": "c"},
                ]},
            ]})
        );
        assert_eq!(
            value["status"],
            json!({"phase": "Pending", "startedAt": "1970-01-01T00:00:00Z"})
        );
        assert_eq!(set.version(), Some(version));
        assert_eq!(set.spec.objects().collect::<Vec<_>>(), objects);
    }

    /// An element that cannot be read sets `odd`, and the other elements of the list are still read.
    #[test]
    fn what_is_odd_in_a_list_is_told() {
        #[track_caller]
        fn check(spec: &Value, expect: &[&str], odd: bool) {
            let set = json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "web.v2"}, "spec": spec});
            let set: ResourceSet = serde_json::from_value(set).unwrap();
            let names: Vec<_> = set.spec.objects().map(|object| object.name).collect();
            assert_eq!(
                (names, set.spec.odd),
                (expect.iter().map(ToString::to_string).collect(), odd),
                "{spec}"
            );
        }
        let group = |items: Value| json!({"version": "v1", "kind": "ConfigMap", "items": items});
        let of = |groups: &[Value]| json!({"resources": groups});
        let [a, b] = ["a", "b"].map(|name| json!({"name": name}));
        check(&json!({}), &[], false);
        check(&json!(null), &[], false);
        check(&json!({"resources": null}), &[], false);
        check(&of(&[group(json!(null)), group(json!([a, b]))]), &["a", "b"], false);
        check(&json!(1), &[], true);
        check(&json!({"resources": "x"}), &[], true);
        check(
            &of(&[group(json!([{"namespace": "x"}, b])), group(json!([a]))]),
            &["b", "a"],
            true,
        );
        check(
            &of(&[json!({"kind": null, "items": [a]}), group(json!([b]))]),
            &["b"],
            true,
        );
        check(&of(&[group(json!("x")), group(json!([b]))]), &["b"], true);
        check(&of(&[json!(1), group(json!([b]))]), &["b"], true);
    }

    #[test]
    fn one_odd_outcome_hides_no_other() {
        let items = json!([{"name": 1}, {"name": "a", "uid": "u"}]);
        let status: Status =
            serde_json::from_value(json!({"applied": [1, {"version": "v1", "kind": "ConfigMap", "items": items}]}))
                .unwrap();
        assert_eq!(status.applied[0].items[0].name, "a");
    }

    /// A field that cannot be read gets its default, so that the version itself is still known.
    #[test]
    fn what_is_odd_in_a_set_is_taken_as_absent() {
        let set: ResourceSet = serde_json::from_value(json!({
            "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "web.v2", "labels": {"name": "web"}},
            "spec": {"resources": [{"version": "v1", "kind": "ConfigMap", "items": null}]},
            "status": {"phase": "Later", "startedAt": null, "applied": null, "failed": [{"version": "v1", "kind": "ConfigMap", "items": [
                {"name": "c", "action": "Odd"},
            ]}]},
        }))
        .unwrap();
        assert_eq!(set.status.phase, Phase::Pending);
        assert_eq!(set.status.failed[0].items[0].action, Action::None);
        assert_eq!(set.spec.objects().count(), 0);
        let odd = json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "web.v3", "labels": {"name": "web"}}, "spec": 1});
        let set: ResourceSet = serde_json::from_value(odd).unwrap();
        assert_eq!(set.version().unwrap().number, 3);
    }

    #[test]
    fn the_definition_is_open_and_cluster_scoped() {
        let definition = crd();
        assert_eq!(definition.spec.scope, "Cluster");
        assert!(definition.spec.versions[0].subresources.is_none());
    }
}
