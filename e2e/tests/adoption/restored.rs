//! A consumer whose objects are gone, with adoption switched on: what it had is not what the provider made.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    Condition,
    adoption::Adoption,
    annotations,
    conditions::ORPHANED_OBJECTS,
    orphans::{OrphanAction, OrphanOrder, OrphanSet},
};
use bindery_e2e::{eventually_ok, holds_for, run, wildwest::SOON};
use futures::future::try_join_all;
use kube::{ResourceExt as _, api::ListParams};

use crate::{
    cells::RESTORED,
    side::Side,
    world::{self, Changing},
};

const HERD: usize = 15;
/// Long enough for a konnector that means to write.
const PATIENCE: Duration = Duration::from_secs(4);

pub(crate) fn check() -> Result<()> {
    run(async {
        let world = world::get().await?;
        let mut changing = world.changing(Adoption::All).await?;
        let side = changing.side(world, &RESTORED)?;
        let outcome = orphaned(&mut changing, &side).await;
        outcome.map_err(|error| changing.tails(&error))
    })
}

async fn orphaned(changing: &mut Changing, side: &Side) -> Result<()> {
    side.begin(&changing.consumer).await?;
    let herd: Vec<_> = (0..HERD).map(|number| format!("herd-{number}")).collect();
    let (made, adopted) = herd.split_at(HERD / 2);
    try_join_all(made.iter().map(|name| side.made(name, "ride"))).await?;
    try_join_all(adopted.iter().map(async |name| {
        let source = side.put(&side.fresh(name, "ride")).await?;
        side.adopted(name, &source).await
    }))
    .await?;
    let before = copies(side).await?;

    let lost = lose_all(changing, side).await?;
    side.condition(ORPHANED_OBJECTS, |told| told.is_true() && orphans(told) == Some(lost))
        .await?;
    holds_for("nothing is made anew or deleted", PATIENCE, async || {
        ensure!(copies(side).await? == before, "copies changed");
        let ours = side.ours().list_metadata(&ListParams::default()).await?.items;
        ensure!(ours.is_empty(), "{} were made anew", ours.len());
        Ok(())
    })
    .await?;
    // What it never had it gets all the same.
    let source = side.put(&side.fresh("new", "ride")).await?;
    side.adopted("new", &source).await?;

    let told = side
        .condition(ORPHANED_OBJECTS, |told| orphans(told) == Some(lost))
        .await?;
    let order = OrphanOrder {
        action: OrphanAction::Delete,
        orphans: OrphanSet::of_message(&told.message).context("no orphans")?,
    };
    side.annotate_binding(annotations::END_ORPHANS, Some(&order.to_string()))
        .await?;
    eventually_ok("the copies to go", SOON, async || {
        let left = copies(side).await?;
        ensure!(left.keys().eq(["new"]), "left: {:?}", left.keys());
        Ok(())
    })
    .await?;
    let ours = side.ours().list_metadata(&ListParams::default()).await?.items;
    ensure!(ours.len() == 1, "{} on the consumer", ours.len());
    Ok(())
}

/// Takes the objects out of the consumer's store, as a restored backup does that has them not. Returns how many there were.
async fn lose_all(changing: &mut Changing, side: &Side) -> Result<usize> {
    changing.kill().await?;
    changing.consumer.plane.stop_api_server()?;
    let lost = changing
        .consumer
        .plane
        .lose(&format!("{}/riders/", side.cell.group()))
        .await?;
    changing.consumer.plane.start_api_server().await?;
    let lost = usize::try_from(lost)?;
    ensure!(lost > HERD, "{lost} were lost");
    changing.start(Adoption::All).await?;
    Ok(lost)
}

/// The number of orphans that a condition tells.
fn orphans(told: &Condition) -> Option<usize> {
    OrphanSet::of_message(&told.message).map(|orphans| orphans.count)
}

/// Copies with their versions.
async fn copies(side: &Side) -> Result<BTreeMap<String, Option<String>>> {
    let copies = side.copies().list_metadata(&ListParams::default()).await?.items;
    Ok(copies
        .into_iter()
        .map(|copy| (copy.name_any(), copy.resource_version()))
        .collect())
}
