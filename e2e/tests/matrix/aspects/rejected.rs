//! A claim that the consumer rejects after it was in effect.

use anyhow::{Context as _, Result, ensure};
use bindery_api::v1alpha2::GroupResource;
use bindery_e2e::{eventually, wildwest::SOON};
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::json;

use crate::{
    aspects::{claims::is_as_the_user_left_it, provider_owned},
    bench::Bench,
    kinds::Kind,
    side::Side,
};

const CONFIG: Kind = Kind::ConfigMap;
const SECRET: Kind = Kind::Secret;

pub(crate) async fn its_copies_are_withdrawn(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let twin = bench.twin(a, b, SECRET, "rejected").await?;
    let source = a.ours(SECRET).get("rejected").await?;
    provider_owned::put(a, &SECRET.labelled(bench.cell, "offered", "to a")).await?;
    let down = |copy: &DynamicObject| SECRET.is(copy, "to a");
    a.ours_is("to come down", SECRET, "offered", down).await?;
    a.create(CONFIG, &CONFIG.labelled(bench.cell, "accepted", "x")).await?;
    a.copied(CONFIG, "accepted", "x").await?;

    reject(a, &["secrets"]).await?;
    a.withdrawn(SECRET, "rejected").await?;
    a.gone(SECRET, "offered").await?;
    let offered = a.copies(SECRET).get_opt("offered").await?;
    ensure!(offered.is_some(), "a source of the provider's was deleted");
    is_as_the_user_left_it(a, SECRET, &source).await?;
    in_effect(a, &[SECRET]).await?;
    // What is not rejected goes on, and what is is not even looked at.
    a.create(SECRET, &SECRET.labelled(bench.cell, "while-rejected", "x"))
        .await?;
    a.patch(CONFIG, "accepted", CONFIG.patch("changed")).await?;
    a.copied(CONFIG, "accepted", "changed").await?;
    let copy = a.copies(SECRET).get_opt("while-rejected").await?;
    ensure!(copy.is_none(), "a rejected claim was served");
    twin.left_the_other_alone().await?;
    in_effect(b, &[]).await?;

    reject(a, &[]).await?;
    a.copied(SECRET, "while-rejected", "x").await?;
    a.ours_is("to come down again", SECRET, "offered", down).await?;
    in_effect(a, &[]).await?;
    if !bench.cell.shares_names() {
        a.copied(SECRET, "rejected", a.who).await?;
    }
    a.copies(SECRET)
        .delete("offered", &kube::api::DeleteParams::default())
        .await?;
    a.gone(SECRET, "offered").await?;
    twin.left_the_other_alone().await
}

async fn reject(side: &Side<'_>, resources: &[&str]) -> Result<()> {
    let rejected: Vec<_> = resources.iter().map(|resource| json!({"resource": resource})).collect();
    let patch = Patch::Merge(json!({"spec": {"rejectedPermissionClaims": rejected}}));
    let bindings = side.bindings();
    bindings.patch(side.cell.name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until the binding says that all claims but these are in effect.
async fn in_effect(side: &Side<'_>, rejected: &[Kind]) -> Result<()> {
    let accepted = side.cell.claimed().into_iter().filter(|kind| !rejected.contains(kind));
    let mut wanted: Vec<_> = accepted
        .map(|kind| kind.resource(side.cell))
        .map(|resource| GroupResource::new(resource.group, resource.plural))
        .collect();
    wanted.sort();
    let what = format!("the binding of {} to say that {wanted:?} are claimed", side.who);
    eventually(what, SOON, async || {
        let binding = side.bindings().get(side.cell.name).await?;
        let claims = binding.status.context("no status")?.permission_claims;
        let mut said: Vec<_> = claims.into_iter().map(|claim| claim.group_resource).collect();
        said.sort();
        ensure!(said == wanted, "it says {said:?}");
        Ok(Some(()))
    })
    .await
}
