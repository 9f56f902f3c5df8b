//! What an idle bundle costs: nothing but a look at the provider now and then.

use std::time::Duration;

use anyhow::{Result, ensure};
use bindery_e2e::{Asked, eventually_ok, offer::Offer, wildwest::SOON};
use serde_json::json;
use tokio::time::sleep;

use crate::world::case;

const IDLE: Offer = Offer { name: "idle" };
/// Long enough for many probes, and short enough for at most one note of the time of the last.
const AT_REST: Duration = Duration::from_secs(8);
const KONNECTOR: &str = "system:serviceaccount:kube-bind:konnector";

pub(crate) async fn an_idle_bundle_writes_nothing_and_lists_nothing() -> Result<()> {
    case("idle", async |case| {
        let (contract, bundle) = case.begin(IDLE, json!({"pollingInterval": "1s"})).await?;
        let pair = case.object(&contract, IDLE, "one").await?;
        pair.works("still").await?;
        bundle.binds(&[IDLE.name]).await?;
        let (here, there) = (case.world.consumer.plane.audit()?, case.world.p.plane.audit()?);
        let ours = |asked: &Asked| {
            asked.by == KONNECTOR
                && asked.is_write()
                && asked.group == "kube-bind.io"
                && [&bundle.name, IDLE.name].contains(&asked.name.as_str())
        };
        // Writes that were still under way are not the idle bundle's.
        eventually_ok("the bundle to be idle", SOON, async || {
            let from = here.now()?;
            sleep(Duration::from_secs(1)).await;
            let mut writes = here.since(from)?;
            writes.retain(ours);
            ensure!(writes.is_empty(), "{writes:?}");
            Ok(())
        })
        .await?;
        let (from, from_there) = (here.now()?, there.now()?);
        sleep(AT_REST).await;

        let mut writes = here.since(from)?;
        writes.retain(ours);
        let is_probe = |asked: &Asked| asked.resource == "apiservicebindingbundles" && asked.subresource == "status";
        let probes = writes.iter().filter(|asked| is_probe(asked)).count();
        ensure!(
            probes <= 1 && probes == writes.len(),
            "an idle bundle wrote: {writes:?}"
        );
        let mut asked = there.since(from_there)?;
        asked.retain(|asked| asked.by == contract.binder());
        let beyond: Vec<_> = asked
            .iter()
            .filter(|asked| asked.verb != "get" || asked.resource != "namespaces")
            .filter(|asked| !asked.is_watch())
            .collect();
        ensure!(beyond.is_empty(), "an idle bundle asked the provider: {beyond:?}");
        ensure!(!asked.is_empty(), "the provider was not asked whether it lives");
        Ok(())
    })
    .await
}
