//! Faults beside certificates and credentials.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bindery_api::v1alpha2::ClusterBinding;
use bindery_e2e::{Process, clock, eventually_ok};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::world::{SOON, World};

const POLICY: &str = "kube-bind-konnector";
const GRACE: Duration = Duration::from_mins(1);
const PATIENCE: Duration = Duration::from_mins(3);

/// What mends the konnector's side, as the command prints it.
async fn deploy(world: &World) -> Result<()> {
    world.bind(&["deploy"]).await?.expect(0, &[])?;
    world.all_is_well().await
}

pub(crate) async fn policy_gone(world: &World) -> Result<()> {
    let plane = &world.bound.consumer.plane;
    plane.kubectl(&["delete", "validatingadmissionpolicy", POLICY]).await?;
    let says = [
        "ValidatingAdmissionPolicy kube-bind-konnector does not exist",
        "kubectl bind deploy",
    ];
    world.finds(&["konnector-policy"], &says).await?;
    deploy(world).await
}

pub(crate) async fn policy_binding_gone(world: &World) -> Result<()> {
    let plane = &world.bound.consumer.plane;
    plane
        .kubectl(&["delete", "validatingadmissionpolicybinding", POLICY])
        .await?;
    let says = [
        "ValidatingAdmissionPolicyBinding kube-bind-konnector does not exist",
        "kubectl bind deploy",
    ];
    world.finds(&["konnector-policy-binding"], &says).await?;
    deploy(world).await
}

pub(crate) async fn server_policy_gone(world: &World) -> Result<()> {
    let plane = &world.bound.provider.plane;
    for kind in ["validatingadmissionpolicy", "validatingadmissionpolicybinding"] {
        plane.kubectl(&["delete", kind, "kube-bind-binder"]).await?;
    }
    let says = [
        "ValidatingAdmissionPolicy kube-bind-binder does not exist",
        "apply -f deploy/server/policy.yaml",
    ];
    world.finds(&["server-policy", "server-policy-binding"], &says).await?;
    plane
        .apply(&bindery_e2e::manifests::file("server/policy.yaml")?)
        .await?;
    world.all_is_well().await
}

pub(crate) async fn missing_rule(world: &World) -> Result<()> {
    let cluster_roles: Api<ClusterRole> = Api::all(world.bound.consumer.plane.client());
    let mut changed = cluster_roles.get(POLICY).await?;
    let rules = changed.rules.as_mut().context("rules")?;
    let before = rules.len();
    rules.retain(|rule| !rule.resources.iter().flatten().any(|resource| resource == "events"));
    ensure!(rules.len() + 1 == before, "the rule on events is not there: {rules:?}");
    cluster_roles.replace(POLICY, &PostParams::default(), &changed).await?;
    let says = [
        "ServiceAccount kube-bind/konnector may not create,patch events.events.k8s.io",
        "kubectl bind deploy",
        "in the rules of ClusterRole kube-bind-konnector",
    ];
    world.finds(&["konnector-rights"], &says).await?;
    deploy(world).await
}

/// The clock of the machine where the command runs is an hour ahead.
pub(crate) async fn clock(world: &World) -> Result<()> {
    let shim = clock::shim(world.bound.consumer.plane.workdir()).await?;
    let shifted = || {
        let mut command = world.check_command()?;
        command.env("LD_PRELOAD", &shim).env(clock::SHIFT, "3600");
        Ok(command)
    };
    let checks = ["consumer-clock", "provider-clock", "provider-admin-clock"];
    let says = [
        "the clock of this machine is",
        "ahead of that of this cluster's API server",
        "timedatectl set-ntp true",
    ];
    world.finds_by(shifted, &checks, &says).await
}

