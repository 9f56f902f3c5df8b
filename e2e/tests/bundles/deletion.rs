//! A bundle is deleted: its bindings drain and finish, and nothing is left.

use anyhow::{Result, ensure};
use bindery_api::{annotations, names::KUBECONFIG_KEY};
use bindery_e2e::{eventually_ok, offer::Offer, remains, wildwest::SOON};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, PropagationPolicy},
};
use serde_json::json;

use crate::world::{Case, case};

const FIRST: Offer = Offer { name: "del-first" };
const SECOND: Offer = Offer { name: "del-second" };
const KEPT: Offer = Offer { name: "del-kept" };

pub(crate) async fn a_bundle_that_is_deleted_with_its_secret_leaves_nothing() -> Result<()> {
    case("deleted", async |case| {
        let contract = case.contract(&case.world.p, &[FIRST, SECOND]).await?;
        contract.export(FIRST).await?;
        let bundle = case.bundle("");
        let credential = contract.export(SECOND).await?;
        bundle.give(&credential.yaml()?).await?;
        bundle.apply(json!({})).await?;
        bundle.binds(&[FIRST.name, SECOND.name]).await?;
        let pairs = [
            case.object(&contract, FIRST, "one").await?,
            case.object(&contract, SECOND, "one").await?,
        ];
        // As a tool does that prunes: all at once, the Secret first.
        bundle.secrets.delete(&bundle.name, &DeleteParams::default()).await?;
        bundle.delete(&[FIRST.name, SECOND.name]).await?;
        for offer in [FIRST, SECOND] {
            remains::on_consumer(&case.world.consumer, offer.name, &offer.group()).await?;
        }
        for pair in pairs {
            ensure!(pair.copies.get_opt(&pair.name).await?.is_none(), "a copy is left");
        }
        no_credential(case, &contract.uid().await?).await?;
        // The exports were there before the bundle, and are the provider's.
        ensure!(contract.exports().list(&ListParams::default()).await?.items.len() == 2);

        bundle.give(&contract.export(FIRST).await?.yaml()?).await?;
        bundle.apply(json!({})).await?;
        bundle.binds(&[FIRST.name, SECOND.name]).await?;
        case.object(&contract, FIRST, "one").await?.works("again").await?;
        bundle.delete(&[FIRST.name, SECOND.name]).await?;
        contract.remove(FIRST.name).await?;
        contract.remove(SECOND.name).await?;
        remains::contract(&case.world.p, &contract.namespace).await?;
        let everywhere: Api<DynamicObject> = Api::all_with(case.world.p.plane.client(), &FIRST.resource());
        ensure!(
            everywhere.list(&ListParams::default()).await?.items.is_empty(),
            "objects are left"
        );
        Ok(())
    })
    .await
}

pub(crate) async fn a_bundle_that_says_nothing_of_copies_leaves_them_to_the_next() -> Result<()> {
    case("copies-kept", async |case| {
        let contract = case.contract(&case.world.p, &[KEPT]).await?;
        let bundle = case.bundle("");
        bundle.give(&contract.export(KEPT).await?.yaml()?).await?;
        let says_nothing = json!({"deletionPolicy": null});
        bundle.apply(says_nothing.clone()).await?;
        bundle.binds(&[KEPT.name]).await?;
        let pair = case.object(&contract, KEPT, "one").await?;
        let copy = pair.copy().await?;
        for propagation in [PropagationPolicy::Background, PropagationPolicy::Foreground] {
            let params = DeleteParams {
                propagation_policy: Some(propagation),
                ..DeleteParams::default()
            };
            bundle.bundles.delete(&bundle.name, &params).await?;
            bundle.unbound(KEPT.name).await?;
            remains::on_consumer(&case.world.consumer, KEPT.name, &KEPT.group()).await?;
            let kept = pair.copies.get(&pair.name).await?;
            ensure!(kept.uid() == copy, "it is another copy");
            ensure!(
                kept.annotations().contains_key(annotations::RELEASED),
                "{:?}",
                kept.annotations()
            );
            // The export stays for the next bundle, which links what says the same.
            bundle.apply(says_nothing.clone()).await?;
            bundle.binds(&[KEPT.name]).await?;
            let again = case.object(&contract, KEPT, "one").await?;
            ensure!(again.copy().await? == copy, "it is another copy");
        }
        bundle.apply(json!({})).await?;
        bundle.delete(&[KEPT.name]).await
    })
    .await
}

/// The konnector keeps no kubeconfig of a contract that nobody uses.
async fn no_credential(case: &Case, contract_uid: &str) -> Result<()> {
    let bundle = case.bundle("");
    eventually_ok("the kept credential to go", SOON, async || {
        let secrets = bundle.secrets.list(&ListParams::default()).await?.items;
        let left: Vec<_> = secrets
            .iter()
            .filter(|secret| {
                secret
                    .labels()
                    .get(bindery_api::labels::CONTRACT_UID)
                    .map(String::as_str)
                    == Some(contract_uid)
            })
            .filter(|secret| {
                secret
                    .data
                    .as_ref()
                    .is_some_and(|data| data.contains_key(KUBECONFIG_KEY))
            })
            .map(kube::ResourceExt::name_any)
            .collect();
        ensure!(left.is_empty(), "left: {left:?}");
        Ok(())
    })
    .await
}
