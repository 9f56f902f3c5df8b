//! What a former version wrote on both clusters is taken over by the present programs: nothing is lost, and no object is
//! written that is right already.
//!
//! The former programs install themselves, bind an API in each placement, some with claims, bind by a request and a bundle, and
//! apply a set of synk. While no program runs, users and operators go on. Then the present programs start.

mod apart;
mod cells;
mod claims;
mod sets;
mod snapshot;
mod world;

use anyhow::{Context as _, Result, ensure};
use bindery_api::Conditions as _;
use bindery_e2e::{eventually_ok, process::Programs, run, wildwest::SOON};
use futures::future::try_join_all;

use crate::{cells::CELLS, snapshot::Snapshot, world::World};

/// Objects of each cell and of the bundle that nobody touches while no program runs.
pub(crate) const KEPT: [&str; 3] = ["kept-1", "kept-2", "kept-3"];

#[test]
fn what_a_former_version_wrote_is_taken_over() -> Result<()> {
    run(async {
        let mut world = Box::pin(World::start()).await?;
        let outcome = Box::pin(takeover(&mut world)).await;
        outcome.map_err(|error| world.tails(&error))
    })
}

#[test]
fn a_set_that_a_former_version_applied_is_taken_over() -> Result<()> {
    run(Box::pin(sets::check()))
}

#[test]
fn server_and_konnector_of_two_versions_work_together() -> Result<()> {
    run(Box::pin(apart::check()))
}

async fn takeover(world: &mut World) -> Result<()> {
    former_times(world).await.context("with the former programs")?;
    world.stop().await?;
    claims::list_namespaces(world).await.context("before the upgrade")?;
    let before = Snapshot::take(world).await?;
    meanwhile(world).await.context("while no program runs")?;
    world.upgrade(Programs::default()).await?;
    present_times(world).await.context("with the present programs")?;
    let after = Snapshot::take(world).await?;
    before.ensure_kept_in(&after, |name| KEPT.iter().any(|kept| name.ends_with(kept)))?;
    commands(world).await.context("by the present commands")
}

/// Everything is in sync, in each cell and over the bundle.
async fn former_times(world: &World) -> Result<()> {
    for cell in &CELLS {
        world.bind(cell.name, &[]).await?;
    }
    world.bundle().await?;
    try_join_all(CELLS.iter().map(async |cell| {
        for name in KEPT.into_iter().chain(["changed", "deleted", "reported"]) {
            cell.create(world, name).await?;
        }
        cell.report(world, "kept-1", "settled").await?;
        cell.is_reported(world, "kept-1", "settled").await
    }))
    .await?;
    claims::served(world).await?;
    try_join_all(KEPT.map(|name| world.bundled(name))).await?;
    Ok(())
}

/// What users and the provider's operator do.
async fn meanwhile(world: &World) -> Result<()> {
    try_join_all(CELLS.iter().map(async |cell| {
        cell.intend(world, "changed", "walk").await?;
        cell.delete(world, "deleted").await?;
        cell.report(world, "reported", "done").await
    }))
    .await?;
    Ok(())
}

/// What happened meanwhile arrives, and what is new.
async fn present_times(world: &World) -> Result<()> {
    try_join_all(CELLS.iter().map(async |cell| {
        cell.is_copied(world, "changed", "walk").await?;
        cell.is_gone(world, "deleted").await?;
        cell.is_reported(world, "reported", "done").await?;
        cell.create(world, "new").await?;
        cell.report(world, "new", "settled").await?;
        cell.is_reported(world, "new", "settled").await?;
        world.ready(cell.name).await
    }))
    .await?;
    claims::served(world).await?;
    world.bundled("present").await
}

/// The credential, the bindings and the konnector answer to the present command line.
async fn commands(world: &World) -> Result<()> {
    let status = world.kubectl_bind(&["status"]).await?;
    for cell in &CELLS {
        ensure!(status.contains(cell.name), "{} is missing in:\n{status}", cell.name);
    }
    world.bind("renew", &[CELLS[0].name]).await?;
    world.ready(CELLS[0].name).await?;
    for cell in &CELLS {
        world.bind("unbind", &[cell.name, "--delete-objects"]).await?;
        for name in KEPT {
            cell.is_gone(world, name).await?;
        }
        claims::ended(world, cell).await?;
    }
    eventually_ok("the bundle to be ready still", SOON, async || {
        let bundle = world.bundle.get().await?;
        ensure!(bundle.is_condition_true("Ready"), "{:?}", bundle.conditions());
        Ok(())
    })
    .await
}
