//! A binding that somebody made by hand has the name of a discovered export.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{Severity, v1alpha2::APIServiceBinding};
use bindery_e2e::{bundle::Bundle, eventually_ok, holds_for, offer::Offer, wildwest::SOON};
use kube::{
    Resource as _, ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::{
    removed::without_export,
    world::{A_WHILE, case},
};

const HAND: Offer = Offer { name: "hand-made" };
const MORE: Offer = Offer { name: "hand-more" };
const ALIEN: Offer = Offer { name: "hand-alien" };

/// A binding to a Secret of the konnector's namespace, as users make them.
async fn by_hand(bundle: &Bundle, name: &str, secret: &str) -> Result<()> {
    let spec = json!({"kubeconfigSecretRef": {"name": secret, "namespace": "kube-bind", "key": "kubeconfig"}});
    let binding = APIServiceBinding::new(name, serde_json::from_value(spec)?);
    bundle.all_bindings.create(&PostParams::default(), &binding).await?;
    Ok(())
}

pub(crate) async fn a_binding_made_by_hand_is_left_alone_and_counted() -> Result<()> {
    case("handmade", async |case| {
        let contract = case.contract(&case.world.p, &[HAND, MORE]).await?;
        contract.export(MORE).await?;
        let credential = contract.export(HAND).await?.yaml()?;
        // With a Secret of its own.
        let (bundle, own) = (case.bundle(""), case.bundle("-own"));
        own.give(&credential).await?;
        by_hand(&bundle, HAND.name, &own.name).await?;
        bundle
            .binding_is(HAND.name, "Ready", bindery_api::Condition::is_true)
            .await?;
        let pair = case.object(&contract, HAND, "one").await?;
        let before = bundle.all_bindings.get(HAND.name).await?;
        bundle.give(&credential).await?;
        bundle.apply(json!({})).await?;
        eventually_ok("both to be counted", SOON, async || {
            let status = bundle.status().await?;
            ensure!(
                (status.discovered_services, status.bound_services) == (Some(2), Some(2)),
                "{status:?}"
            );
            ensure!(bundle.condition("Ready").await?.is_true());
            Ok(())
        })
        .await?;
        let bound = bundle.bindings().await?;
        ensure!(bound.len() == 1 && bound[0].name_any() == MORE.name, "{bound:?}");
        let after = bundle.all_bindings.get(HAND.name).await?;
        ensure!(
            (after.uid(), &after.spec, after.owner_references())
                == (before.uid(), &before.spec, before.owner_references())
                && after.annotations() == before.annotations(),
            "it was written: {after:?}"
        );
        pair.works("green").await?;

        // Its end takes its export along, as whoever made both wants it; the next one is the bundle's.
        bundle.all_bindings.delete(HAND.name, &DeleteParams::default()).await?;
        bundle.unbound(HAND.name).await?;
        without_export(&contract, HAND.name).await?;
        bundle.binds(&[MORE.name]).await?;
        contract.export(HAND).await?;
        bundle.binds(&[HAND.name, MORE.name]).await
    })
    .await
}

pub(crate) async fn a_binding_of_another_contract_in_the_way_is_a_conflict() -> Result<()> {
    case("alien", async |case| {
        let (here, there) = tokio::try_join!(
            case.contract(&case.world.p, &[ALIEN]),
            case.contract(&case.world.q, &[ALIEN])
        )?;
        let (bundle, own) = (case.bundle(""), case.bundle("-own"));
        own.give(&there.export(ALIEN).await?.yaml()?).await?;
        by_hand(&bundle, ALIEN.name, &own.name).await?;
        bundle
            .binding_is(ALIEN.name, "Ready", bindery_api::Condition::is_true)
            .await?;
        let pair = case.object(&there, ALIEN, "one").await?;
        bundle.give(&here.export(ALIEN).await?.yaml()?).await?;
        bundle.apply(json!({})).await?;
        let says = ["export hand-alien", "APIServiceBinding hand-alien", "bindingNamePrefix"];
        bundle
            .complains("Synced", Severity::Warning, "SyncErrors", &says)
            .await?;
        let status = bundle.status().await?;
        ensure!(status.bound_services == Some(0), "{status:?}");
        // Nor does the bundle's end take it along.
        bundle.bundles.delete(&bundle.name, &DeleteParams::default()).await?;
        holds_for("it to stay", A_WHILE, async || {
            let binding = bundle.all_bindings.get(ALIEN.name).await?;
            ensure!(binding.meta().deletion_timestamp.is_none(), "it goes");
            Ok(())
        })
        .await?;
        pair.works("green").await?;
        let binding = bundle.all_bindings.get(ALIEN.name).await?;
        let status = binding.status.context("a status")?;
        ensure!(status.contract_uid == Some(there.uid().await?), "{status:?}");
        Ok(())
    })
    .await
}
