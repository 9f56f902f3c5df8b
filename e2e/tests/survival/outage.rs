//! An API server goes away and comes back, on either side.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    bound::{Bound, count_copies, names},
    eventually_ok, run,
    wildwest::SOON,
};
use tokio::time::{Instant, sleep_until};

const OUTAGE: Duration = Duration::from_secs(30);

/// As the programs lead without flags: the server loses its Lease over the outage.
const AS_SHIPPED: [&str; 6] = [
    "--lease-duration",
    "15",
    "--lease-renew-deadline",
    "10",
    "--lease-retry-period",
    "2",
];

#[test]
fn provider_down_and_then_silent_for_thirty_seconds() -> Result<()> {
    run(async {
        let mut bound = Bound::start("outage", &AS_SHIPPED).await?;
        begin(&mut bound).await?;
        let end = Instant::now() + OUTAGE;
        bound.provider.plane.stop_api_server()?;
        change_alone(&mut bound).await?;
        sleep_until(end).await;
        bound.provider.plane.start_api_server().await?;
        recovers(&mut bound).await.context("after it was down")?;

        for name in bound.expected.keys().cloned().collect::<Vec<_>>() {
            bound.delete(&name).await?;
        }
        bound.converged().await?;
        begin(&mut bound).await?;
        let end = Instant::now() + OUTAGE;
        bound.provider.plane.pause_api_server()?;
        change_alone(&mut bound).await?;
        sleep_until(end).await;
        bound.provider.plane.resume_api_server()?;
        recovers(&mut bound).await.context("after it was silent")?;
        bound.unbind().await
    })
}

#[test]
fn consumer_down_for_thirty_seconds() -> Result<()> {
    run(async {
        let mut bound = Bound::start("lost", &AS_SHIPPED).await?;
        begin(&mut bound).await?;
        let end = Instant::now() + OUTAGE;
        bound.consumer.plane.stop_api_server()?;
        // What the provider's operator does meanwhile.
        for name in bound.expected.keys() {
            bound.cowboys.report(name, "caught meanwhile").await?;
        }
        let before = count_copies(&bound.cowboys).await?;
        sleep_until(end).await;
        ensure!(count_copies(&bound.cowboys).await? == before, "copies were deleted");
        bound.consumer.plane.start_api_server().await?;
        // It cannot renew its Lease and ends, as a kubelet expects of it.
        bound.consumer.keep_konnector_up().await?;
        for name in bound.expected.keys() {
            bound.cowboys.reported(name, "caught meanwhile").await?;
        }
        change(&mut bound).await?;
        bound.converged().await?;
        bound.unbind().await
    })
}

async fn begin(bound: &mut Bound) -> Result<()> {
    bound.create(names("early", 0..20)).await?;
    bound.converged().await?;
    bound.status_flows("riding").await
}

/// What happens on the consumer.
async fn change(bound: &mut Bound) -> Result<()> {
    bound.create(names("late", 0..20)).await?;
    for name in names("early", 0..10) {
        bound.intend(&name, "hide").await?;
    }
    for name in names("early", 10..20) {
        bound.delete(&name).await?;
    }
    Ok(())
}

/// The same while the provider is away.
async fn change_alone(bound: &mut Bound) -> Result<()> {
    change(bound).await?;
    // Those that go wait for the provider: nobody can tell what became of their copies.
    let held = bound.cowboys.ours.get("early-010").await?;
    ensure!(held.metadata.deletion_timestamp.is_some(), "{held:?}");
    Ok(())
}

async fn recovers(bound: &mut Bound) -> Result<()> {
    bound.provider.keep_server_up().await?;
    bound.converged().await?;
    bound.status_flows("caught").await?;
    // The one that was started at first: starting another is for the test alone.
    ensure!(bound.consumer.konnectors[0].is_running(), "the konnector ended");
    bound.bound_once().await?;
    eventually_ok("templates to be listed", SOON, async || {
        bound.bind(&["templates"]).await.map(drop)
    })
    .await?;
    bound.bind(&["cowboys"]).await?;
    Ok(())
}
