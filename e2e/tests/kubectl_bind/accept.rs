//! `kubectl bind accept`: what the konnector told of the holder is shown, and accepted.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    annotations,
    holder::{HolderDigest, HolderOrder, RecordedHolder},
    v1alpha2::APIServiceBinding,
};
use bindery_e2e::run;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::World;

#[test]
fn what_waits_is_shown_and_accepted() -> Result<()> {
    run(async {
        let world = World::start("cli-accept").await?;
        let (bound, ready) = tokio::join!(world.bind(&["cowboys"]), world.report_ready("cowboys"));
        ready?;
        bound?.expect(0, &[])?;
        world.bind(&["accept"]).await?.expect(0, &["nothing to accept"])?;
        world
            .bind(&["accept", "cowboys", "--yes"])
            .await?
            .expect(0, &["APIServiceBinding cowboys goes on; there is nothing to accept"])?;
        world.bind(&["accept", "sheriffs"]).await?.expect(4, &["sheriffs"])?;
        world.bind(&["accept", "--yes"]).await?.expect(2, &["BINDING"])?;

        let recorded = RecordedHolder::default().digest();
        tell(&world, Some(&recorded)).await?;
        world
            .bind(&["accept"])
            .await?
            .expect(0, &["BINDING", "cowboys", "RestoredOrCloned"])?;
        let listed = world.bind(&["accept", "-o", "json"]).await?.expect(0, &[])?.json()?;
        ensure!(listed["items"][0]["reason"] == "RestoredOrCloned", "{listed}");
        world
            .bind(&["accept", "cowboys"])
            .await?
            .expect(2, &["would create 0 copies", "--yes"])?;
        ensure!(order(&world).await?.is_none(), "it was not confirmed");

        world
            .bind(&["accept", "cowboys", "--yes", "--wait=false"])
            .await?
            .expect(0, &["asked the konnector to go on"])?;
        let given = order(&world).await?.context("no order")?;
        ensure!(given == HolderOrder::Accept(recorded.clone()).to_string(), "{given}");
        let accepted = world.bind_meanwhile(
            &["accept", "cowboys", "--yes"],
            "waiting for the konnector to take the order",
            async { answer(&world).await },
        );
        accepted.await?.expect(0, &["APIServiceBinding cowboys goes on"])?;
        Ok(())
    })
}

fn bindings(world: &World) -> Api<APIServiceBinding> {
    Api::all(world.plane.client())
}

/// Plays the konnector: tells that it waits, or that it goes on.
async fn tell(world: &World, recorded: Option<&HolderDigest>) -> Result<()> {
    let time = "2026-01-01T00:00:00Z";
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": time});
    let told = recorded.map(|recorded| {
        let message = format!("it waits{}", recorded.closing());
        json!({"type": "Held", "status": "False", "severity": "Error", "reason": "RestoredOrCloned", "message": message,
            "lastTransitionTime": time})
    });
    let conditions: Vec<_> = [Some(ready), told].into_iter().flatten().collect();
    let status = json!({"status": {"conditions": conditions}});
    bindings(world)
        .patch_status("cowboys", &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}

/// Plays the konnector: goes on, and removes the order.
async fn answer(world: &World) -> Result<()> {
    tell(world, None).await?;
    let removed = json!({"metadata": {"annotations": {annotations::ACCEPT_HOLDER: null}}});
    bindings(world)
        .patch("cowboys", &PatchParams::default(), &Patch::Merge(removed))
        .await?;
    Ok(())
}

async fn order(world: &World) -> Result<Option<String>> {
    let binding = bindings(world).get("cowboys").await?;
    Ok(binding.annotations().get(annotations::ACCEPT_HOLDER).cloned())
}
