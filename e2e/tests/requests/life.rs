//! A request after it has succeeded: nothing is done twice, what is lost comes back, and its end takes nothing along.

use anyhow::{Context as _, Result, ensure};
use bindery_api::v1alpha2::Phase;
use bindery_e2e::{eventually_ok, holds_for, wildwest::SOON};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    case::{Case, case, default_secret, role},
    response::{RESPONSE_KEY, opens_the_contract, text},
    world::A_WHILE,
};

/// Versions of a request, of its Secret and of its export.
async fn versions(case: &Case<'_>, name: &str) -> Result<[Option<String>; 3]> {
    let request = case.requests().get_opt(name).await?;
    let secret = case.secrets().get_opt(&default_secret(name)).await?;
    let export = case.exports().get_opt(name).await?;
    Ok([
        request.and_then(|it| it.resource_version()),
        secret.and_then(|it| it.resource_version()),
        // Others write its status.
        export.and_then(|it| it.uid()),
    ])
}

async fn stays(case: &Case<'_>, name: &str, before: &[Option<String>; 3]) -> Result<()> {
    holds_for("nothing is written", A_WHILE, async || {
        let now = versions(case, name).await?;
        ensure!(now == *before, "{before:?} became {now:?}");
        Ok(())
    })
    .await
}

#[test]
fn nothing_is_written_twice() -> Result<()> {
    case("twice", async |_, case| {
        case.apply(&case.request("cowboys")).await?;
        case.succeeds("cowboys").await?;
        let before = versions(case, "cowboys").await?;
        ensure!(before.iter().all(Option::is_some), "{before:?}");
        case.apply(&case.request("cowboys")).await?;
        stays(case, "cowboys", &before).await?;

        // Another name is another export.
        let mut second = case.request("cowboys");
        second["metadata"]["name"] = json!("riders");
        case.apply(&second).await?;
        case.succeeds("riders").await?;
        ensure!(versions(case, "cowboys").await? == before, "the first one was written");
        ensure!(case.exports().list(&ListParams::default()).await?.items.len() == 2);
        Ok(())
    })
}

#[test]
fn who_asks_for_the_same_in_two_namespaces_has_one_export() -> Result<()> {
    case("two-places", async |world, case| {
        case.apply(&case.request("cowboys")).await?;
        case.succeeds("cowboys").await?;
        let export = case.exports().get("cowboys").await?.uid();
        // Another namespace, in which the same account may ask.
        let other = Case::settle(&world.provider, "two-places-more").await?;
        other.let_the_server_respond().await?;
        let rules =
            json!([{"apiGroups": ["kube-bind.io"], "resources": ["bindableresourcesrequests"], "verbs": ["*"]}]);
        let subject = json!([{"kind": "ServiceAccount", "namespace": case.name, "name": "binder"}]);
        let given = role(other.name, "guests", &rules, &subject);
        world.provider.plane.apply(&given.to_string()).await?;
        let mut request = case.request("cowboys");
        request["metadata"]["namespace"] = json!(other.name);
        case.apply(&request).await?;
        other.succeeds("cowboys").await?;
        for place in [case, &other] {
            let secret = written(place, "cowboys", None).await?;
            opens_the_contract(case, &text(&secret, "kubeconfig")?, "cowboys").await?;
        }
        let exports = case.exports().list(&ListParams::default()).await?.items;
        ensure!(exports.len() == 1 && exports[0].uid() == export, "another export");
        Ok(())
    })
}

/// Waits until the Secret of a request is there and whole, in a version other than this.
async fn written(case: &Case<'_>, name: &str, unlike: Option<&str>) -> Result<Secret> {
    eventually_ok(format!("the response to {name}"), SOON, async || {
        let secret = case.secrets().get(&default_secret(name)).await?;
        ensure!(unlike.is_none() || secret.uid().as_deref() != unlike, "not yet");
        text(&secret, RESPONSE_KEY)?;
        text(&secret, "kubeconfig")?;
        Ok(secret)
    })
    .await
}

