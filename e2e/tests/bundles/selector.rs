//! Only exports with certain labels, which they have from their templates.

use anyhow::{Result, ensure};
use bindery_api::{Severity, annotations};
use bindery_e2e::{bundle::tells, offer::Offer};
use serde_json::json;

use crate::world::case;

const GOLD: Offer = Offer { name: "sel-gold" };
const IRON: Offer = Offer { name: "sel-iron" };

pub(crate) async fn exports_are_selected_by_label_and_a_narrower_selector_deletes_nothing() -> Result<()> {
    case("selector", async |case| {
        let contract = case.contract(&case.world.p, &[GOLD, IRON]).await?;
        let mut template = GOLD.template();
        template["metadata"]["labels"] = json!({"tier": "gold"});
        case.world.p.plane.apply(&template.to_string()).await?;
        contract.export(IRON).await?;
        let bundle = case.bundle("");
        bundle.give(&contract.export(GOLD).await?.yaml()?).await?;
        bundle
            .apply(json!({"selector": {"matchLabels": {"tier": "gold"}}}))
            .await?;
        bundle.binds(&[GOLD.name]).await?;
        let gold = case.object(&contract, GOLD, "one").await?;

        let either =
            json!({"selector": {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["tin"]}]}});
        bundle.apply(either.clone()).await?;
        bundle.binds(&[GOLD.name, IRON.name]).await?;

        // Without objects a binding that is not wanted goes at once; with objects it stays, and goes on.
        bundle
            .apply(json!({"selector": {"matchLabels": {"tier": "silver"}}}))
            .await?;
        bundle.unbound(IRON.name).await?;
        let says = ["1 object", annotations::ALLOW_UNBIND];
        bundle
            .binding_is(GOLD.name, "Connected", |found| {
                found.reason == "ExportNotSelected"
                    && found.severity == Severity::Error
                    && tells(&found.message, &says).is_ok()
            })
            .await?;
        gold.works("still").await?;
        let status = bundle.status().await?;
        ensure!(status.discovered_services == Some(0), "{status:?}");

        bundle.apply(either).await?;
        bundle.binds(&[GOLD.name, IRON.name]).await?;
        // By the provider's doing, too.
        contract.label(IRON.name, "tier", json!("tin")).await?;
        bundle.unbound(IRON.name).await?;
        bundle.binds(&[GOLD.name]).await?;
        gold.works("gold").await
    })
    .await
}

pub(crate) async fn a_selector_that_cannot_be_understood_binds_and_unbinds_nothing() -> Result<()> {
    case("odd", async |case| {
        const ODD: Offer = Offer { name: "odd-api" };
        let (contract, bundle) = case.begin(ODD, json!({})).await?;
        let odd = json!({"selector": {"matchExpressions": [{"key": "tier", "operator": "Near", "values": ["gold"]}]}});
        bundle.apply(odd).await?;
        bundle
            .complains("Synced", Severity::Error, "InvalidSpec", &["selector"])
            .await?;
        ensure!(bundle.bindings().await?.len() == 1, "it unbinds");
        bundle.apply(json!({"pollingInterval": "1ms"})).await?;
        bundle
            .complains("Synced", Severity::Warning, "InvalidSpec", &["pollingInterval", "1s"])
            .await?;
        case.object(&contract, ODD, "one").await?;
        bundle.apply(json!({})).await?;
        bundle.binds(&[ODD.name]).await
    })
    .await
}
