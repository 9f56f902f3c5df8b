//! A Secret of another provider in the place of the binding's.

use anyhow::{Context as _, Result, ensure};
use bindery_api::v1alpha2 as api;
use bindery_e2e::{Provider, eventually, holds_for, lease, wildwest};
use bindery_sdk::Client;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    offer::Offer,
    world::{A_WHILE, Case, case, kubeconfig, wish},
};

/// Binds the same API of another provider for the same cluster; answers the kubeconfig.
async fn bind_elsewhere(case: &Case, offer: Offer, other: &Provider) -> Result<String> {
    offer.publish(other).await?;
    let token = other.principal(case.name, &[offer.name]).await?;
    let client = Client::builder(other.address())
        .ca_pem(other.plane.ca_pem())
        .token_file(token)
        .build()?;
    let wish = wish(offer.name, offer.name, &case.identity());
    kubeconfig(&client.bind_by_request(wish, wildwest::SOON, |_| ()).await?)
}

/// What the other provider holds of the consumer: nothing but the contract itself, and nothing written to it.
async fn untouched(case: &Case, offer: Offer, other: &Provider) -> Result<()> {
    let (client, contract) = (other.plane.client(), case.contract());
    let copies: Api<DynamicObject> = Api::all_with(client.clone(), &offer.resource());
    let copies = copies.list(&ListParams::default()).await?.items;
    ensure!(copies.is_empty(), "objects on the other provider: {copies:?}");
    let places: Api<api::APIServiceNamespace> = Api::namespaced(client.clone(), &contract);
    let places = places.list(&ListParams::default()).await?.items;
    ensure!(places.is_empty(), "namespaces asked of the other provider: {places:?}");
    let binding = Api::<api::ClusterBinding>::namespaced(client, &contract)
        .get("cluster")
        .await?;
    let beat = binding.status.and_then(|status| status.last_heartbeat_time);
    ensure!(beat.is_none(), "a heartbeat to the other provider");
    Ok(())
}

#[test]
fn a_secret_of_another_provider_stops_the_binding_and_writes_nothing_there() -> Result<()> {
    case("swapped", async |case| {
        let (offer, other) = tokio::try_join!(case.offer(), Provider::start_with("bad-other", &lease::PATIENT))?;
        let principal = case.principal("swapped", &["swapped"]).await?;
        case.bind(&principal, &[]).await?;
        let client = case.consumer().plane.client();
        wildwest::namespace(client.clone(), "swapped").await?;
        let ours = case.ours(offer, "swapped");
        let copies = case.copies(offer, "swapped");
        let has = async |color: &str| {
            wildwest::wait("the copy to follow", &copies, "one", |copy| {
                copy.data["spec"]["color"] == color
            })
            .await
        };
        ours.create(&PostParams::default(), &offer.widget("one", "red")).await?;
        has("red").await?;

        let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-bind");
        let secret = secrets.get("kubeconfig-swapped").await?;
        let own = secret
            .data
            .context("data")?
            .remove("kubeconfig")
            .context("a kubeconfig")?;
        let foreign = bind_elsewhere(case, offer, &other).await?;
        let put = async |content: &str| {
            let patch = Patch::Merge(json!({"stringData": {"kubeconfig": content}}));
            secrets
                .patch("kubeconfig-swapped", &PatchParams::default(), &patch)
                .await
        };
        put(&foreign).await?;

        let uid = async |provider: &Provider| -> Result<String> {
            let namespaces: Api<Namespace> = Api::all(provider.plane.client());
            namespaces.get(&case.contract()).await?.uid().context("a UID")
        };
        let (pinned, found) = (uid(case.provider()).await?, uid(&other).await?);
        let says = [
            pinned.as_str(),
            &found,
            "put the old Secret back",
            "kube-bind.io/accept-provider-change",
        ];
        case.refused_binding("swapped", "SecretValid", "ProviderChanged", &says)
            .await?;
        let status = Api::<api::APIServiceBinding>::all(client)
            .get("swapped")
            .await?
            .status
            .context("a status")?;
        ensure!(status.contract_uid.as_ref() == Some(&pinned), "{status:?}");

        let patch = Patch::Merge(json!({"spec": {"color": "blue"}}));
        ours.patch("one", &PatchParams::default(), &patch).await?;
        ours.create(&PostParams::default(), &offer.widget("two", "blue"))
            .await?;
        holds_for("nothing written to either provider", A_WHILE, async || {
            untouched(case, offer, &other).await?;
            ensure!(
                copies.get("one").await?.data["spec"]["color"] == "red",
                "written to the old provider"
            );
            ensure!(copies.get_opt("two").await?.is_none(), "written to the old provider");
            Ok(())
        })
        .await?;

        // With the old one back, all goes on where it stopped.
        put(&String::from_utf8(own.0)?).await?;
        has("blue").await?;
        case.ready_binding("swapped").await?;
        eventually("nothing to be amiss", wildwest::SOON, || async {
            let two = copies.get("two").await?;
            Ok((two.data["spec"]["color"] == "blue").then_some(()))
        })
        .await?;
        untouched(case, offer, &other).await
    })
}