#[test]
fn a_lost_response_comes_back() -> Result<()> {
    case("lost", async |_, case| {
        case.apply(&case.request("cowboys")).await?;
        let decided = case.succeeds("cowboys").await?.status.and_then(|it| it.completion_time);
        let secret = written(case, "cowboys", None).await?;
        case.secrets()
            .delete(&secret.name_any(), &DeleteParams::default())
            .await?;
        let anew = written(case, "cowboys", secret.uid().as_deref()).await?;
        opens_the_contract(case, &text(&anew, "kubeconfig")?, "cowboys").await?;
        let request = case.succeeds("cowboys").await?;
        ensure!(
            request.status.and_then(|it| it.completion_time) == decided,
            "decided anew"
        );

        let take = Patch::Merge(json!({"data": {"kubeconfig": null}}));
        case.secrets()
            .patch(&secret.name_any(), &PatchParams::default(), &take)
            .await?;
        let mended = written(case, "cowboys", None).await?;
        opens_the_contract(case, &text(&mended, "kubeconfig")?, "cowboys").await
    })
}

/// Waits until a request is gone, and sees that all it made is there as it was.
async fn goes_alone(case: &Case<'_>, name: &str) -> Result<()> {
    let secret = written(case, name, None).await?;
    let export = case.exports().get(name).await?;
    eventually_ok(format!("request {name} to be gone"), SOON, async || {
        ensure!(case.requests().get_opt(name).await?.is_none(), "it is there");
        Ok(())
    })
    .await?;
    holds_for("what it made is there", A_WHILE, async || {
        let now = case.secrets().get(&secret.name_any()).await?;
        ensure!(now.data == secret.data, "the Secret was written");
        ensure!(case.exports().get(name).await?.uid() == export.uid(), "another export");
        Ok(())
    })
    .await?;
    opens_the_contract(case, &text(&secret, "kubeconfig")?, name).await
}

#[test]
fn a_request_goes_at_its_time_and_takes_nothing_along() -> Result<()> {
    case("ttl", async |_, case| {
        let mut request = case.request("cowboys");
        request["spec"]["ttlAfterFinished"] = json!("3s");
        case.apply(&request).await?;
        written(case, "cowboys", None).await?;
        goes_alone(case, "cowboys").await
    })
}

#[test]
fn a_request_made_anew_writes_its_response_anew() -> Result<()> {
    case("anew", async |_, case| {
        let request = case.request("cowboys");
        case.apply(&request).await?;
        case.succeeds("cowboys").await?;
        let before = written(case, "cowboys", None).await?;
        case.kubectl(&["delete", "bindableresourcesrequest", "cowboys"], "")
            .await?;
        goes_alone(case, "cowboys").await?;
        case.apply(&request).await?;
        let uid = case.succeeds("cowboys").await?.uid().context("a UID")?;
        let after = case.secrets().get(&before.name_any()).await?;
        ensure!(after.uid() == before.uid(), "another Secret");
        let label = after.labels().get("kube-bind.io/request-uid");
        ensure!(label == Some(&uid), "{label:?}");
        ensure!(after.data != before.data, "the credential of the request before");
        opens_the_contract(case, &text(&after, "kubeconfig")?, "cowboys").await
    })
}

#[test]
fn a_revoked_contract_gets_no_response_back() -> Result<()> {
    case("revoked", async |_, case| {
        let request = case.request("cowboys");
        case.apply(&request).await?;
        case.succeeds("cowboys").await?;
        let before = written(case, "cowboys", None).await?;
        case.caller().await?.revoke_credentials(&case.contract(), "").await?;
        case.secrets()
            .delete(&before.name_any(), &DeleteParams::default())
            .await?;
        case.comes_to("cowboys", Phase::Succeeded, "CredentialsRevoked", &[])
            .await?;
        holds_for("nothing is given", A_WHILE, async || {
            let secret = case.secrets().get_opt(&before.name_any()).await?;
            ensure!(secret.is_none(), "a credential after the revocation");
            Ok(())
        })
        .await?;
        // The owner can ask again, which is a request of its own.
        case.kubectl(&["delete", "bindableresourcesrequest", "cowboys"], "")
            .await?;
        case.apply(&request).await?;
        case.succeeds("cowboys").await?;
        let after = written(case, "cowboys", None).await?;
        opens_the_contract(case, &text(&after, "kubeconfig")?, "cowboys").await
    })
}
