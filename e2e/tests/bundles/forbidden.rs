//! The provider's admin takes verbs from consumers: where exports cannot be watched they are listed, and where they cannot be
//! listed nothing is unbound.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{ControlPlane, bundle::Bundle, eventually_ok, holds_for, offer::Offer, rights, wildwest::SOON};
use k8s_openapi::api::{authorization::v1::ResourceAttributes, rbac::v1::ClusterRole};
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::{
    contract::Contract,
    pair::Pair,
    world::{A_WHILE, Case, case},
};

const FIRST: Offer = Offer { name: "for-first" };
const POLLED: Offer = Offer { name: "for-polled" };
const ROLE: &str = "kube-binder";
const EXPORTS: &str = "apiserviceexports";

pub(crate) async fn what_cannot_be_watched_is_listed_and_what_cannot_be_listed_stays() -> Result<()> {
    case("forbidden", async |case| {
        // Whoever else uses this provider has its stream, and asks Kubernetes for no exports.
        let roles: Api<ClusterRole> = Api::all(case.world.q.plane.client());
        let before = roles.get(ROLE).await?.rules;
        let outcome = check(case).await;
        // For all others.
        let mut role = roles.get(ROLE).await?;
        role.rules = before;
        roles.replace(ROLE, &PostParams::default(), &role).await?;
        outcome
    })
    .await
}

async fn check(case: &Case) -> Result<()> {
    let plane = &case.world.q.plane;
    let contract = case.contract(&case.world.q, &[FIRST, POLLED]).await?;
    let credential = contract.export(FIRST).await?.without_backend();
    allow(plane, &["get", "list"]).await?;
    // A stream that begins while it is still allowed would go on.
    let watch = ResourceAttributes {
        verb: Some("watch".to_owned()),
        group: Some("kube-bind.io".to_owned()),
        resource: Some(EXPORTS.to_owned()),
        namespace: Some(contract.namespace.clone()),
        ..ResourceAttributes::default()
    };
    rights::wait_until(plane, &contract.binder(), &watch, false).await?;
    let bundle = case.bundle("");
    bundle.give(&credential.yaml()?).await?;
    bundle.apply(json!({"pollingInterval": "1s"})).await?;
    bundle.binds(&[FIRST.name]).await?;
    let pair = case.object(&contract, FIRST, "one").await?;
    listed_now_and_then(plane, &contract).await?;
    contract.export(POLLED).await?;
    bundle.binds(&[FIRST.name, POLLED.name]).await?;
    contract.remove(POLLED.name).await?;
    bundle.unbound(POLLED.name).await?;

    allow(plane, &["get"]).await?;
    forbidden(&bundle, &pair).await?;
    allow(plane, &["get", "list"]).await?;
    bundle.binds(&[FIRST.name]).await?;
    pair.works("listed again").await
}

/// Leaves consumers these verbs on exports.
async fn allow(plane: &ControlPlane, verbs: &[&str]) -> Result<()> {
    let roles: Api<ClusterRole> = Api::all(plane.client());
    let mut role = roles.get(ROLE).await?;
    let all = role.rules.get_or_insert_default();
    for held in all.iter_mut() {
        if let Some(resources) = &mut held.resources {
            resources.retain(|resource| resource != EXPORTS);
        }
    }
    all.retain(|held| held.resources.as_ref().is_some_and(|resources| !resources.is_empty()));
    let left = json!({"apiGroups": ["kube-bind.io"], "resources": [EXPORTS], "verbs": verbs});
    all.push(serde_json::from_value(left)?);
    roles.replace(ROLE, &PostParams::default(), &role).await?;
    Ok(())
}

async fn listed_now_and_then(plane: &ControlPlane, contract: &Contract) -> Result<()> {
    let audit = plane.audit()?;
    let from = audit.now()?;
    eventually_ok("exports to be listed three times", SOON, async || {
        let mut asked = audit.since(from)?;
        asked.retain(|asked| asked.by == contract.binder() && asked.resource == EXPORTS && asked.verb == "list");
        ensure!(asked.len() >= 3, "{} times", asked.len());
        Ok(())
    })
    .await
}

/// The list is forbidden: it is said, and nothing goes.
async fn forbidden(bundle: &Bundle, pair: &Pair) -> Result<()> {
    let synced = bundle
        .is("Synced", |synced| synced.reason == "ListExportsFailed")
        .await?;
    ensure!(!synced.is_true() && synced.message.contains(EXPORTS), "{synced:?}");
    holds_for("nothing to be unbound", A_WHILE, async || {
        let binding = bundle.bindings().await?.pop().context("the binding is gone")?;
        ensure!(binding.metadata.deletion_timestamp.is_none(), "it goes");
        pair.is_here().await
    })
    .await
}
