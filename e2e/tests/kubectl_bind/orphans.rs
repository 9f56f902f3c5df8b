//! `kubectl bind orphans`: what the konnector told is shown, and ordered to end.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    annotations,
    orphans::{OrphanAction, OrphanOrder, OrphanSet},
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
fn orphans_are_shown_and_ended_as_the_user_says() -> Result<()> {
    run(async {
        let world = World::start("cli-orphans").await?;
        let (bound, ready) = tokio::join!(world.bind(&["cowboys"]), world.report_ready("cowboys"));
        ready?;
        bound?.expect(0, &[])?;
        world.bind(&["orphans"]).await?.expect(0, &["no binding has orphans"])?;
        world
            .bind(&["orphans", "cowboys", "--delete", "--yes"])
            .await?
            .expect(0, &["APIServiceBinding cowboys has no orphans"])?;
        world.bind(&["orphans", "sheriffs"]).await?.expect(4, &["sheriffs"])?;
        world.bind(&["orphans", "--delete"]).await?.expect(2, &["BINDING"])?;

        let orphans = set(&["a", "b"]);
        tell(&world, Some(orphans)).await?;
        world
            .bind(&["orphans"])
            .await?
            .expect(0, &["BINDING", "cowboys", "2 copies"])?;
        let listed = world.bind(&["orphans", "-o", "json"]).await?.expect(0, &[])?.json()?;
        ensure!(listed["items"][0]["count"] == 2, "{listed}");
        world.bind(&["status"]).await?.expect(
            0,
            &["✓ cowboys  ready", "OrphanedObjects=True (SourcesMissing): 2 copies"],
        )?;
        world
            .bind(&["orphans", "cowboys", "--delete"])
            .await?
            .expect(2, &["2 orphans of APIServiceBinding cowboys", "--yes"])?;
        ensure!(order(&world).await?.is_none(), "it was not confirmed");

        world
            .bind(&["orphans", "cowboys", "--release", "--yes", "--wait=false"])
            .await?
            .expect(0, &["asked the konnector to release 2 orphans"])?;
        let given = order(&world).await?.context("no order")?;
        let expect = OrphanOrder {
            action: OrphanAction::Release,
            orphans,
        };
        ensure!(given == expect.to_string(), "{given}");

        // The konnector carries an order out, refuses one for others, and relinks what it can.
        let deleted = world.bind_meanwhile(
            &["orphans", "cowboys", "--delete", "--yes"],
            "waiting for the konnector to take the order",
            async { answer(&world, None).await },
        );
        deleted.await?.expect(0, &["cowboys has no orphans any more"])?;
        for (action, left, says) in [
            ("--delete", set(&["b", "c"]), "cowboys has 2 orphans now"),
            ("--relink", orphans, "cowboys has 2 orphans now"),
        ] {
            tell(&world, Some(orphans)).await?;
            let arguments = ["orphans", "cowboys", action, "-y"];
            let done = world.bind_meanwhile(&arguments, "waiting for the konnector to take the order", async {
                answer(&world, Some(left)).await
            });
            done.await?.expect(0, &[says])?;
        }
        tell(&world, Some(orphans)).await?;
        world
            .bind(&["orphans", "cowboys", "--delete", "--yes", "--timeout", "2s"])
            .await?
            .expect(5, &["has orphans still"])?;
        Ok(())
    })
}

fn set(uids: &[&str]) -> OrphanSet {
    let mut set = OrphanSet::default();
    for uid in uids {
        set.add(uid);
    }
    set
}

fn bindings(world: &World) -> Api<APIServiceBinding> {
    Api::all(world.plane.client())
}

/// Plays the konnector: tells orphans, or that there are none.
async fn tell(world: &World, orphans: Option<OrphanSet>) -> Result<()> {
    let time = "2026-01-01T00:00:00Z";
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": time});
    let told = orphans.map(|orphans| {
        let message = format!("{} copies have no source{}", orphans.count, orphans.closing());
        json!({"type": "OrphanedObjects", "status": "True", "reason": "SourcesMissing", "message": message,
            "lastTransitionTime": time})
    });
    let conditions: Vec<_> = [Some(ready), told].into_iter().flatten().collect();
    let status = json!({"status": {"conditions": conditions}});
    bindings(world)
        .patch_status("cowboys", &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}

/// Plays the konnector: removes the order, and tells what is left.
async fn answer(world: &World, left: Option<OrphanSet>) -> Result<()> {
    tell(world, left).await?;
    let removed = json!({"metadata": {"annotations": {annotations::END_ORPHANS: null}}});
    bindings(world)
        .patch("cowboys", &PatchParams::default(), &Patch::Merge(removed))
        .await?;
    Ok(())
}

async fn order(world: &World) -> Result<Option<String>> {
    let binding = bindings(world).get("cowboys").await?;
    Ok(binding.annotations().get(annotations::END_ORPHANS).cloned())
}
