//! Exports that the provider, reached and asked, no longer has.

use anyhow::{Result, ensure};
use bindery_api::{Severity, annotations};
use bindery_e2e::{
    bundle::{Bundle, tells},
    eventually_ok, holds_for,
    offer::Offer,
    remains,
    wildwest::SOON,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    contract::Contract,
    pair::Pair,
    world::{A_WHILE, Case, case},
};

const KEPT: Offer = Offer { name: "rem-kept" };
const ENDED: Offer = Offer { name: "rem-ended" };

pub(crate) async fn what_has_objects_is_kept_until_they_are_gone_or_the_user_consents() -> Result<()> {
    case("removed", async |case| {
        let (contract, bundle) = case.begin(KEPT, json!({})).await?;
        let pairs = [
            case.object(&contract, KEPT, "one").await?,
            case.object(&contract, KEPT, "two").await?,
        ];
        contract.remove(KEPT.name).await?;
        kept(&bundle, 2, &pairs).await?;

        // Nobody can consent in advance of the past.
        consent(&bundle, Timestamp::now() - SignedDuration::from_mins(1)).await?;
        kept(&bundle, 2, &pairs).await?;
        bundle
            .annotate_binding(KEPT.name, annotations::ALLOW_UNBIND, Value::Null)
            .await?;

        // It comes back, and all goes on.
        contract.export(KEPT).await?;
        bundle.binds(&[KEPT.name]).await?;
        for pair in &pairs {
            pair.works("back").await?;
        }

        contract.remove(KEPT.name).await?;
        let [one, two] = &pairs;
        kept(&bundle, 2, &pairs).await?;
        one.delete().await?;
        kept(&bundle, 1, &pairs[1..]).await?;
        two.delete().await?;
        ended(case, &bundle).await?;

        // And again, with a consent that counts: the objects go along.
        contract.export(KEPT).await?;
        bundle.binds(&[KEPT.name]).await?;
        let pair = case.object(&contract, KEPT, "three").await?;
        contract.remove(KEPT.name).await?;
        kept(&bundle, 1, std::slice::from_ref(&pair)).await?;
        consent(&bundle, Timestamp::now() + SignedDuration::from_mins(5)).await?;
        pair.gone().await?;
        ended(case, &bundle).await
    })
    .await
}

pub(crate) async fn a_bundle_may_end_bindings_with_their_objects() -> Result<()> {
    case("unbind", async |case| {
        let (contract, bundle) = case.begin(ENDED, json!({"removedExports": "Unbind"})).await?;
        let pair = case.object(&contract, ENDED, "one").await?;
        contract.remove(ENDED.name).await?;
        pair.gone().await?;
        bundle.unbound(ENDED.name).await?;
        remains::on_consumer(&case.world.consumer, ENDED.name, &ENDED.group()).await?;
        bundle.binds(&[]).await?;
        // Bound again, it begins anew; what the provider kept of the old ones is its own.
        contract.export(ENDED).await?;
        bundle.binds(&[ENDED.name]).await?;
        case.object(&contract, ENDED, "two").await?.works("again").await
    })
    .await
}

async fn consent(bundle: &Bundle, until: Timestamp) -> Result<()> {
    bundle
        .annotate_binding(KEPT.name, annotations::ALLOW_UNBIND, json!(until.to_string()))
        .await
}

/// The binding says what is left and what mends it, and nothing is deleted.
async fn kept(bundle: &Bundle, left: usize, pairs: &[Pair]) -> Result<()> {
    let count = format!("{left} object");
    let says = [
        count.as_str(),
        "kubectl annotate apiservicebinding rem-kept",
        annotations::ALLOW_UNBIND,
    ];
    bundle
        .binding_is(KEPT.name, "Connected", |found| {
            found.reason == "ExportRemoved"
                && !found.is_true()
                && found.severity == Severity::Error
                && tells(&found.message, &says).is_ok()
        })
        .await?;
    holds_for("nothing to be deleted", A_WHILE, async || {
        for pair in pairs {
            pair.is_here().await?;
        }
        let binding = bundle.all_bindings.get(KEPT.name).await?;
        ensure!(binding.metadata.deletion_timestamp.is_none(), "the binding goes");
        Ok(())
    })
    .await
}

async fn ended(case: &Case, bundle: &Bundle) -> Result<()> {
    bundle.unbound(KEPT.name).await?;
    remains::on_consumer(&case.world.consumer, KEPT.name, &KEPT.group()).await?;
    bundle.binds(&[]).await
}

/// What is bound shows that it comes again; used by suites that lose exports otherwise.
pub(crate) async fn shows_export_removed(bundle: &Bundle, binding: &str) -> Result<()> {
    bundle
        .binding_is(binding, "Connected", |found| {
            found.reason == "ExportRemoved" && !found.is_true()
        })
        .await
        .map(drop)
}

/// Waits until the contract has no export of that name.
pub(crate) async fn without_export(contract: &Contract, name: &str) -> Result<()> {
    eventually_ok(format!("export {name} to be gone"), SOON, async || {
        ensure!(contract.exports().get_opt(name).await?.is_none());
        Ok(())
    })
    .await
}
