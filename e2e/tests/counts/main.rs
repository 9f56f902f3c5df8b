//! What the programs ask of both API servers, counted where it arrives: at a restart, at rest, for each change, and the
//! watches that they hold. Nothing else happens on these clusters, so that every request of every account counts.

mod asked;
mod changes;
mod rest;
mod restart;
mod watches;
mod world;

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    names::CLUSTER_BINDING,
    v1alpha2::{ClusterBinding, InformerScope},
};
use bindery_e2e::{eventually_ok, run, wildwest::SOON};
use kube::Api;

use crate::{asked::Tally, world::World};

/// Few objects, watched namespace by namespace; then many, watched cluster-wide. What is asked beside the writes of objects
/// is the same.
#[test]
fn what_is_asked_is_counted() -> Result<()> {
    run(async {
        let mut world = World::start().await?;
        let outcome = Box::pin(in_both_scopes(&mut world)).await;
        outcome.map_err(|error| world.tails(&error))
    })
}

async fn in_both_scopes(world: &mut World) -> Result<()> {
    world.bind(InformerScope::Namespaced).await?;
    world.fill(2).await?;
    let outcome = are_counted(world, InformerScope::Namespaced).await;
    let few = outcome.context("informer scope Namespaced")?;
    let before = world.contract.clone();
    world.unbind().await?;
    world.serve(InformerScope::Cluster).await?;
    world.bind(InformerScope::Cluster).await?;
    let outcome = async {
        // What follows the end of the other is not to be counted.
        tokio::try_join!(world.fill(20), world.is_gone(&before))?;
        are_counted(world, InformerScope::Cluster).await
    };
    let many = outcome.await.context("informer scope Cluster")?;
    restart::is_as_little(&few, &many)
}

/// What there is, is in sync. Answers what was asked at the restart beside lists and watches.
async fn are_counted(world: &mut World, scope: InformerScope) -> Result<Tally> {
    rest::is_near(world).await?;
    let began = restart::of_both(world).await?;
    rest::is_reached(world, began).await?;
    let asked = restart::asked_little(world, began)?;
    watches::are_held_once(world, scope, began)?;
    changes::are_written_once(world).await?;
    objects_are_told(world).await?;
    Ok(asked)
}

/// The heartbeats, beside which nothing was written, tell how many objects are in sync.
async fn objects_are_told(world: &World) -> Result<()> {
    let bindings: Api<ClusterBinding> = Api::namespaced(world.provider.plane.client(), &world.contract);
    eventually_ok("a heartbeat that tells of the objects", SOON, async || {
        let status = bindings.get(CLUSTER_BINDING).await?.status.unwrap_or_default();
        let sync = status.sync.context("no counts")?;
        let is_still = sync.pending == Some(0) && sync.failing == Some(0);
        ensure!(sync.objects > Some(0) && is_still, "{sync:?}");
        ensure!(status.credential_expiration_time.is_some(), "no expiry");
        Ok(())
    })
    .await
}
