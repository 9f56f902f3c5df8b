//! There is an object of one name on either side, each made for itself.

use anyhow::{Context as _, Result, ensure};
use bindery_api::annotations;
use bindery_e2e::holds_for;
use kube::ResourceExt as _;
use serde_json::json;

use super::owned::{marked_paused, resumed};
use crate::side::{A_WHILE, Pair, Side, shown};

pub(crate) async fn two_that_differ_are_left(side: &Side) -> Result<()> {
    let name = "in-conflict";
    let before = both(side, name, "stay", "ride").await?;
    let ours = side.patch(name, resumed()).await?;
    let event = side.conflict(name).await?;
    let note = event.note.unwrap_or_default();
    ensure!(!note.is_empty(), "an event without words");
    side.condition("ObjectsInSync", |condition| {
        !condition.is_true() && condition.message.contains(name) && condition.message.contains("says something else")
    })
    .await?;
    holds_for("neither to be changed", A_WHILE, async || {
        let now = side.ours().get(name).await?;
        ensure!(
            now.resource_version() == ours.resource_version(),
            "written: {}",
            shown(&now)
        );
        let now = side.copies().get(&side.copy_name(name)).await?;
        ensure!(
            now.resource_version() == before.copy.resource_version(),
            "written: {}",
            shown(&now)
        );
        Ok(())
    })
    .await?;
    // The user makes them equal.
    side.patch(name, json!({"spec": {"intent": "ride"}})).await?;
    is_linked(side, name, &before).await?;

    // Or decides for the provider's.
    let name = "given-up";
    let before = both(side, name, "stay", "ride").await?;
    side.patch(name, resumed()).await?;
    side.conflict(name).await?;
    side.delete(name).await?;
    let pair = side.adopted(name, &before.copy).await?;
    ensure!(pair.ours.data["spec"]["intent"] == "ride", "{}", shown(&pair.ours));
    ensure!(pair.ours.uid() != before.ours.uid(), "it was not deleted");
    Ok(())
}

pub(crate) async fn two_that_say_the_same_are_one(side: &Side) -> Result<()> {
    let name = "equal";
    let before = both(side, name, "ride", "ride").await?;
    side.report(name, "found").await?;
    side.patch(name, resumed()).await?;
    let pair = is_linked(side, name, &before).await?;
    ensure!(pair.ours.data["status"]["result"] == "found", "{}", shown(&pair.ours));
    // It is the consumer's, all of it.
    side.patch(name, json!({"spec": {"intent": null, "badge": "star"}}))
        .await?;
    let spec = json!({"badge": "star"});
    side.copy_is(name, |copy| copy.data["spec"] == spec).await.map(drop)
}

/// An object on either side, of which nobody has taken notice yet.
async fn both(side: &Side, name: &str, ours: &str, theirs: &str) -> Result<Pair> {
    let ours = side.create(&marked_paused(side.cell.object(name, ours))).await?;
    let copy = side.put(&side.opted(name, theirs)).await?;
    // What comes later is in sync: they were looked at.
    let later = format!("after-{name}");
    let last = side.put(&side.fresh(&later, "last")).await?;
    side.adopted(&later, &last).await?;
    let now = side.copies().get(&side.copy_name(name)).await?;
    ensure!(
        now.resource_version() == copy.resource_version(),
        "written while paused: {}",
        shown(&now)
    );
    Ok(Pair { ours, copy })
}

/// Waits until both are one, each still being the one it was.
async fn is_linked(side: &Side, name: &str, before: &Pair) -> Result<Pair> {
    let pair = side.linked(name).await.context("no link")?;
    ensure!(
        pair.ours.uid() == before.ours.uid() && pair.copy.uid() == before.copy.uid(),
        "one was made anew: {} and {}",
        shown(&pair.ours),
        shown(&pair.copy)
    );
    ensure!(
        !pair.copy.annotations().contains_key(annotations::AUTOADOPT),
        "{}",
        shown(&pair.copy)
    );
    Ok(pair)
}
