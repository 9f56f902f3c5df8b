//! A provider whose API server is not one: it lists without end, or sends names that no API server admits.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context as _, Result, ensure};
use bindery_api::Severity;
use bindery_e2e::{Lie, eventually_ok, holds_for, offer::Offer, wildwest::SOON};
use serde_json::json;

use crate::{
    lists::{Bench, resumes},
    world::{A_WHILE, Case, OBJECTS_MAX, case},
};

/// What the konnector may take more while a provider lists without end, in KiB.
const MEMORY_MAX: u64 = 200 << 10;

/// The resident memory of the konnector, in KiB.
fn memory(case: &Case) -> Result<u64> {
    let konnector = case.world.consumer.konnectors.first().context("no konnector")?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", konnector.id()))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.context("no VmRSS")?.trim_end_matches("kB");
    Ok(resident.trim().parse()?)
}

pub(crate) async fn a_list_without_end() -> Result<()> {
    case("endless", async |case| {
        let bench = Bench::start(case, ["hos-endless", "hos-endless-bare"]).await?;
        let offer = Offer::new("hos-beside");
        let contract = case.contract(&case.world.q, &[offer]).await?;
        let bundle = case.bundle("-beside");
        bundle.give(&contract.export(offer).await?.yaml()?).await?;
        bundle.apply(json!({})).await?;
        bundle.binds(&[offer.name]).await?;
        let beside = case.object(&contract, offer, "two").await?;

        let before = memory(case)?;
        bench.way.liar.lie(|method, uri| {
            let is_about = method == "GET" && uri.path().ends_with("/widgets");
            is_about.then(|| if resumes(uri) { Lie::Status(410) } else { Lie::Endless })
        });
        bench.way.line.sever();
        let says = [
            "--provider-max-objects",
            OBJECTS_MAX,
            "nothing is deleted",
            "ask the provider's admin",
        ];
        let (kind, reason) = ("ProviderDataAccepted", "ProviderLimitExceeded");
        bench.bundle.complains(kind, Severity::Error, reason, &says).await?;
        beside.works("meanwhile").await?;
        holds_for("the objects to stay, and the memory too", A_WHILE, async || {
            bench.pair.is_here().await?;
            let now = memory(case)?;
            ensure!(now < before + MEMORY_MAX, "{now} KiB, and {before} KiB before");
            Ok(())
        })
        .await?;
        let told = bundle.condition(kind).await;
        ensure!(told.is_err(), "the other provider is told of: {told:?}");

        bench.way.repent();
        eventually_ok("the limit to be kept again", SOON, async || {
            let told = bench.bundle.condition(kind).await;
            ensure!(told.is_err(), "{told:?}");
            Ok(())
        })
        .await?;
        bench.pair.works("afterwards").await
    })
    .await
}

pub(crate) async fn names_of_other_paths() -> Result<()> {
    case("elsewhere", async |case| {
        let bench = Bench::start(case, ["hos-elsewhere", "hos-elsewhere-bare"]).await?;
        let is_reached = Arc::new(AtomicBool::new(false));
        let reached = Arc::clone(&is_reached);
        bench.way.liar.lie(move |method, uri| {
            if uri.to_string().contains("otherresources") {
                reached.store(true, Ordering::Relaxed);
            }
            let path = uri.path();
            let is_about = path.ends_with("/widgets") || path.ends_with("/apiservicenamespaces");
            if method != "GET" || !is_about {
                None
            } else if resumes(uri) && uri.to_string().contains("resourceVersion=") {
                // So that it is listed anew, once more each second.
                Some(Lie::Status(410))
            } else {
                Some(Lie::Renamed("team1/otherresources/x?y="))
            }
        });
        bench.way.line.sever();
        let says = [
            r#""team1/otherresources/x?y=""#,
            "others are synced",
            "ask the provider's admin",
        ];
        let (kind, reason) = ("ProviderDataAccepted", "InvalidNames");
        bench.bundle.complains(kind, Severity::Warning, reason, &says).await?;
        bench.pair.paint("meanwhile").await?;
        bench.pair.says("meanwhile").await?;
        bench.pair.is_here().await?;
        ensure!(!is_reached.load(Ordering::Relaxed), "a name became a part of a URL");
        bench.way.repent();
        bench.pair.works("afterwards").await
    })
    .await
}
