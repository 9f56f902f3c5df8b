//! Sets and objects for tests.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Allowed, Plan, PlanInput, desired, plan};
use crate::{
    input::{Manifest, Origin},
    kinds::{Kinds, Resource},
    object::{Gvk, Identity, ObjectRef},
    versions::Versions,
    wire::{FIELD_MANAGER, Phase, ResourceSet, SetName, Version},
};

/// A cluster and a set.
#[derive(Clone, Default)]
pub(crate) struct World {
    pub manifests: Vec<Manifest>,
    pub versions: Versions,
    pub live: BTreeMap<Identity, Value>,
    pub allowed: Allowed,
}

/// The manifest of an object.
pub(crate) fn manifest(object: &Value) -> Manifest {
    Manifest {
        object: ObjectRef::of(object).expect("an object"),
        body: object.as_object().expect("an object").clone(),
        origin: Origin {
            file: "-".to_owned(),
            document: 1,
            line: 1,
        },
    }
}

pub(crate) fn config_map(name: &str, value: &str) -> Manifest {
    manifest(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}, "data": {"key": value},
    }))
}

pub(crate) fn set() -> SetName {
    "web".parse().expect("a name")
}

/// Kinds that are served.
pub(crate) fn kinds() -> Kinds {
    let resource = |api_version: &str, kind: &str, plural: &str, namespaced: bool| Resource {
        gvk: Gvk::new(api_version, kind),
        plural: plural.to_owned(),
        namespaced,
    };
    Kinds::served([
        resource("v1", "Namespace", "namespaces", false),
        resource("v1", "ConfigMap", "configmaps", true),
        resource("v1", "Secret", "secrets", true),
        resource("v1", "Service", "services", true),
        resource("apps/v1", "Deployment", "deployments", true),
        resource(
            "autoscaling/v1",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            true,
        ),
        resource(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            true,
        ),
        resource("extensions/v1beta1", "Ingress", "ingresses", true),
        resource("networking.k8s.io/v1", "Ingress", "ingresses", true),
        resource(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            false,
        ),
    ])
}

/// Settled versions of [`set`] that list these.
pub(crate) fn versions(listed: &[(u64, &[ObjectRef])]) -> Versions {
    let sets = listed.iter().map(|(number, objects)| {
        let mut set = ResourceSet::begin(&set().version(*number), "shop", objects, jiff::Timestamp::UNIX_EPOCH);
        set.metadata.uid = Some(format!("set-{number}"));
        set.status.phase = Phase::Settled;
        set
    });
    Versions::of(&set(), sets.collect::<Vec<_>>())
}

/// What an API server makes of an apply of ours. Lists whose items have names are keyed by them.
pub(crate) fn live(manifest: &Manifest, version: &Version, uid: &str) -> Value {
    let mut live = desired(manifest, Some((version, &format!("set-{}", version.number))));
    let entry = json!({
        "manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": manifest.object.gvk.api_version(),
        "fieldsType": "FieldsV1", "fieldsV1": owned(&live),
    });
    let metadata = &mut live["metadata"];
    metadata["uid"] = json!(uid);
    metadata["resourceVersion"] = json!("7");
    metadata["generation"] = json!(1);
    metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    metadata["managedFields"] = json!([entry]);
    live
}

/// The fields that an apply of a body owns.
fn owned(body: &Value) -> Value {
    let mut fields = below(body).as_object().cloned().unwrap_or_default();
    fields.remove("f:apiVersion");
    fields.remove("f:kind");
    if let Some(metadata) = fields.get_mut("f:metadata").and_then(Value::as_object_mut) {
        metadata.remove("f:name");
        metadata.remove("f:namespace");
        metadata.remove(".");
    }
    fields.remove(".");
    Value::Object(fields)
}

fn below(value: &Value) -> Value {
    let mut fields = Map::new();
    match value {
        Value::Object(all) if !all.is_empty() => {
            fields.insert(".".to_owned(), json!({}));
            fields.extend(all.iter().map(|(name, value)| (format!("f:{name}"), below(value))));
        }
        Value::Array(items) if !items.is_empty() && items.iter().all(|item| item.get("name").is_some()) => {
            for item in items {
                let key = if item.get("uid").is_some() { "uid" } else { "name" };
                fields.insert(format!("k:{{\"{key}\":{}}}", item[key]), below(item));
            }
        }
        _ => {}
    }
    Value::Object(fields)
}

// === impl World ===

impl World {
    /// A set that has been applied as version 1, and nothing since.
    pub(crate) fn applied(manifests: &[Manifest]) -> Self {
        let objects: Vec<_> = manifests.iter().map(|manifest| manifest.object.clone()).collect();
        let version = set().version(1);
        let live = manifests.iter().enumerate();
        let live = live.map(|(index, manifest)| (manifest.object.identity(), live_of(manifest, &version, index)));
        Self {
            manifests: manifests.to_vec(),
            versions: versions(&[(1, &objects)]),
            live: live.collect(),
            allowed: Allowed::default(),
        }
    }

    pub(crate) fn plan(&self) -> Plan {
        plan(&self.input(&set(), &kinds().with_definitions(&self.manifests)))
    }

    pub(crate) fn input<'a>(&'a self, set: &'a SetName, kinds: &'a Kinds) -> PlanInput<'a> {
        PlanInput {
            set,
            namespace: "shop",
            manifests: &self.manifests,
            kinds,
            versions: &self.versions,
            live: &self.live,
            allowed: &self.allowed,
        }
    }

    pub(crate) fn live(&mut self, index: usize) -> &mut Value {
        let identity = self.manifests[index].object.identity();
        self.live.get_mut(&identity).expect("it is there")
    }
}

fn live_of(manifest: &Manifest, version: &Version, index: usize) -> Value {
    live(manifest, version, &format!("uid-{index}"))
}
