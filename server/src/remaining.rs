//! Which synced objects of a contract are left on the provider, asked of the API server itself: what is deleted on the
//! strength of the answer must not rest on a cache.

use std::{collections::BTreeSet, fmt, sync::Arc};

use bindery_api::{
    annotations, crd, names,
    v1alpha2::{APIServiceExport, GroupResource},
    versions,
};
use bindery_runtime::errors;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    contract,
    state::State,
    writes::{self, WriteError},
};

/// Lists that run at a time.
const CONCURRENT: usize = 8;
const PAGE: u32 = 500;

/// Objects that are left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    /// Which.
    pub objects: Vec<Object>,
}

/// A synced object on the provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// Its resource.
    pub resource: GroupResource,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether it was let go, and holds up nothing.
    pub released: bool,
}

/// The objects that hold up the deletion of an export: those of its resources that carry the contract's mark, unless
/// another export of the contract offers the resource too.
pub async fn remaining_objects(state: &State, export: &APIServiceExport) -> Result<Remaining, WriteError> {
    let contract = export.namespace().unwrap_or_default();
    let resources = own_resources(state, export);
    let namespaces = state
        .caches
        .namespaces
        .list(|namespace| contract::of(namespace) == Some(contract.as_str()) && !contract::is_contract(namespace));
    let namespaces: Vec<_> = namespaces.iter().map(|namespace| namespace.name_any()).collect();
    list(state, &contract, &resources, &namespaces).await
}

/// The objects that hold up the deletion of a provider namespace: those of any resource the contract may have.
pub async fn in_namespace(state: &State, contract: &str, namespace: &str) -> Result<Remaining, WriteError> {
    let mut resources = known_resources(state, contract);
    // Nobody else remembers what was unbound while the template that offered it went.
    if let Some(namespace) = state.caches.namespaces.get("", namespace) {
        resources.extend(granted(&namespace));
    }
    list(state, contract, &resources, &[namespace.to_owned()]).await
}

/// Every resource that a consumer was ever given rights on in a provider namespace.
pub fn granted(namespace: &Namespace) -> BTreeSet<GroupResource> {
    let record = namespace.annotations().get(annotations::GRANTED_RESOURCES);
    let names = record.map_or("", String::as_str).split(',');
    names
        .filter_map(|name| name.split_once('.'))
        .map(|(resource, group)| GroupResource::new(group, resource))
        .collect()
}

/// The record of granted resources, as its annotation holds it.
pub fn granted_record(resources: &BTreeSet<GroupResource>) -> String {
    let names: Vec<_> = resources.iter().map(ToString::to_string).collect();
    names.join(",")
}

