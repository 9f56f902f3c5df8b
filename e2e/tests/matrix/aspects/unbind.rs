//! One consumer ends its binding while the other goes on.

use anyhow::{Result, ensure};
use bindery_e2e::{bound::deletes_copies, remains};
use futures::future::try_join_all;
use kube::api::{DeleteParams, DynamicObject};
use serde_json::json;

use crate::{aspects::provider_owned, bench::Bench, kinds::Kind, side::Side};

const LAST: &str = "at-the-end";

pub(crate) async fn nothing_is_left_of_one_and_all_of_the_other(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let kinds = [Kind::Bound, Kind::Secret, Kind::ConfigMap];
    let twins = try_join_all(kinds.map(|kind| bench.twin(a, b, kind, LAST))).await?;
    let kept = provider_owned::put(a, &Kind::Secret.labelled(bench.cell, "kept", "x")).await?;
    let down = |copy: &DynamicObject| Kind::Secret.is(copy, "x");
    a.ours_is("to come down", Kind::Secret, "kept", down).await?;
    let sources = [Kind::Secret, Kind::ConfigMap].map(async |kind| a.ours(kind).get(LAST).await);
    let sources = try_join_all(sources).await?;

    deletes_copies(&a.bindings(), bench.cell.name).await?;
    a.bindings().delete(bench.cell.name, &DeleteParams::default()).await?;
    a.ended().await?;
    remains::on_consumer(a.consumer, bench.cell.name, &bench.cell.group()).await?;
    for (kind, source) in [Kind::Secret, Kind::ConfigMap].into_iter().zip(&sources) {
        super::claims::is_as_the_user_left_it(a, kind, source).await?;
        a.withdrawn(kind, LAST).await?;
    }
    let left = a.ours(Kind::Secret).get_opt("kept").await?;
    ensure!(left.is_none(), "a copy of the provider's Secret was left behind");
    // The provider's own is no copy: it keeps its namespace until its owner deletes it.
    let now = a.copies(Kind::Secret).get_opt("kept").await?;
    let now = now.and_then(|now| now.metadata.uid);
    ensure!(now == kept.metadata.uid, "a source of the provider's was deleted");
    a.copies(Kind::Secret).delete("kept", &DeleteParams::default()).await?;
    look_again(a).await?;
    if !bench.cell.shares_names() {
        remains::contract(b.provider, &a.contract).await?;
        for twin in &twins {
            twin.left_the_other_alone().await?;
        }
    }
    goes_on(b).await
}

/// The server looks ever more seldom whether a namespace is still kept for something, and when the namespace changes.
async fn look_again(side: &Side<'_>) -> Result<()> {
    let of = format!("kube-bind.io/contract={}", side.contract);
    let args = ["annotate", "--overwrite", "namespaces", "--selector", &of, "look=again"];
    side.provider.plane.kubectl(&args).await.map(drop)
}

/// All of what was synced before is synced now, in both directions.
async fn goes_on(side: &Side<'_>) -> Result<()> {
    for kind in [Kind::Bound, Kind::Secret, Kind::ConfigMap] {
        // Where names are shared, this one's turn has come.
        side.settled(kind, LAST, side.who).await?;
        side.patch(kind, LAST, kind.patch("alone")).await?;
        side.copied(kind, LAST, "alone").await?;
    }
    side.report(LAST, json!({"result": "still here"})).await?;
    side.reported(LAST, "still here").await?;
    side.ready().await
}
