//! Credentials that are revoked: by the owner of the contract, and by the provider's admin.

use anyhow::{Result, ensure};
use bindery_e2e::{eventually_ok, holds_for, wildwest::SOON};
use k8s_openapi::api::{core::v1::Secret, rbac::v1::RoleBinding};
use kube::{Api, api::ListParams};
use serde_json::Value;

use crate::world::{Ended, World};

/// What the check of a revoked contract prints.
const FOUND: [&str; 2] = ["credential", "contract-revoked"];

/// Runs `kubectl bind revoke ARGS` as the owner of the contract.
async fn as_owner(world: &World, args: &[&str]) -> Result<Ended> {
    let bound = &world.bound;
    let mut command = bound.consumer.bind_command_for(&bound.provider, &bound.token)?;
    command.arg("revoke").args(args);
    world.run(command).await
}

/// Runs `kubectl bind revoke ARGS` as the admin of the provider's cluster.
async fn as_admin(world: &World, args: &[&str]) -> Result<Ended> {
    let mut command = world.bound.consumer.bind_command()?;
    command.arg("revoke").args(args).arg("--provider-kubeconfig");
    command.arg(world.bound.provider.plane.kubeconfig_path());
    world.run(command).await
}

pub(crate) async fn by_the_owner(world: &World) -> Result<()> {
    let contract = world.bound.contract.as_str();
    as_owner(world, &["cowboys", "--dry-run"])
        .await?
        .expect(0, &["would be revoked", "APIServiceBinding cowboys", contract])?;
    world.all_is_well().await?;
    as_owner(world, &["cowboys"])
        .await?
        .expect(2, &["no terminal", "--yes"])?;
    let ended = as_owner(world, &["cowboys", "--yes", "--reason", "lost laptop", "-o", "json"]).await?;
    let ended = ended.expect(0, &["these are not synced any more"])?;
    let result: Value = serde_json::from_str(&ended.stdout)?;
    ensure!(
        result["contract"] == contract && result["bindAgain"] == "kubectl bind renew cowboys",
        "{result}"
    );
    ensure!(
        result["anchors"].as_u64() >= Some(1) && result["time"].is_string(),
        "{result}"
    );
    is_found(world, &["because: lost laptop", "kubectl bind renew cowboys"]).await?;
    renewed(world).await
}

pub(crate) async fn by_the_admin(world: &World) -> Result<()> {
    let contract = world.bound.contract.as_str();
    let args = ["--contract", contract];
    as_admin(world, &[&args[..], &["--dry-run"]].concat())
        .await?
        .expect(0, &["would be revoked", "APIServiceExport"])?;
    ensure!(anchors(world).await? > 0, "the dry run deleted the anchors");
    as_admin(world, &[&args[..], &["--yes", "--reason", "left the company"]].concat())
        .await?
        .expect(0, &["recorded the revocation", "are revoked since"])?;
    ensure!(anchors(world).await? == 0, "an anchor is left");
    let grants: Api<RoleBinding> = Api::namespaced(world.bound.provider.plane.client(), contract);
    ensure!(
        grants.get_opt("kube-binder").await?.is_none(),
        "the RoleBinding is left"
    );
    is_found(world, &["because: left the company"]).await?;
    // Again, it changes nothing.
    as_admin(world, &[&args[..], &["--yes"]].concat())
        .await?
        .expect(0, &["they are revoked since"])?;
    holds_for(
        "no credential to come back by itself",
        std::time::Duration::from_secs(3),
        async || {
            ensure!(anchors(world).await? == 0, "an anchor came back");
            Ok(())
        },
    )
    .await?;
    renewed(world).await
}

pub(crate) async fn bad_input(world: &World) -> Result<()> {
    as_admin(world, &["--contract", "kube-system", "--yes"]).await?.expect(
        4,
        &[
            "namespace kube-system of the provider is no contract",
            "clusterbindings",
        ],
    )?;
    as_owner(world, &["sheriffs", "--yes"])
        .await?
        .expect(4, &["\"sheriffs\""])?;
    as_owner(world, &["--contract", "kube-bind-nobodys", "--yes"])
        .await?
        .expect(3, &["kube-bind-nobodys"])?;
    as_owner(world, &["--contract", "kube-bind-nobodys", "--dry-run"])
        .await?
        .expect(3, &["kube-bind-nobodys"])?;
    let long = "x".repeat(1025);
    as_owner(world, &["cowboys", "--yes", "--reason", &long])
        .await?
        .expect(2, &["--reason"])?;
    as_owner(world, &["--yes"]).await?.expect(2, &["--contract"])?;
    Ok(())
}

/// The check tells of it at once from the backend, and a little later from the API server and from the konnector.
async fn is_found(world: &World, says: &[&str]) -> Result<()> {
    let with_binding = [&FOUND[..], &["binding-ready"]].concat();
    world.finds(&with_binding, says).await
}

/// What the check prints as the mend.
async fn renewed(world: &World) -> Result<()> {
    world.bound.bind(&["renew", "cowboys"]).await?;
    eventually_ok("new anchors", SOON, async || {
        ensure!(anchors(world).await? > 0, "none");
        Ok(())
    })
    .await?;
    world.all_is_well().await
}

async fn anchors(world: &World) -> Result<usize> {
    let secrets: Api<Secret> = Api::namespaced(world.bound.provider.plane.client(), &world.bound.contract);
    let params = ListParams::default().labels("kube-bind.io/component=token-anchor");
    Ok(secrets.list(&params).await?.items.len())
}
