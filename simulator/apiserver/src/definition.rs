//! CustomResourceDefinitions: what the API server serves because of them.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    endpoint::{Custom, Endpoint, Traits},
    kind::KindInfo,
    meta,
    schema::Schema,
};

pub(crate) const GROUP: &str = "apiextensions.k8s.io";
pub(crate) const RESOURCE: &str = "customresourcedefinitions";
/// Finalizer of CRDs whose custom resources are not deleted yet.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The condition of a CRD of this type.
pub(crate) fn condition<'a>(definition: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = definition.get("status")?.get("conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

pub(crate) fn is_true(definition: &Value, kind: &str) -> bool {
    condition(definition, kind).is_some_and(|condition| condition["status"] == "True")
}

/// If the API server serves the CRD.
pub(crate) fn is_served(definition: &Value) -> bool {
    is_true(definition, "NamesAccepted") || is_true(definition, "Established")
}

/// If two states of a CRD are served by the same storage, so that watches of its resources go on.
pub(crate) fn is_same_storage(before: &Value, after: &Value) -> bool {
    before.get("spec") == after.get("spec")
        && before.pointer("/status/acceptedNames") == after.pointer("/status/acceptedNames")
}

/// The endpoints of a CRD. `stamp` numbers its schemas, from this on; `earlier` are the endpoints of the CRD before the change.
pub(crate) fn endpoints(definition: &Value, stamp: &mut u64, earlier: &[Arc<Endpoint>]) -> Vec<Endpoint> {
    if !is_served(definition) {
        return Vec::new();
    }
    let spec = &definition["spec"];
    let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
    let group = text("group");
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let stored = versions.iter().find(|version| version["storage"] == true);
    let stored = stored.and_then(|version| version["name"].as_str()).unwrap_or_default();
    let accepted = match definition.pointer("/status/acceptedNames") {
        Some(names) if names["plural"].as_str().is_some_and(|plural| !plural.is_empty()) => names,
        _ => &spec["names"],
    };
    let name = |field: &str| accepted[field].as_str().unwrap_or_default().to_owned();
    let names = |field: &str| {
        let list = accepted[field].as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
    };
    let preserve = spec["preserveUnknownFields"] == true;
    let served = versions.iter().filter(|version| version["served"] == true);
    served
        .map(|version| {
            let version_name = version["name"].as_str().unwrap_or_default();
            let json = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default();
            let known = earlier.iter().find(|endpoint| {
                endpoint.info.version == version_name && endpoint.info.schema.as_deref() == Some(&json)
            });
            let known = known.and_then(|endpoint| Some((endpoint.info.schema.clone()?, endpoint.custom.as_ref()?)));
            let (json, schema, stamp) = if let Some((json, custom)) = known {
                (json, Arc::clone(&custom.schema), custom.stamp)
            } else {
                *stamp += 1;
                let schema = Schema::compile(&json, preserve);
                (Arc::new(json), Arc::new(schema), *stamp)
            };
            let selectable = version["selectableFields"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            let selectable = selectable.iter().filter_map(|field| field["jsonPath"].as_str());
            Endpoint {
                info: KindInfo {
                    group: group.clone(),
                    version: version_name.to_owned(),
                    kind: name("kind"),
                    status: version.pointer("/subresources/status").is_some(),
                    schema: Some(json),
                },
                resource: name("plural"),
                singular: name("singular"),
                list_kind: name("listKind"),
                short_names: names("shortNames"),
                categories: names("categories"),
                namespaced: spec["scope"] == "Namespaced",
                traits: Traits {
                    generation: true,
                    ..Traits::default()
                },
                storage_group: group.clone(),
                custom: Some(Custom {
                    definition: meta::name(definition).to_owned(),
                    schema,
                    storage_api_version: format!("{group}/{stored}"),
                    stamp,
                    terminating: is_true(definition, "Terminating"),
                    selectable: selectable.map(|path| path.trim_start_matches('.').to_owned()).collect(),
                }),
            }
        })
        .collect()
}
