//! What takes a provider of its own: the server is killed in between, and the policy is not there.

use std::pin::pin;

use anyhow::{Context as _, Result, ensure};
use bindery_api::v1alpha2::{BindableResourcesRequest, Phase};
use bindery_e2e::{
    Gate, Provider, bound::free_lease, eventually_ok, holds_for, lease::PATIENT, manifests, run, wildwest::SOON,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use crate::{
    case::{Case, default_secret, ready},
    response::{opens_the_contract, text},
    world::{A_WHILE, POLICY, dry_run, in_force},
};

/// Paths of what is done for a resource and not for a call: the Secret, and the status in the team's namespace.
fn is_the_responses(write: &str, team: &str) -> bool {
    write.contains(&format!("/namespaces/{team}/"))
}

/// Puts a gate before the API server, as the server sees it.
async fn gated(provider: &mut Provider) -> Result<Gate> {
    let gate = Gate::start(&provider.plane).await?;
    provider.servers[0].terminate(SOON).await?;
    provider.reach_through(gate.url())?;
    provider.restart_server().await?;
    Ok(gate)
}

/// A request for a cluster of its own.
fn numbered(case: &Case<'_>, number: usize) -> (String, Value) {
    let name = format!("cowboys-{number}");
    let mut request = case.request("cowboys");
    request["metadata"]["name"] = json!(name);
    request["spec"]["clusterIdentity"]["identity"] = json!(format!("{}-{number}", case.identity()));
    (name, request)
}

/// All is there, once.
async fn is_whole(case: &Case<'_>, name: &str) -> Result<()> {
    let request = case.succeeds(name).await?;
    let contract = request.status.and_then(|it| it.namespace).context("no contract")?;
    let secret = case.secrets().get(&default_secret(name)).await?;
    let response: Value = serde_json::from_str(&text(&secret, crate::response::RESPONSE_KEY)?)?;
    ensure!(
        response["providerNamespace"] == contract,
        "{}",
        response["providerNamespace"]
    );
    let exports: Api<bindery_api::v1alpha2::APIServiceExport> =
        Api::namespaced(case.provider.plane.client(), &contract);
    ensure!(exports.list(&ListParams::default()).await?.items.len() == 1, "exports");
    let kubeconfig = text(&secret, "kubeconfig")?;
    let client = crate::response::client_of(&kubeconfig).await?;
    let exports: Api<bindery_api::v1alpha2::APIServiceExport> = Api::namespaced(client, &contract);
    eventually_ok("the kubeconfig to show the export", SOON, async || {
        Ok(exports.get(name).await?)
    })
    .await
    .map(drop)
}

#[test]
fn a_server_killed_in_between_leaves_one_whole_response() -> Result<()> {
    run(async {
        let mut provider = Provider::start_with("requests-killed", &PATIENT).await?;
        in_force(&provider).await?;
        let gate = gated(&mut provider).await?;
        let team = "killed";
        let case = Case::settle(&provider, team).await?;
        case.let_the_server_respond().await?;
        gate.note();
        let (name, request) = numbered(&case, 0);
        case.apply(&request).await?;
        is_whole(&case, &name).await?;
        let writes: Vec<_> = gate
            .writes()
            .into_iter()
            .filter(|it| is_the_responses(it, team))
            .collect();
        ensure!(writes.iter().any(|it| it.contains("/secrets")), "{writes:?}");
        ensure!(writes.iter().any(|it| it.ends_with("/status")), "{writes:?}");
        drop(case);

        let mut kills = 0;
        for number in 1..=writes.len() {
            let case = Case::again(&provider, team).await?;
            let (name, request) = numbered(&case, number);
            gate.shut_after(number, move |write| is_the_responses(write, team));
            case.apply(&request).await?;
            let killed = {
                let mut done = pin!(is_whole(&case, &name));
                tokio::select! {
                    biased;
                    () = gate.silent() => true,
                    done = &mut done => { done?; false }
                }
            };
            drop(case);
            if killed {
                kills += 1;
                provider.servers[0].kill9()?;
                gate.open();
                free_lease(provider.plane.client(), "bindery-server").await?;
                provider.restart_server().await?;
            }
            gate.open();
            let case = Case::again(&provider, team).await?;
            is_whole(&case, &name)
                .await
                .with_context(|| format!("killed after write {number} of {writes:?}"))?;
        }
        // A status may be written in fewer steps.
        ensure!(kills >= 2 && 2 * kills >= writes.len(), "{kills} kills: {writes:?}");
        a_successor_writes_nothing(&mut provider, team).await
    })
}

/// What is answered is found as it is by the next server.
async fn a_successor_writes_nothing(provider: &mut Provider, team: &'static str) -> Result<()> {
    let before = versions(&Case::again(provider, team).await?).await?;
    provider.servers[0].kill9()?;
    free_lease(provider.plane.client(), "bindery-server").await?;
    provider.restart_server().await?;
    let case = Case::again(provider, team).await?;
    holds_for("nothing is written", 2 * A_WHILE, async || {
        let now = versions(&case).await?;
        ensure!(now == before, "{before:?} became {now:?}");
        Ok(())
    })
    .await
}

/// Versions of the team's requests and Secrets.
async fn versions(case: &Case<'_>) -> Result<Vec<(String, Option<String>)>> {
    let requests = case.requests().list(&ListParams::default()).await?;
    let secrets = case.secrets().list(&ListParams::default()).await?;
    let requests = requests.iter().map(|it| (it.name_any(), it.resource_version()));
    let secrets = secrets.iter().map(|it| (it.name_any(), it.resource_version()));
    Ok(requests.chain(secrets).collect())
}

/// Takes the policy out of force, as an admin may by mistake, and waits until it is.
async fn remove_the_policy(case: &Case<'_>) -> Result<()> {
    let binding = ["delete", "validatingadmissionpolicybinding", POLICY];
    case.provider.plane.kubectl(&binding).await?;
    let mut forged = case.request("cowboys");
    forged["metadata"]["name"] = json!("forged");
    forged["spec"]["author"] = json!("somebody-else");
    let forged: BindableResourcesRequest = serde_json::from_value(forged)?;
    let team = Api::namespaced(case.client.clone(), case.name);
    eventually_ok("nothing to hold requests", SOON, async || {
        let made: BindableResourcesRequest = team.create(&dry_run(), &forged).await?;
        ensure!(made.spec == forged.spec, "{made:?}");
        Ok(())
    })
    .await
}

/// An admin has the policy pass over the team for a while. It answers all the same, where the server is.
async fn a_policy_with_a_gap_is_none(case: &Case<'_>) -> Result<()> {
    let plane = &case.provider.plane;
    let gap = json!({"spec": {"matchResources": {"namespaceSelector": {"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [case.name]},
    ]}}}});
    let binding = "validatingadmissionpolicybinding";
    plane
        .kubectl(&["patch", binding, POLICY, "--type=merge", "--patch", &gap.to_string()])
        .await?;
    let (name, request) = numbered(case, 0);
    case.apply(&request).await?;
    case.comes_to(&name, Phase::Pending, "PolicyMissing", &["matchResources", "delete"])
        .await?;
    // Taken back, it has looked at nothing that came before.
    let whole = json!({"spec": {"matchResources": null}}).to_string();
    plane
        .kubectl(&["patch", binding, POLICY, "--type=merge", "--patch", &whole])
        .await?;
    case.comes_to(&name, Phase::Pending, "MadeBeforePolicy", &[]).await?;
    case.kubectl(&["delete", "bindableresourcesrequest", &name], "").await?;
    Ok(())
}