/// Marks objects as let go: they stay, without their source.
pub async fn release(state: &State, remaining: &Remaining) -> Result<(), WriteError> {
    let patch = Patch::Merge(json!({
        "metadata": { "annotations": { annotations::RELEASED: Timestamp::now().to_string() } }
    }));
    let params = PatchParams {
        field_manager: Some(writes::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    for object in remaining.objects.iter().filter(|object| !object.released) {
        let Some(api) = api(state, &object.resource, &object.namespace).await? else {
            continue;
        };
        match api.patch_metadata(&object.name, &params, &patch).await {
            Ok(_) => {}
            Err(error) if errors::is_not_found(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn own_resources(state: &State, export: &APIServiceExport) -> BTreeSet<GroupResource> {
    let others = state.caches.exports.list(|other| {
        other.namespace() == export.namespace()
            && other.uid() != export.uid()
            && other.metadata.deletion_timestamp.is_none()
    });
    let shared: BTreeSet<_> = others.iter().flat_map(|other| resources_of(other)).collect();
    resources_of(export)
        .filter(|resource| !shared.contains(resource))
        .cloned()
        .collect()
}

/// What the contract has, had not long ago, or may get: exports, their schemas, and the templates granted to it.
fn known_resources(state: &State, contract: &str) -> BTreeSet<GroupResource> {
    let mut known = BTreeSet::new();
    for export in state.caches.exports.list_in(contract) {
        known.extend(resources_of(&export).cloned());
    }
    for schema in state.caches.bound_schemas.list_in(contract) {
        known.insert(GroupResource::new(&schema.spec.group, &schema.spec.names.plural));
    }
    let Some(namespace) = state.contract(contract) else {
        // Nobody is left who knows what was offered here: anything may have been.
        let offered = state.caches.definitions.list(|_| true);
        known.extend(
            offered
                .iter()
                .map(|definition| GroupResource::new(&definition.spec.group, &definition.spec.names.plural)),
        );
        return known;
    };
    for name in contract::granted_templates(&namespace) {
        if let Some(template) = state.caches.templates.get("", &name) {
            let resources = template.spec.resources.iter();
            known.extend(resources.map(|resource| resource.group_resource.clone()));
        }
    }
    known
}

fn resources_of(export: &APIServiceExport) -> impl Iterator<Item = &GroupResource> {
    export.spec.resources.iter().map(|resource| &resource.group_resource)
}

async fn list(
    state: &State,
    contract: &str,
    resources: &BTreeSet<GroupResource>,
    namespaces: &[String],
) -> Result<Remaining, WriteError> {
    let mut lists = Vec::with_capacity(resources.len() * namespaces.len());
    for resource in resources {
        for namespace in namespaces {
            lists.push(list_one(state, contract, resource, namespace));
        }
    }
    let found: Vec<Vec<Object>> = stream::iter(lists).buffer_unordered(CONCURRENT).try_collect().await?;
    let mut objects = found.concat();
    objects.sort_unstable();
    Ok(Remaining { objects })
}

async fn list_one(
    state: &State,
    contract: &str,
    resource: &GroupResource,
    namespace: &str,
) -> Result<Vec<Object>, WriteError> {
    let Some(api) = api(state, resource, namespace).await? else {
        // No CRD, no objects.
        return Ok(Vec::new());
    };
    let mut params = ListParams::default().limit(PAGE);
    let mut objects = Vec::new();
    loop {
        let page = match api.list_metadata(&params).await {
            Ok(page) => page,
            Err(error) if errors::is_not_found(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        for item in page.items {
            let marks = item.annotations();
            if marks.get(annotations::CLUSTER_NAMESPACE).map(String::as_str) == Some(contract) {
                objects.push(Object {
                    resource: resource.clone(),
                    namespace: namespace.to_owned(),
                    name: item.name_any(),
                    released: marks.contains_key(annotations::RELEASED),
                });
            }
        }
        match page.metadata.continue_ {
            Some(next) if !next.is_empty() => params = params.continue_token(&next),
            _ => return Ok(objects),
        }
    }
}

/// Access to a resource by the CRD that serves it; `None` if there is none. One that is no longer offered still counts.
async fn api(
    state: &State,
    resource: &GroupResource,
    namespace: &str,
) -> Result<Option<Api<DynamicObject>>, WriteError> {
    if names::owner_of_group(&resource.group).is_some() {
        return Ok(None);
    }
    let client = state.clients.write.clone();
    let name = names::custom_resource_definition(&resource.resource, &resource.group);
    let mut definition = state.caches.definitions.get("", &name);
    if definition.is_none() {
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        definition = definitions.get_opt(&name).await?.map(Arc::new);
    }
    Ok(definition.and_then(|definition| {
        let version = versions::preferred(definition.spec.versions.iter().map(crd::listed))?;
        let kind = ApiResource {
            group: resource.group.clone(),
            version: version.to_owned(),
            api_version: format!("{}/{version}", resource.group),
            kind: definition.spec.names.kind.clone(),
            plural: resource.resource.clone(),
        };
        Some(match definition.spec.scope.as_str() {
            "Cluster" => Api::all_with(client, &kind),
            _ => Api::namespaced_with(client, namespace, &kind),
        })
    }))
}

// === impl Remaining ===

impl Remaining {
    /// How many objects hold things up.
    pub fn count(&self) -> usize {
        self.objects.iter().filter(|object| !object.released).count()
    }

    /// Whether objects are left that were let go.
    pub fn has_released(&self) -> bool {
        self.objects.iter().any(|object| object.released)
    }
}

impl fmt::Display for Remaining {
    /// How many objects are left, and the first of them by name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMED: usize = 3;
        let held: Vec<_> = self.objects.iter().filter(|object| !object.released).collect();
        let named: Vec<_> = held
            .iter()
            .take(NAMED)
            .map(
                |Object {
                     resource,
                     namespace,
                     name,
                     ..
                 }| format!("{resource} {namespace}/{name}"),
            )
            .collect();
        let more = if held.len() > NAMED { ", ..." } else { "" };
        let remain = if held.len() == 1 {
            "object remains"
        } else {
            "objects remain"
        };
        write!(f, "{} {remain}: {}{more}", held.len(), named.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_record(record: Option<&str>, expect: &[(&str, &str)]) {
        let mut namespace = Namespace::default();
        if let Some(record) = record {
            let marks = namespace.annotations_mut();
            marks.insert(annotations::GRANTED_RESOURCES.to_owned(), record.to_owned());
        }
        let resources = granted(&namespace);
        let expect: BTreeSet<_> = expect
            .iter()
            .map(|(group, resource)| GroupResource::new(*group, *resource))
            .collect();
        assert_eq!(resources, expect);
        assert_eq!(granted_record(&resources), record.unwrap_or_default());
    }

    #[test]
    fn what_was_granted_reads_back() {
        check_record(None, &[]);
        check_record(Some("cowboys.wildwest.dev"), &[("wildwest.dev", "cowboys")]);
        check_record(
            Some("cowboys.wildwest.dev,sheriffs.wildwest.dev"),
            &[("wildwest.dev", "cowboys"), ("wildwest.dev", "sheriffs")],
        );
    }
}
