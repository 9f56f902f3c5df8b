//! The claimed Secrets of a cell: `badge-CELL` of the consumer by label, `permit-CELL` of the consumer by reference where the API
//! is namespaced, and `reward-CELL` of the provider by label.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{ControlPlane, eventually_ok, wildwest::SOON};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::json;

use crate::{
    cells::{CELLS, CLAIM, Cell},
    world::{NAMESPACE, World},
};

/// Waits until the claimed Secrets of all cells are on both sides, once each. Creates those that are missing.
pub(crate) async fn served(world: &World) -> Result<()> {
    for cell in CELLS.iter().filter(|cell| cell.claims) {
        for name in consumers(cell) {
            create(&world.consumer.plane, NAMESPACE, cell, &name).await?;
        }
        let copies = eventually_ok(
            format!("the provider's copies of Secrets of {}", cell.name),
            SOON,
            async || copies(world, cell).await,
        )
        .await?;
        let namespace = copies[0].namespace().context("no namespace")?;
        let reward = reward(cell);
        create(&world.provider.plane, &namespace, cell, &reward).await?;
        let here: Api<Secret> = Api::namespaced(world.consumer.plane.client(), NAMESPACE);
        eventually_ok(format!("the consumer's copy of {reward}"), SOON, async || {
            Ok(here.get(&reward).await?)
        })
        .await?;
    }
    Ok(())
}

/// Does what the changelog asks for before the upgrade of the konnector: bindings of cluster-scoped APIs list the namespaces into which the
/// provider's objects come down.
pub(crate) async fn list_namespaces(world: &World) -> Result<()> {
    let plane = &world.consumer.plane;
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crds");
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", crds];
    plane.kubectl(&apply).await?;
    let listed = json!({"spec": {"claimNamespaces": [NAMESPACE]}}).to_string();
    for cell in CELLS.iter().filter(|cell| cell.claims && !cell.is_namespaced()) {
        let patch = [
            "patch",
            "apiservicebinding",
            cell.name,
            "--type=merge",
            "-p",
            listed.as_str(),
        ];
        plane.kubectl(&patch).await?;
    }
    Ok(())
}

/// Waits until the copies of a cell that was unbound are gone on both sides, and the consumer's own Secrets are there.
pub(crate) async fn ended(world: &World, cell: &Cell) -> Result<()> {
    if !cell.claims {
        return Ok(());
    }
    eventually_ok(
        format!("the copies of Secrets of {} to be gone", cell.name),
        SOON,
        async || {
            let left = labelled(&world.provider.plane).await?;
            let consumers = consumers(cell);
            let left: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
            ensure!(
                !left.iter().any(|name| consumers.contains(name)),
                "on the provider: {left:?}"
            );
            let here = labelled(&world.consumer.plane).await?;
            let here: Vec<_> = here.iter().map(ResourceExt::name_any).collect();
            ensure!(!here.contains(&reward(cell)), "on the consumer: {here:?}");
            Ok(())
        },
    )
    .await?;
    let own: Api<Secret> = Api::namespaced(world.consumer.plane.client(), NAMESPACE);
    for name in consumers(cell) {
        let own = own.get(&name).await.context("an unbind deleted it")?;
        ensure!(own.metadata.deletion_timestamp.is_none(), "an unbind deletes {name}");
    }
    Ok(())
}

/// The provider's copies of the consumer's Secrets.
async fn copies(world: &World, cell: &Cell) -> Result<Vec<Secret>> {
    let consumers = consumers(cell);
    let mut copies = labelled(&world.provider.plane).await?;
    copies.retain(|copy| consumers.contains(&copy.name_any()));
    ensure!(
        copies.len() == consumers.len(),
        "{} copies of {consumers:?}",
        copies.len()
    );
    Ok(copies)
}

/// The Secrets of tests on a cluster.
async fn labelled(plane: &ControlPlane) -> Result<Vec<Secret>> {
    let secrets: Api<Secret> = Api::all(plane.client());
    Ok(secrets.list(&ListParams::default().labels(CLAIM)).await?.items)
}

/// Names of the consumer's claimed Secrets.
fn consumers(cell: &Cell) -> Vec<String> {
    let kinds: &[&str] = if cell.is_namespaced() {
        &["badge", "permit"]
    } else {
        &["badge"]
    };
    kinds.iter().map(|kind| format!("{kind}-{}", cell.name)).collect()
}

/// The name of the provider's claimed Secret.
fn reward(cell: &Cell) -> String {
    format!("reward-{}", cell.name)
}

/// Creates a Secret unless it exists. All but permits carry the label that the cell claims.
async fn create(plane: &ControlPlane, namespace: &str, cell: &Cell, name: &str) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(plane.client(), namespace);
    if secrets.get_opt(name).await?.is_some() {
        return Ok(());
    }
    let mut secret = Secret {
        string_data: Some([("word".to_owned(), name.to_owned())].into()),
        ..Secret::default()
    };
    secret.metadata.name = Some(name.to_owned());
    // No cell claims this value; the snapshot finds the Secret by the label.
    let value = if name.starts_with("permit") {
        "nobody"
    } else {
        cell.name
    };
    secret.metadata.labels = Some([(CLAIM.to_owned(), value.to_owned())].into());
    secrets.create(&PostParams::default(), &secret).await?;
    Ok(())
}