/// The konnector's release is far ahead. It reports its own version with each heartbeat, so the other one is written before each
/// look.
pub(crate) async fn versions(world: &World) -> Result<()> {
    let report = async |version: &str| {
        let bindings: Api<ClusterBinding> = Api::namespaced(world.bound.provider.plane.client(), &world.bound.contract);
        let patch = Patch::Merge(json!({"status": {"konnectorVersion": version}}));
        bindings.patch_status("cluster", &PatchParams::default(), &patch).await
    };
    let says = [
        "the konnector v9.9.0: more than one minor version apart",
        "kubectl bind deploy",
    ];
    let checks = ["konnector-version", "backend-version"];
    eventually_ok("the version to be found", SOON, async || {
        report("v9.9.0").await?;
        world.finds_now(world.check_command()?, &checks, &says).await
    })
    .await?;
    report(concat!("v", env!("CARGO_PKG_VERSION"))).await?;
    world.all_is_well().await
}

pub(crate) async fn no_lease_holder(world: &mut World) -> Result<()> {
    world.bound.consumer.stop_konnectors().await?;
    let says = [
        "Lease kube-bind/kube-bind has no holder",
        "kubectl rollout restart deployment/konnector -n kube-bind",
    ];
    world.finds(&["konnector-lease"], &says).await?;
    world.bound.consumer.start_konnector().await?;
    world.all_is_well().await
}

pub(crate) async fn backend_away(world: &mut World) -> Result<()> {
    let provider = &mut world.bound.provider;
    provider.servers[0].terminate(GRACE).await?;
    provider.servers[0].hush();
    let says = [
        "cannot be reached from here",
        "kubectl get pods,endpointslices -n kube-bind",
        "Lease kube-bind/bindery-server has no holder",
    ];
    world.finds(&["backend-reachable", "server-lease"], &says).await?;
    // Until somebody has mended it, the command waits.
    let mut command = world.check_command()?;
    command.args(["--wait", "--timeout", "2m"]);
    let mut waiting = Process::spawn("waiting", &command)?;
    waiting.wait_for_line("checking again", PATIENCE).await?;
    world.bound.provider.restart_server().await?;
    ensure!(waiting.wait(PATIENCE).await?.success(), "{}", waiting.log());
    waiting.hush();
    world.all_is_well().await
}

/// What a user may not read is a warning with the right that is missing, and no failure.
pub(crate) async fn a_user_without_rights(world: &World) -> Result<()> {
    let kubeconfig = world
        .bound
        .consumer
        .plane
        .service_account_kubeconfig("default", "default")
        .await?;
    let mut command = world.bound.consumer.bind_command()?;
    command.arg("check").env("KUBECONFIG", kubeconfig);
    let says = [
        "WARN not checked, because you may not list APIServiceBindings",
        "the right to create subjectaccessreviews.authorization.k8s.io",
        "Nothing failed, but not all could be checked, not checked: ",
    ];
    let ended = world.run(command).await?.expect(0, &says)?;
    ensure!(!ended.stdout.contains("FAIL "), "{}", ended.stdout);
    Ok(())
}

/// An API server that accepts connections and says nothing does not hold up the other checks.
pub(crate) async fn api_server_silent(world: &World) -> Result<()> {
    let plane = &world.bound.provider.plane;
    plane.pause_api_server()?;
    let mut command = world.bound.consumer.bind_command()?;
    // All others answer within this time, also on a busy machine.
    command.args(["check", "--timeout", "10s"]);
    let start = Instant::now();
    let ended = world.run(command).await;
    let took = start.elapsed();
    plane.resume_api_server()?;
    let says = [
        "FAIL the provider's API server",
        "no answer within 10 s",
        "ok   Lease kube-bind/kube-bind is held by",
    ];
    ended?.expect(1, &says)?;
    ensure!(took < GRACE, "it took {took:?}");
    world.all_is_well().await
}

pub(crate) async fn api_server_away(world: &World) -> Result<()> {
    let plane = &world.bound.provider.plane;
    plane.stop_api_server()?;
    let of_bindings = || {
        let mut command = world.bound.consumer.bind_command()?;
        command.arg("check");
        Ok(command)
    };
    let says = [
        "the provider's API server https://127.0.0.1:",
        "cannot be reached from here",
        "tell the provider's admin",
    ];
    world.finds_by(of_bindings, &["provider-api"], &says).await?;
    world
        .finds(&["provider-api", "provider-admin-api"], &["--provider-kubeconfig"])
        .await?;
    plane.start_api_server().await?;
    world.all_is_well().await
}
