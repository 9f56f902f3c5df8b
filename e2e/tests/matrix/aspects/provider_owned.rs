//! Claimed objects of the provider, which come down to the consumer.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{annotations, labels};
use bindery_e2e::{eventually, wildwest::SOON};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, PostParams},
};
use serde_json::json;

use crate::{
    bench::Bench,
    kinds::Kind,
    offer::{CLAIM_LABEL, FRONTIER},
    side::{Side, shown},
};

const SECRET: Kind = Kind::Secret;

pub(crate) async fn by_label(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let name = "from-provider";
    let make = |word: &str| SECRET.labelled(bench.cell, name, word);
    let source = put(a, &make("for a")).await?;
    let copy = came_down(a, name, "for a").await?;
    let has = |key: &str| copy.annotations().get(key).cloned();
    ensure!(has(annotations::PROVIDER_UID) == source.uid(), "{:?}", copy.metadata);
    ensure!(
        has(annotations::PROVIDER_NAMESPACE) == source.namespace(),
        "{:?}",
        copy.metadata
    );
    ensure!(
        has(annotations::CLUSTER_NAMESPACE).as_ref() == Some(&a.contract),
        "{:?}",
        copy.metadata
    );
    ensure!(
        copy.labels().get(labels::OWNER).map(String::as_str) == Some("provider"),
        "{:?}",
        copy.metadata
    );
    if bench.cell.shares_names() {
        // One namespace of the provider for all of them.
        came_down(b, name, "for a").await?;
    } else {
        put(b, &make("for b")).await?;
        came_down(b, name, "for b").await?;
    }
    // One that the user deletes comes back.
    a.ours(SECRET).delete(name, &DeleteParams::default()).await?;
    let back = |now: &DynamicObject| now.uid() != copy.uid() && SECRET.is(now, "for a");
    a.ours_is("to come back", SECRET, name, back).await?;
    let before = b.versions(SECRET, name).await?;
    a.patch_copy(SECRET, name, SECRET.patch("changed")).await?;
    came_down(a, name, "changed").await?;
    if bench.cell.shares_names() {
        came_down(b, name, "changed").await?;
    }
    let unlabel = json!({"metadata": {"labels": {CLAIM_LABEL: null}}});
    let source = a.patch_copy(SECRET, name, unlabel).await?;
    a.gone(SECRET, name).await?;
    let now = a.copies(SECRET).get(name).await?;
    ensure!(
        now.resource_version() == source.resource_version(),
        "a source was written: {}",
        shown(&now)
    );
    a.copies(SECRET).delete(name, &DeleteParams::default()).await?;
    if bench.cell.shares_names() {
        return b.gone(SECRET, name).await;
    }
    ensure!(
        b.versions(SECRET, name).await? == before,
        "of the other's, something was written"
    );
    // One that the provider deletes goes too.
    b.copies(SECRET).delete(name, &DeleteParams::default()).await?;
    b.gone(SECRET, name).await
}

pub(crate) async fn by_reference(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let name = "badge-of-holder";
    let twin = bench.twin(a, b, Kind::Bound, "holder").await?;
    put(a, &SECRET.object(bench.cell, name, "silver")).await?;
    let reference = json!([{"name": name, "namespace": bench.cell.name}]);
    a.report("holder", json!({"secretRefs": reference})).await?;
    came_down(a, name, "silver").await?;
    ensure!(
        b.ours(SECRET).get_opt(name).await?.is_none(),
        "it came down to the other consumer"
    );
    a.report("holder", json!({"secretRefs": null})).await?;
    a.gone(SECRET, name).await?;
    ensure!(a.copies(SECRET).get_opt(name).await?.is_some(), "a source was deleted");
    a.copies(SECRET).delete(name, &DeleteParams::default()).await?;
    twin.left_the_other_alone().await
}

/// In a namespace that is mapped from the start; the copy waits until the consumer has the namespace.
pub(crate) async fn preseeded(bench: &Bench) -> Result<()> {
    let name = "welcome";
    for side in [&bench.a, &bench.b] {
        let place = side.copies_in(SECRET, FRONTIER);
        put_into(&place, &SECRET.labelled(bench.cell, name, side.who)).await?;
    }
    let sentinel = SECRET.labelled(bench.cell, "sentinel-of-welcome", "x");
    bench.a.create(SECRET, &sentinel).await?;
    bench.a.copied(SECRET, "sentinel-of-welcome", "x").await?;
    for side in [&bench.a, &bench.b] {
        let none = side.ours_in(SECRET, FRONTIER).get_opt(name).await?;
        ensure!(none.is_none(), "it is in a namespace that does not exist");
        side.bind_in(&[FRONTIER]).await?;
        let ours = side.ours_in(SECRET, FRONTIER);
        eventually(format!("{}'s {name}", side.who), SOON, async || {
            let copy = ours.get_opt(name).await?;
            Ok(copy.filter(|copy| SECRET.is(copy, side.who)))
        })
        .await?;
        side.copies_in(SECRET, FRONTIER)
            .delete(name, &DeleteParams::default())
            .await?;
    }
    Ok(())
}

/// Makes a Secret of the provider's own where a consumer's claims are.
pub(crate) async fn put(side: &Side<'_>, object: &DynamicObject) -> Result<DynamicObject> {
    put_into(&side.copies(SECRET), object).await
}

/// The provider namespace comes with the first object that belongs into it.
async fn put_into(place: &Api<DynamicObject>, object: &DynamicObject) -> Result<DynamicObject> {
    let what = format!("the provider to make Secret {}", object.name_any());
    eventually(what, SOON, async || {
        let created = place.create(&PostParams::default(), object).await;
        created.map(Some).context("not yet")
    })
    .await
}

async fn came_down(side: &Side<'_>, name: &str, word: &str) -> Result<DynamicObject> {
    let what = format!("to say {word:?}");
    side.ours_is(&what, SECRET, name, |copy| SECRET.is(copy, word)).await
}
