//! Watches that cannot go on: what happened in between is history that the API server has forgotten (410).

use anyhow::{Result, ensure};
use bindery_e2e::{
    Consumer, ControlPlane, Provider, Proxy,
    bound::{Bound, names},
    eventually_ok,
    lease::PATIENT,
    run,
    wildwest::SOON,
};
use kube::api::DeleteParams;

const EXPIRED: &str = "watch expired; listing anew";

#[test]
fn what_happened_while_a_watch_expired_is_seen() -> Result<()> {
    run(async {
        let (provider, consumer) = tokio::try_join!(ControlPlane::start("expiry-p"), ControlPlane::start("expiry-c"))?;
        let to_provider = provider.proxy().await?;
        let to_consumer = consumer.proxy().await?;
        let seen_from_outside = url(&to_provider);
        let mut flags = PATIENT.to_vec();
        flags.extend(["--external-address", &seen_from_outside]);
        let provider = Provider::start_on(provider, &flags).await?;
        let mut consumer = Consumer::start_on(consumer, &PATIENT).await?;
        consumer.reach_through(&url(&to_consumer))?;
        consumer.konnectors[0].kill9()?;
        bindery_e2e::bound::free_lease(consumer.plane.client(), "kube-bind").await?;
        consumer.start_konnector().await?;
        let mut bound = Bound::between(provider, consumer).await?;
        bound.bind(&["cowboys"]).await?;
        bound.create(names("early", 0..20)).await?;
        bound.converged().await?;

        let before = expiries(&bound);
        to_provider.block();
        for name in names("early", 0..5) {
            bound.cowboys.copies.delete(&name, &DeleteParams::default()).await?;
        }
        for name in names("early", 5..20) {
            bound.cowboys.report(&name, "caught unseen").await?;
        }
        forget(&bound.provider.plane).await?;
        to_provider.unblock();
        bound.converged().await?;
        for name in names("early", 5..20) {
            bound.cowboys.reported(&name, "caught unseen").await?;
        }
        has_expired(&bound, before).await?;

        let before = expiries(&bound);
        to_consumer.block();
        for name in names("early", 0..5) {
            bound.delete(&name).await?;
        }
        bound.create(names("late", 0..5)).await?;
        for name in names("early", 5..10) {
            bound.intend(&name, "hide").await?;
        }
        forget(&bound.consumer.plane).await?;
        to_consumer.unblock();
        bound.converged().await?;
        has_expired(&bound, before).await?;
        bound.status_flows("caught").await?;
        bound.unbind().await
    })
}

fn url(proxy: &Proxy) -> String {
    format!("https://{}", proxy.address())
}

/// Has a cluster forget all that was, in memory and on disk.
async fn forget(plane: &ControlPlane) -> Result<()> {
    plane.stop_api_server()?;
    plane.compact().await?;
    plane.start_api_server().await
}

fn expiries(bound: &Bound) -> usize {
    let logs = bound.consumer.konnectors.iter().map(bindery_e2e::Process::log);
    logs.map(|log| log.matches(EXPIRED).count()).sum()
}

async fn has_expired(bound: &Bound, before: usize) -> Result<()> {
    eventually_ok("the konnector to have met an expired watch", SOON, async || {
        ensure!(expiries(bound) > before, "none has expired");
        Ok(())
    })
    .await
}
