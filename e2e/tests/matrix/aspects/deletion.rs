//! Deleting on the consumer.

use anyhow::{Context as _, Result, ensure};
use kube::{ResourceExt as _, api::DeleteParams};
use serde_json::json;

use crate::{bench::Bench, kinds::Kind, side::shown};

const BOUND: Kind = Kind::Bound;
/// What the provider still has to do before its object may go.
const FINALIZER: &str = "wildwest.dev/last-words";

pub(crate) async fn deleting_waits_for_the_provider(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    if bench.cell.shares_names() {
        one_in_conflict_goes_alone(bench).await?;
    }
    let name = "deleted";
    let twin = bench.twin(a, b, BOUND, name).await?;
    a.patch_copy(BOUND, name, json!({"metadata": {"finalizers": [FINALIZER]}}))
        .await?;
    a.ours(BOUND).delete(name, &DeleteParams::default()).await?;
    a.copy_is("to be deleted", BOUND, name, |copy| {
        copy.metadata.deletion_timestamp.is_some()
    })
    .await?;
    let ours = a.ours(BOUND).get_opt(name).await?;
    let ours = ours.context("the object went before the provider had done its part")?;
    ensure!(!ours.finalizers().is_empty(), "{:?}", ours.metadata);
    // What the provider says meanwhile is still heard.
    a.report(name, json!({"result": "last words"})).await?;
    a.reported(name, "last words").await?;
    twin.left_the_other_alone().await?;
    a.patch_copy(BOUND, name, json!({"metadata": {"finalizers": null}}))
        .await?;
    a.gone(BOUND, name).await?;
    a.withdrawn(BOUND, name).await?;
    if bench.cell.shares_names() {
        // The place is free now.
        b.settled(BOUND, name, b.who).await?;
        return Ok(());
    }
    twin.left_the_other_alone().await?;
    // An object of that name is another one.
    a.create(BOUND, &BOUND.object(bench.cell, name, "again")).await?;
    a.settled(BOUND, name, "again").await?;
    twin.left_the_other_alone().await
}

/// What has no copy waits for nothing, and the copy of the other's stays as it is.
async fn one_in_conflict_goes_alone(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let name = "deleted-in-conflict";
    bench.twin(a, b, BOUND, name).await?;
    let copy = a.copied(BOUND, name, a.who).await?;
    b.ours(BOUND).delete(name, &DeleteParams::default()).await?;
    b.gone(BOUND, name).await?;
    let now = a.copied(BOUND, name, a.who).await?;
    ensure!(
        now.resource_version() == copy.resource_version(),
        "it was written: {}",
        shown(&now)
    );
    Ok(())
}
