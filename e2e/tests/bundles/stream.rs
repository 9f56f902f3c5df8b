//! How soon a new export is bound: the backend's stream tells of it.

use std::{io::Write as _, time::Instant};

use anyhow::{Context as _, Result, ensure};
use bindery_api::v1alpha2::{APIServiceBinding, APIServiceExport};
use bindery_e2e::{offer::Offer, wildwest::SOON};
use futures::{StreamExt as _, pin_mut};
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt as _, watcher},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::timeout;

use crate::{
    contract::Contract,
    world::{Case, case},
};

const BEFORE: Offer = Offer { name: "str-before" };
const STREAMED: Offer = Offer { name: "str-streamed" };
const EARLY: Offer = Offer { name: "str-early" };
const WATCHED: Offer = Offer { name: "str-watched" };

pub(crate) async fn a_new_export_is_bound_without_a_poll() -> Result<()> {
    case("stream", async |case| {
        let contract = case.contract(&case.world.p, &[BEFORE, STREAMED]).await?;
        let credential = contract.export(BEFORE).await?;
        let bundle = case.bundle("");
        bundle.give(&credential.yaml()?).await?;
        // No poll comes to its help.
        bundle.apply(json!({"pollingInterval": "1h"})).await?;
        bundle.binds(&[BEFORE.name]).await?;
        let audit = case.world.p.plane.audit()?;
        let from = audit.now()?;
        let took = Box::pin(measure(case, &contract, STREAMED)).await?;
        let mut asked = audit.since(from)?;
        asked.retain(|asked| asked.by == contract.binder() && asked.resource == "apiserviceexports");
        asked.retain(|asked| asked.verb == "list");
        ensure!(asked.is_empty(), "exports were listed: {asked:?}");
        tell("the backend's stream", took);

        bundle.binds(&[BEFORE.name, STREAMED.name]).await
    })
    .await
}

pub(crate) async fn a_new_export_is_bound_without_a_poll_where_there_is_no_backend() -> Result<()> {
    case("watched", async |case| {
        let contract = case.contract(&case.world.p, &[EARLY, WATCHED]).await?;
        let bundle = case.bundle("");
        bundle
            .give(&contract.export(EARLY).await?.without_backend().yaml()?)
            .await?;
        bundle.apply(json!({"pollingInterval": "1h"})).await?;
        bundle.binds(&[EARLY.name]).await?;
        let took = Box::pin(measure(case, &contract, WATCHED)).await?;
        tell("a watch", took);
        bundle.binds(&[EARLY.name, WATCHED.name]).await
    })
    .await
}

/// From the moment that the export is seen on the provider to the one that its binding is seen on the consumer.
async fn measure(case: &Case, contract: &Contract, offer: Offer) -> Result<std::time::Duration> {
    let bindings: Api<APIServiceBinding> = Api::all(case.world.consumer.plane.client());
    let exports: Api<APIServiceExport> = contract.exports();
    let (asked, exported, bound) = tokio::try_join!(
        contract.export(offer),
        appears(exports, offer.name),
        appears(bindings, offer.name)
    )?;
    drop(asked);
    Ok(bound.saturating_duration_since(exported))
}

async fn appears<K>(api: Api<K>, name: &str) -> Result<Instant>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let seen = watcher(api, only).applied_objects();
    pin_mut!(seen);
    timeout(SOON, seen.next())
        .await
        .with_context(|| format!("{name} does not appear"))?
        .context("the watch ended")??;
    Ok(Instant::now())
}

/// Told past the test harness, as what a bench measures.
fn tell(by: &str, took: std::time::Duration) {
    let line = format!(
        "bundles: a new export was bound {} ms after it was there, by {by}\n",
        took.as_millis()
    );
    let _ = std::io::stderr().write_all(line.as_bytes());
}
