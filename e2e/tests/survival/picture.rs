//! A picture of all that a provider holds for one consumer, without what differs from consumer to consumer. Two binds
//! that came to the same give the same picture: nothing is missing, nothing is there twice, nothing says another thing.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bindery_api::{
    annotations, labels, names,
    v1alpha2::{
        APIServiceExport, APIServiceExportRequest, APIServiceNamespace, BindableResourcesRequest, BoundSchema,
        ClusterBinding,
    },
};
use bindery_e2e::{NAMESPACE, Provider, eventually, eventually_ok, wildwest::SOON};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Namespace, Secret, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::{Map, Value};
use tokio::time::Instant;

/// How long nothing may change before a picture counts as final.
const STILL: std::time::Duration = std::time::Duration::from_secs(2);

/// What is different each time, and says nothing.
const PASSING: [&str; 8] = [
    // Digests of the tokens that the owner got.
    annotations::RENEWAL,
    "completionTime",
    "creationTimestamp",
    "generation",
    "lastTransitionTime",
    "managedFields",
    "resourceVersion",
    "uid",
];

/// Objects by kind, namespace and name.
pub(super) type Picture = BTreeMap<String, Value>;

/// What is there of a consumer now.
pub(super) async fn of(client: &Client, identity: &str) -> Result<Picture> {
    let contract = Provider::contract(identity);
    let mut picture = Picture::new();
    let mut take = |kind: &str, objects: Vec<DynamicObject>| {
        for object in objects {
            let record = if kind == "BindableResourcesRequest" {
                object.name_any()
            } else {
                String::new()
            };
            let name = format!(
                "{kind} {}/{}",
                object.namespace().unwrap_or_default(),
                object.name_any()
            );
            let known = [
                (record.as_str(), "<request>"),
                (&contract, "<contract>"),
                (identity, "<identity>"),
            ];
            let value = serde_json::to_value(object).unwrap_or_default();
            picture.insert(plain_text(&name, &known), plain(value, &known));
        }
    };
    for resource in [
        resource::<ServiceAccount>(),
        resource::<RoleBinding>(),
        resource::<Role>(),
        resource::<Secret>(),
        resource::<ClusterBinding>(),
        resource::<APIServiceExportRequest>(),
        resource::<APIServiceExport>(),
        resource::<APIServiceNamespace>(),
        resource::<BoundSchema>(),
    ] {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &contract, &resource);
        take(&resource.kind, api.list(&ListParams::default()).await?.items);
    }
    let marked = ListParams::default().labels(&format!("{}={contract}", labels::CONTRACT));
    for resource in [
        resource::<Namespace>(),
        resource::<ClusterRole>(),
        resource::<ClusterRoleBinding>(),
        resource::<Role>(),
        resource::<RoleBinding>(),
    ] {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        take(&resource.kind, api.list(&marked).await?.items);
    }
    let resource = resource::<BindableResourcesRequest>();
    let requests: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &resource);
    let mut requests = requests.list(&ListParams::default()).await?.items;
    requests.retain(|request| request.data["spec"]["clusterIdentity"]["identity"] == identity);
    ensure!(requests.len() <= 1, "{} requests of {identity}", requests.len());
    take(&resource.kind, requests);
    Ok(picture)
}

/// What is there of a bind once it is whole and nothing changes any more.
pub(super) async fn settled(client: &Client, identity: &str) -> Result<Picture> {
    settled_with(client, identity, |picture| has_one_of_each(picture).is_ok()).await
}

/// What is there once it is as it should be and nothing changes any more.
pub(super) async fn settled_with(client: &Client, identity: &str, is_so: impl Fn(&Picture) -> bool) -> Result<Picture> {
    let mut last = (Picture::new(), Instant::now());
    eventually("nothing to change any more", SOON, async || {
        let now = of(client, identity).await?;
        if now != last.0 {
            last = (now, Instant::now());
        }
        Ok((is_so(&last.0) && last.1.elapsed() >= STILL).then(|| last.0.clone()))
    })
    .await
}

/// How many objects of a kind there are.
pub(super) fn count(picture: &Picture, kind: &str) -> usize {
    picture
        .keys()
        .filter(|name| name.split(' ').next() == Some(kind))
        .count()
}

/// Waits until there is for one consumer what there is for another.
pub(super) async fn becomes(client: &Client, identity: &str, wanted: &Picture) -> Result<()> {
    eventually_ok(format!("the same for {identity} as undisturbed"), SOON, async || {
        let now = of(client, identity).await?;
        let differs = |name: &&String| now.get(*name) != wanted.get(*name);
        let different: Vec<_> = wanted.keys().chain(now.keys()).filter(differs).collect();
        let first = different.first().map(|name| (now.get(*name), wanted.get(*name)));
        ensure!(
            different.is_empty(),
            "{different:?} differ; the first is, and should be: {first:#?}"
        );
        Ok(())
    })
    .await
}

fn resource<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

fn plain(value: Value, known: &[(&str, &str)]) -> Value {
    match value {
        Value::String(text) => Value::String(plain_text(&text, known)),
        Value::Array(items) => items.into_iter().map(|item| plain(item, known)).collect(),
        Value::Object(fields) => Value::Object(plain_fields(fields, known)),
        other => other,
    }
}

fn plain_fields(fields: Map<String, Value>, known: &[(&str, &str)]) -> Map<String, Value> {
    let lasting = fields.into_iter().filter(|(key, _)| !PASSING.contains(&key.as_str()));
    lasting.map(|(key, value)| (key, plain(value, known))).collect()
}

fn plain_text(text: &str, known: &[(&str, &str)]) -> String {
    let is_uid = text.len() == 36 && text.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
    if is_uid || text.parse::<Timestamp>().is_ok() {
        return "<passing>".to_owned();
    }
    let known = known.iter().filter(|(name, _)| !name.is_empty());
    known.fold(text.to_owned(), |text, (name, mark)| text.replace(name, mark))
}

/// Whether a picture holds exactly one object of each of these kinds.
pub(super) fn has_one_of_each(picture: &Picture) -> Result<()> {
    for kind in [
        "APIServiceExport",
        "APIServiceExportRequest",
        "BindableResourcesRequest",
        "BoundSchema",
        "ClusterBinding",
    ] {
        let count = count(picture, kind);
        ensure!(count == 1, "{count} of kind {kind}: {:?}", picture.keys());
    }
    let accounts = picture
        .keys()
        .filter(|name| name.ends_with(&format!("/{}", names::KUBE_BINDER)));
    ensure!(
        accounts.count() >= 2,
        "ServiceAccount and RoleBinding are missing: {:?}",
        picture.keys()
    );
    Ok(())
}
