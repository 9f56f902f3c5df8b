//! The operator has not listed an API that a bundle binds: what lacks is said, and no more is done.

use anyhow::{Result, ensure};
use bindery_e2e::{bundle::tells, offer::Offer};
use serde_json::json;

use crate::{contract::Contract, world::case};

const LISTED: Offer = Offer { name: "rig-listed" };
const UNLISTED: Offer = Offer { name: "rig-unlisted" };

pub(crate) async fn rights_that_lack_are_printed() -> Result<()> {
    case("rights", async |case| {
        UNLISTED.publish(&case.world.p).await?;
        LISTED.publish(&case.world.p).await?;
        case.world.grant(case.name, &[LISTED]).await?;
        let contract = Contract::new(&case.world.p, case.name, &[LISTED.name, UNLISTED.name]).await?;
        contract.export(LISTED).await?;
        let bundle = case.bundle("");
        bundle.give(&contract.export(UNLISTED).await?.yaml()?).await?;
        bundle.apply(json!({})).await?;
        let says = [
            "kube-bind-konnector-bundles",
            "rig-unlisted.example.dev",
            "widgets/status",
        ];
        bundle
            .binding_is(UNLISTED.name, "InformersSynced", |found| {
                found.reason == "InformerSyncTimeout" && tells(&found.message, &says).is_ok()
            })
            .await?;
        // The other one is served.
        case.object(&contract, LISTED, "one").await?.works("green").await?;
        bundle
            .is("Synced", |synced| {
                tells(&synced.message, &["1 binding", "not Ready"]).is_ok()
            })
            .await?;
        let status = bundle.status().await?;
        ensure!(status.discovered_services == Some(2), "{status:?}");

        case.world.grant("rights-and-more", &[UNLISTED]).await?;
        bundle.binds(&[LISTED.name, UNLISTED.name]).await?;
        case.object(&contract, UNLISTED, "one").await?.works("green").await
    })
    .await
}
