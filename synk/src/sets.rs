//! Reads, creates, completes and deletes ResourceSets.

use bindery_runtime::errors;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;

use crate::{
    errors::Failure,
    kinds::Resource,
    object::Gvk,
    rest::{Exactly, Place, Propagation, Rest},
    wire::{self, API_VERSION, NAME_LABEL, ResourceSet, SetName, Status, Version},
};

/// Returns the address of ResourceSets.
pub(crate) fn resource() -> Resource {
    Resource {
        gvk: Gvk::new(API_VERSION, wire::KIND),
        plural: "resourcesets".to_owned(),
        namespaced: false,
    }
}

/// Whether an installed CRD accepts ResourceSets as they are on the wire.
pub(crate) fn serves(definition: &CustomResourceDefinition) -> bool {
    let wanted = wire::crd();
    let is_ours = |name: &str| wanted.spec.versions.iter().any(|version| version.name == name);
    definition.spec.scope == wanted.spec.scope
        && definition.spec.versions.iter().any(|version| {
            let schema = version
                .schema
                .as_ref()
                .and_then(|schema| schema.open_api_v3_schema.as_ref());
            let part = |name: &str| schema.and_then(|schema| schema.properties.as_ref()?.get(name));
            let is_open =
                |name: &str| part(name).is_some_and(|part| part.x_kubernetes_preserve_unknown_fields == Some(true));
            is_ours(&version.name) && version.served && is_open("spec") && is_open("status")
        })
}

/// Lists all versions of a set, or of all sets.
pub(crate) async fn list(rest: &Rest, set: Option<&SetName>) -> Result<Vec<ResourceSet>, Failure> {
    let label = set.map(|set| format!("{NAME_LABEL}={set}"));
    let items = rest
        .list(&resource(), None, label.as_deref())
        .await
        .map_err(Failure::api("list ResourceSets"))?
        .ok_or(Failure::NotInstalled)?;
    let parsed = items.into_iter().map(|item| {
        let name = item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        serde_json::from_value(item).map_err(|error| Failure::Unreadable {
            what: format!("ResourceSet {name}"),
            problem: error.to_string(),
        })
    });
    parsed.collect()
}

/// Creates a version and returns its UID.
pub(crate) async fn begin(rest: &Rest, version: &Version, set: &ResourceSet) -> Result<String, Failure> {
    let name = version.to_string();
    match rest.create(at(&resource(), &name), set).await {
        Ok(written) => Ok(written.uid.unwrap_or_default()),
        Err(error) => {
            if errors::is_already_exists(&error) {
                listed(rest, version).await?;
            }
            Err(Failure::api(format!("create ResourceSet {version}"))(error))
        }
    }
}

/// Fails if a version that exists is missing in the list of its set, because every later apply would collide with it.
async fn listed(rest: &Rest, version: &Version) -> Result<(), Failure> {
    let name = version.to_string();
    let read = rest.get(at(&resource(), &name)).await;
    let found = read.map_err(Failure::api(format!("read ResourceSet {version}")))?;
    match found {
        Some(found) if found["metadata"]["labels"][NAME_LABEL] != version.set.to_string() => Err(Failure::Unreadable {
            what: format!("ResourceSet {version}"),
            problem: format!(
                "it lacks the label {NAME_LABEL}={set}, so that set {set} does not have it: label it, or delete it",
                set = version.set
            ),
        }),
        _ => Ok(()),
    }
}

/// Writes the status of a version.
pub(crate) async fn end(rest: &Rest, version: &Version, uid: &str, status: &Status) -> Result<(), kube::Error> {
    let patch = json!({"metadata": {"uid": uid}, "status": status});
    rest.merge(at(&resource(), &version.to_string()), &patch)
        .await
        .map(drop)
}

/// Deletes a version, if it still exists.
pub(crate) async fn delete(rest: &Rest, version: &Version, uid: &str, propagation: Propagation) -> Result<(), Failure> {
    match rest
        .delete(at(&resource(), &version.to_string()), Exactly::uid(uid), propagation)
        .await
    {
        // The version is gone, and another ResourceSet has its name.
        Err(error) if errors::is_conflict(&error) => Ok(()),
        deleted => deleted
            .map(drop)
            .map_err(Failure::api(format!("delete ResourceSet {version}"))),
    }
}

fn at<'a>(resource: &'a Resource, name: &'a str) -> Place<'a> {
    Place {
        resource,
        namespace: None,
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_that_would_drop_fields_does_not_serve() {
        let mut definition = wire::crd();
        assert!(serves(&definition));
        let schema = definition.spec.versions[0].schema.as_mut().unwrap();
        let properties = schema.open_api_v3_schema.as_mut().unwrap().properties.as_mut().unwrap();
        properties
            .get_mut("status")
            .unwrap()
            .x_kubernetes_preserve_unknown_fields = None;
        assert!(!serves(&definition));
        let mut definition = wire::crd();
        definition.spec.versions[0].served = false;
        assert!(!serves(&definition));
    }
}
