//! Waits until nothing of a binding is left.

use std::{fmt::Debug, time::Duration};

use anyhow::{Result, ensure};
use bindery_api::v1alpha2::{
    APIServiceBinding, APIServiceExport, APIServiceExportRequest, APIServiceNamespace, BoundSchema,
};
use k8s_openapi::{
    api::{
        core::v1::Namespace,
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, Resource, api::ListParams};
use serde::de::DeserializeOwned;

use crate::{Consumer, Provider, eventually_ok, wildwest::SOON};

/// The longest wait for the garbage collector, which pauses for half a minute when kinds come and go or after a restart.
pub const COLLECTED: Duration = Duration::from_mins(3);

/// Waits until nothing of a binding is left: nothing at all on the consumer, and nothing but the empty contract on the
/// provider. `group` is the API group that was bound.
pub async fn none(provider: &Provider, consumer: &Consumer, binding: &str, group: &str) -> Result<()> {
    on_consumer(consumer, binding, group).await?;
    contract(provider, &Provider::contract(&consumer.identity().await?)).await
}

/// Waits until nothing of a binding is left on the consumer.
pub async fn on_consumer(consumer: &Consumer, binding: &str, group: &str) -> Result<()> {
    let client = &consumer.plane.client();
    let suffix = format!("-{binding}");
    eventually_ok("nothing to be left on the consumer", COLLECTED, || async {
        let mut left = names::<APIServiceBinding>(client).await?;
        left.retain(|name| name == binding);
        let others = [
            names::<CustomResourceDefinition>(client).await?,
            names::<ClusterRole>(client).await?,
            names::<ClusterRoleBinding>(client).await?,
        ];
        let is_left = |name: &String| name.ends_with(group) || name.ends_with(&suffix);
        left.extend(others.into_iter().flatten().filter(is_left));
        ensure!(left.is_empty(), "left: {left:?}");
        Ok(())
    })
    .await
}

/// Waits until nothing but the empty contract is left of all its bindings.
pub async fn contract(provider: &Provider, contract: &str) -> Result<()> {
    let client = &provider.plane.client();
    let prefix = format!("{contract}-");
    eventually_ok("the contract to be empty", SOON, || async {
        let inside = [
            names_in::<APIServiceExport>(client, contract).await?,
            names_in::<APIServiceExportRequest>(client, contract).await?,
            names_in::<BoundSchema>(client, contract).await?,
            names_in::<APIServiceNamespace>(client, contract).await?,
        ];
        ensure!(inside.iter().all(Vec::is_empty), "left in the contract: {inside:?}");
        let outside = [
            names::<Namespace>(client).await?,
            names::<ClusterRole>(client).await?,
            names::<ClusterRoleBinding>(client).await?,
        ];
        let left: Vec<_> = outside.iter().flatten().filter(|name| name.contains(&prefix)).collect();
        ensure!(left.is_empty(), "left on the provider: {left:?}");
        Ok(())
    })
    .await
}

/// Names of all objects of a kind.
async fn names<K>(client: &Client) -> Result<Vec<String>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    of(&Api::<K>::all(client.clone())).await
}

/// Names of all objects of a kind in a namespace.
async fn names_in<K>(client: &Client, namespace: &str) -> Result<Vec<String>>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    of(&Api::<K>::namespaced(client.clone(), namespace)).await
}

async fn of<K>(api: &Api<K>) -> Result<Vec<String>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let objects = api.list_metadata(&ListParams::default()).await?.items;
    Ok(objects.iter().map(kube::ResourceExt::name_any).collect())
}
