//! What a binding leaves behind.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::{Consumer, Provider, eventually, wildwest::SOON};

/// How long the garbage collector may take: it stands still for half a minute whenever kinds come and go, or it begins anew.
pub const COLLECTED: Duration = Duration::from_mins(3);

/// Waits until nothing of a binding is left: nothing at all on the consumer, and nothing but the empty contract on the
/// provider. `group` is the API group that was bound.
pub async fn none(provider: &Provider, consumer: &Consumer, binding: &str, group: &str) -> Result<()> {
    on_consumer(consumer, binding, group).await?;
    contract(provider, &Provider::contract(&consumer.identity().await?)).await
}

/// Waits until nothing of a binding is left on the consumer.
pub async fn on_consumer(consumer: &Consumer, binding: &str, group: &str) -> Result<()> {
    eventually("nothing to be left on the consumer", COLLECTED, || async {
        let kinds = "crds,clusterroles,clusterrolebindings";
        let names = consumer.plane.kubectl(&["get", kinds, "-o", "name"]).await?;
        let bindings = consumer
            .plane
            .kubectl(&["get", "apiservicebindings", "-o", "name"])
            .await?;
        let left: Vec<_> = names
            .lines()
            .filter(|name| name.ends_with(group) || name.ends_with(&format!("-{binding}")))
            .chain(bindings.lines().filter(|name| name.ends_with(&format!("/{binding}"))))
            .collect();
        ensure!(left.is_empty(), "left: {left:?}");
        Ok(Some(()))
    })
    .await
}

/// Waits until nothing but the empty contract is left of all its bindings.
pub async fn contract(provider: &Provider, contract: &str) -> Result<()> {
    eventually("the contract to be empty", SOON, || async {
        let kinds = "apiserviceexports,apiserviceexportrequests,boundschemas,apiservicenamespaces";
        let inside = provider
            .plane
            .kubectl(&["get", kinds, "-n", contract, "-o", "name"])
            .await?;
        ensure!(inside.trim().is_empty(), "left in the contract: {inside}");
        let kinds = "namespaces,clusterroles,clusterrolebindings";
        let outside = provider.plane.kubectl(&["get", kinds, "-o", "name"]).await?;
        let ours: Vec<_> = outside
            .lines()
            .filter(|name| name.contains(&format!("{contract}-")))
            .collect();
        ensure!(ours.is_empty(), "left on the provider: {ours:?}");
        Ok(Some(()))
    })
    .await
}
