//! A request binds once: what it says of itself, and what a consumer says of what was bound, makes nothing again.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    annotations, names,
    v1alpha2::{APIServiceExportRequest, ClusterBinding, Phase},
};
use bindery_e2e::{eventually, eventually_ok, holds_for, wildwest::SOON};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    case::{Case, case, default_secret, role},
    response::{RESPONSE_KEY, text},
    world::A_WHILE,
};

/// Waits until the export is gone, and sees that nobody makes it again.
async fn stays_unbound(case: &Case<'_>, name: &str) -> Result<()> {
    let gone = eventually("the export to be gone", SOON, async || {
        Ok(case.exports().get_opt(name).await?.is_none().then_some(()))
    });
    gone.await?;
    holds_for("it is not made again", A_WHILE, async || {
        ensure!(case.exports().get_opt(name).await?.is_none(), "it was bound again");
        Ok(())
    })
    .await
}

#[test]
fn what_waits_for_its_secret_alone_is_unbound_for_good() -> Result<()> {
    case("unbound", async |_, case| {
        let mut foreign = Secret::default();
        foreign.metadata.name = Some(default_secret("cowboys"));
        case.secrets().create(&PostParams::default(), &foreign).await?;
        case.apply(&case.request("cowboys")).await?;
        case.comes_to("cowboys", Phase::Pending, "ForeignSecret", &[]).await?;
        ensure!(case.exports().get_opt("cowboys").await?.is_some(), "no export");
        case.exports().delete("cowboys", &DeleteParams::default()).await?;
        stays_unbound(case, "cowboys").await?;
        case.comes_to("cowboys", Phase::Pending, "ExportNotFound", &["create it again"])
            .await?;

        // Nor does it keep what another export has left, and the mend is one.
        case.kubectl(&["delete", "bindableresourcesrequest", "cowboys"], "")
            .await?;
        case.secrets()
            .delete(&default_secret("cowboys"), &DeleteParams::default())
            .await?;
        case.apply(&case.request("cowboys")).await?;
        case.succeeds("cowboys").await.map(drop)
    })
}

/// Sets a request back, as who may write its status can.
async fn set_back(case: &Case<'_>, name: &str) -> Result<()> {
    let pending = Patch::Merge(json!({"status": {"phase": "Pending", "conditions": null, "completionTime": null}}));
    case.requests()
        .patch_status(name, &PatchParams::default(), &pending)
        .await?;
    Ok(())
}

#[test]
fn a_request_that_is_set_back_ends_no_revocation_and_binds_nothing() -> Result<()> {
    case("set-back", async |_, case| {
        case.apply(&case.request("cowboys")).await?;
        case.succeeds("cowboys").await?;
        set_back(case, "cowboys").await?;
        // While all stands, it is found as it was.
        case.succeeds("cowboys").await?;

        case.caller().await?.revoke_credentials(&case.contract(), "").await?;
        case.secrets()
            .delete(&default_secret("cowboys"), &DeleteParams::default())
            .await?;
        set_back(case, "cowboys").await?;
        case.comes_to("cowboys", Phase::Pending, "CredentialsRevoked", &[])
            .await?;
        let bindings: Api<ClusterBinding> = Api::namespaced(case.provider.plane.client(), &case.contract());
        holds_for("the revocation is in force", A_WHILE, async || {
            let binding = bindings.get(names::CLUSTER_BINDING).await?;
            ensure!(
                binding.annotations().contains_key(annotations::REVOCATION),
                "it has ended"
            );
            let secret = case.secrets().get_opt(&default_secret("cowboys")).await?;
            ensure!(secret.is_none(), "a credential after the revocation");
            Ok(())
        })
        .await?;

        case.exports().delete("cowboys", &DeleteParams::default()).await?;
        set_back(case, "cowboys").await?;
        stays_unbound(case, "cowboys").await
    })
}

#[test]
fn what_opens_nothing_any_more_says_so_until_it_does_again() -> Result<()> {
    case("lapsed", async |_, case| {
        case.apply(&case.request("cowboys")).await?;
        case.succeeds("cowboys").await?;
        case.exports().delete("cowboys", &DeleteParams::default()).await?;
        case.comes_to("cowboys", Phase::Succeeded, "ExportNotFound", &[])
            .await?;
        // Bound by another request of the name, it is what the response is for.
        let other = Case::settle(case.provider, "lapsed-more").await?;
        let rules =
            json!([{"apiGroups": ["kube-bind.io"], "resources": ["bindableresourcesrequests"], "verbs": ["*"]}]);
        let subject = json!([{"kind": "ServiceAccount", "namespace": case.name, "name": "binder"}]);
        let given = role(other.name, "guests", &rules, &subject);
        case.provider.plane.apply(&given.to_string()).await?;
        other.let_the_server_respond().await?;
        let mut request = case.request("cowboys");
        request["metadata"]["namespace"] = json!(other.name);
        case.apply(&request).await?;
        other.succeeds("cowboys").await?;
        case.succeeds("cowboys").await.map(drop)
    })
}

#[test]
fn a_response_repeats_nothing_that_the_consumer_wrote() -> Result<()> {
    case("repeated", async |_, case| {
        case.apply(&case.request("cowboys")).await?;
        case.succeeds("cowboys").await?;
        let binder = case
            .provider
            .plane
            .service_account_client(&case.contract(), names::KUBE_BINDER)
            .await?;
        let asked: Api<APIServiceExportRequest> = Api::namespaced(binder, &case.contract());
        let mut forged = asked.get("cowboys").await?;
        asked.delete("cowboys", &DeleteParams::default()).await?;
        forged.metadata = kube::api::ObjectMeta {
            name: forged.metadata.name,
            annotations: forged.metadata.annotations,
            ..kube::api::ObjectMeta::default()
        };
        forged.spec.permission_claims = serde_json::from_value(json!([
            {"group": "", "resource": "secrets", "selector": {"all": true}},
        ]))?;
        asked.create(&PostParams::default(), &forged).await?;
        case.secrets()
            .delete(&default_secret("cowboys"), &DeleteParams::default())
            .await?;
        let secret = eventually_ok("the response to come back", SOON, async || {
            Ok(case.secrets().get(&default_secret("cowboys")).await?)
        })
        .await?;
        let response: Value = serde_json::from_str(&text(&secret, RESPONSE_KEY)?)?;
        let told = response["requests"][0]["spec"].as_object().context("a request")?;
        ensure!(!told.contains_key("permissionClaims"), "{told:?}");
        ensure!(told["resources"][0]["resource"] == "cowboys", "{told:?}");
        Ok(())
    })
}
