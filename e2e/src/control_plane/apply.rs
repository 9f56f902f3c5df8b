//! Manifests applied as `kubectl apply --server-side` does. kubectl downloads the schemas of all kinds before it applies a
//! List, and an API server merges them anew after each definition: while tests come and go with theirs, that may take longer
//! than kubectl waits.

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionSpec;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{self, Scope},
};
use serde_json::Value;

use crate::{eventually_ok, manifests, wildwest::SOON};

/// kubectl's field manager, so that either may apply again what the other has.
const MANAGER: &str = "kubectl";

/// Applies all documents of a stream, in their order; what they define is served then.
pub(super) async fn apply(client: &Client, yaml: &str) -> Result<()> {
    let mut kinds = Vec::new();
    for document in manifests::documents(yaml)?.into_iter().flat_map(items) {
        let object: DynamicObject = serde_json::from_value(document).context("a manifest")?;
        let what = || describe(&object);
        let kind = defined(&object).with_context(what)?;
        if kind.is_none() {
            // It may be of a kind that was defined before.
            are_served(client, &mut kinds).await?;
        }
        one(client, &object).await.with_context(what)?;
        kinds.extend(kind);
    }
    are_served(client, &mut kinds).await
}

/// Waits until kinds are served, which takes a while for each and no longer for all of them, and forgets them.
async fn are_served(client: &Client, kinds: &mut Vec<GroupVersionKind>) -> Result<()> {
    let served = kinds.drain(..).map(async |kind| {
        eventually_ok(format!("{} to be served", kind.kind), SOON, async || {
            Ok(discovery::pinned_kind(client, &kind).await?)
        })
        .await
    });
    try_join_all(served).await.map(drop)
}

/// The items of a list, or what else it is.
fn items(mut document: Value) -> Vec<Value> {
    if document["kind"] != "List" {
        return vec![document];
    }
    match document["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

async fn one(client: &Client, object: &DynamicObject) -> Result<()> {
    let types = object.types.as_ref().context("no kind")?;
    let (resource, capabilities) = discovery::pinned_kind(client, &types.try_into()?).await?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object.namespace();
            let namespace = namespace.as_deref().unwrap_or_else(|| client.default_namespace());
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
    };
    let how = PatchParams::apply(MANAGER).validation_strict();
    api.patch(&object.name_any(), &how, &Patch::Apply(object)).await?;
    Ok(())
}

/// The kind that an object defines, if it is a definition.
fn defined(object: &DynamicObject) -> Result<Option<GroupVersionKind>> {
    let types = object.types.as_ref();
    if types.is_none_or(|types| types.kind != "CustomResourceDefinition") {
        return Ok(None);
    }
    let spec: CustomResourceDefinitionSpec = serde_json::from_value(object.data["spec"].clone())?;
    let version = spec.versions.into_iter().find(|version| version.served);
    Ok(version.map(|version| GroupVersionKind::gvk(&spec.group, &version.name, &spec.names.kind)))
}

fn describe(object: &DynamicObject) -> String {
    let kind = object.types.as_ref().map_or("object", |types| &types.kind);
    format!("cannot apply {kind} {}", object.name_any())
}
