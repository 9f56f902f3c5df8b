//! A Secret of the other provider in the place of the bundle's.

use anyhow::{Result, ensure};
use bindery_api::{Severity, annotations, v1alpha2::ClusterBinding};
use bindery_e2e::{eventually_ok, holds_for, offer::Offer, wildwest::SOON};
use jiff::{SignedDuration, Timestamp};
use kube::{
    Api,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    contract::Contract,
    world::{A_WHILE, Case, case},
};

const BOTH: Offer = Offer { name: "swapped-api" };
const STOLEN: Offer = Offer { name: "stolen-api" };

pub(crate) async fn a_secret_of_another_provider_is_refused_and_changes_nothing() -> Result<()> {
    case("swapped", async |case| {
        let (contract, bundle) = case.begin(BOTH, json!({})).await?;
        let pair = case.object(&contract, BOTH, "one").await?;
        let own = contract.export(BOTH).await?;
        let other = case.contract(&case.world.q, &[BOTH]).await?;
        let foreign = other.export(BOTH).await?;
        bundle.binds(&[BOTH.name]).await?;
        let (before, pin) = (bundle.bound().await?, contract.uid().await?);

        bundle.give(&foreign.yaml()?).await?;
        let found = other.uid().await?;
        let says = ["leads to contract", annotations::ACCEPT_PROVIDER_CHANGE, &pin, &found];
        bundle
            .complains("SecretValid", Severity::Error, "ProviderChanged", &says)
            .await?;
        bundle
            .is("Synced", |synced| synced.reason == "ProviderClientError")
            .await?;
        pair.paint("unheard").await?;
        holds_for("nothing to change", A_WHILE, async || {
            pair.is_here().await?;
            ensure!(bundle.bound().await? == before, "bindings changed");
            ensure!(
                bundle.status().await?.contract_uid.as_ref() == Some(&pin),
                "it is pinned to another"
            );
            untouched(case, &other).await
        })
        .await?;

        bundle.give(&own.yaml()?).await?;
        bundle.binds(&[BOTH.name]).await?;
        pair.works("heard").await?;
        untouched(case, &other).await?;

        // And with the user's consent it is another provider's.
        bundle.give(&foreign.yaml()?).await?;
        bundle
            .complains("SecretValid", Severity::Error, "ProviderChanged", &[])
            .await?;
        let until = Timestamp::now() + SignedDuration::from_mins(5);
        bundle
            .annotate(annotations::ACCEPT_PROVIDER_CHANGE, json!(until.to_string()))
            .await?;
        let copies = other.copies(BOTH, case.name);
        eventually_ok("a copy on the other provider", SOON, async || {
            copies.get("one").await?;
            Ok(())
        })
        .await?;
        bundle.binds(&[BOTH.name]).await?;
        ensure!(
            bundle.status().await?.contract_uid == Some(found),
            "it is pinned to the old one"
        );
        pair.is_here().await
    })
    .await
}

pub(crate) async fn a_contract_of_another_cluster_is_left_alone() -> Result<()> {
    case("stolen", async |case| {
        let contract = case.contract(&case.world.p, &[STOLEN]).await?;
        let credential = contract.export(STOLEN).await?;
        let records: Api<ClusterBinding> = Api::namespaced(case.world.p.plane.client(), &contract.namespace);
        let record = async |uid: Value| {
            let patch = Patch::Merge(json!({"status": {"consumerClusterUID": uid}}));
            records.patch_status("cluster", &PatchParams::default(), &patch).await
        };
        record(json!("some-other-cluster")).await?;
        let bundle = case.bundle("");
        bundle.give(&credential.yaml()?).await?;
        bundle.apply(json!({})).await?;
        let says = ["some-other-cluster"];
        bundle
            .complains("Synced", Severity::Error, "ConsumerClusterMismatch", &says)
            .await?;
        holds_for("nothing to be bound", A_WHILE, async || {
            ensure!(bundle.bindings().await?.is_empty(), "it is bound");
            Ok(())
        })
        .await?;
        record(Value::Null).await?;
        bundle.binds(&[STOLEN.name]).await?;
        let pair = case.object(&contract, STOLEN, "one").await?;
        // Taken away under its hands, it keeps what it has.
        record(json!("some-other-cluster")).await?;
        bundle
            .complains("Synced", Severity::Error, "ConsumerClusterMismatch", &says)
            .await?;
        contract.remove(STOLEN.name).await?;
        holds_for("nothing to be deleted", A_WHILE, async || {
            pair.is_here().await?;
            ensure!(bundle.bindings().await?.len() == 1, "it is unbound");
            Ok(())
        })
        .await
    })
    .await
}

/// The other provider holds nothing of the consumer, and has not heard of it.
async fn untouched(case: &Case, other: &Contract) -> Result<()> {
    let client = case.world.q.plane.client();
    let copies: Api<DynamicObject> = Api::all_with(client.clone(), &BOTH.resource());
    let copies = copies.list(&ListParams::default()).await?.items;
    ensure!(copies.is_empty(), "objects on the other provider: {copies:?}");
    let binding = Api::<ClusterBinding>::namespaced(client, &other.namespace)
        .get("cluster")
        .await?;
    let beat = binding.status.and_then(|status| status.last_heartbeat_time);
    ensure!(beat.is_none(), "a heartbeat to the other provider");
    Ok(())
}