#[test]
fn without_the_policy_nothing_is_done_for_a_resource() -> Result<()> {
    run(async {
        let provider = Provider::start_with("requests-policy", &PATIENT).await?;
        in_force(&provider).await?;
        let case = Case::settle(&provider, "unproved").await?;
        case.let_the_server_respond().await?;
        a_policy_with_a_gap_is_none(&case).await?;
        remove_the_policy(&case).await?;
        case.apply(&case.request("cowboys")).await?;
        let says = [POLICY, "deploy/server/requests-policy.yaml"];
        case.comes_to("cowboys", Phase::Pending, "PolicyMissing", &says).await?;
        holds_for("nothing is done", A_WHILE, async || {
            let secret = case.secrets().get_opt(&default_secret("cowboys")).await?;
            ensure!(secret.is_none() && case.exports().get_opt("cowboys").await?.is_none());
            Ok(())
        })
        .await?;

        // The mend that is named holds what comes after it. What came before was looked at by nobody.
        provider
            .plane
            .apply(&manifests::file("server/requests-policy.yaml")?)
            .await?;
        in_force(&provider).await?;
        case.comes_to("cowboys", Phase::Pending, "MadeBeforePolicy", &["delete", "again"])
            .await?;
        case.kubectl(&["delete", "bindableresourcesrequest", "cowboys"], "")
            .await?;
        case.apply(&case.request("cowboys")).await?;
        case.succeeds("cowboys").await?;
        let secret = case.secrets().get(&default_secret("cowboys")).await?;
        opens_the_contract(&case, &text(&secret, "kubeconfig")?, "cowboys").await?;

        // Nor is a response given back for what cannot be believed any more.
        remove_the_policy(&case).await?;
        // However short ago it was in force for another request.
        let mut forged = case.request("cowboys");
        forged["metadata"]["name"] = json!("forged");
        forged["spec"]["author"] = json!("somebody-else");
        case.apply(&forged).await?;
        case.comes_to("forged", Phase::Pending, "PolicyMissing", &says).await?;
        eventually_ok("a lost response to stay lost", SOON, async || {
            // The proof of a moment ago is good for a request that was seen before it.
            match case
                .secrets()
                .delete(&default_secret("cowboys"), &DeleteParams::default())
                .await
            {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                deleted => drop(deleted?),
            }
            let request = case.requests().get("cowboys").await?;
            ensure!(ready(&request)?.reason == "PolicyMissing", "{:?}", request.status);
            Ok(())
        })
        .await?;
        case.comes_to("cowboys", Phase::Succeeded, "PolicyMissing", &says)
            .await?;
        let secret = case.secrets().get_opt(&default_secret("cowboys")).await?;
        ensure!(secret.is_none(), "it was written all the same");
        Ok(())
    })
}
