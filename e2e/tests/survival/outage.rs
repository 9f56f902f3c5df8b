//! The provider's API server goes away and comes back.

use std::time::Duration;

use anyhow::{Result, ensure};
use bindery_e2e::{eventually_ok, run, wildwest::SOON};
use tokio::time::{Instant, sleep_until};

use super::bound::{Bound, names};

const OUTAGE: Duration = Duration::from_secs(20);

#[test]
fn provider_down_for_twenty_seconds() -> Result<()> {
    run(async {
        let mut bound = Bound::start("outage").await?;
        bound.create(names("early", 0..20)).await?;
        bound.converged().await?;
        bound.status_flows("riding").await?;
        let konnector = bound.consumer.konnectors[0].id();

        let end = Instant::now() + OUTAGE;
        bound.provider.plane.stop_api_server()?;
        bound.create(names("late", 0..20)).await?;
        for name in names("early", 0..10) {
            bound.intend(&name, "hide").await?;
        }
        for name in names("early", 10..20) {
            bound.delete(&name).await?;
        }
        // Those that go wait for the provider: nobody can tell what became of their copies.
        let held = bound.cowboys.ours.get("early-010").await?;
        ensure!(held.metadata.deletion_timestamp.is_some(), "{held:?}");
        sleep_until(end).await;

        bound.provider.plane.start_api_server().await?;
        bound.provider.keep_server_up().await?;
        bound.converged().await?;
        bound.status_flows("caught").await?;
        let survivor = &mut bound.consumer.konnectors[0];
        ensure!(
            survivor.is_running() && survivor.id() == konnector,
            "the konnector ended"
        );
        bound.bound_once().await?;
        eventually_ok("templates to be listed", SOON, async || {
            bound.bind(&["templates"]).await.map(drop)
        })
        .await?;
        bound.bind(&["cowboys"]).await?;
        bound.unbind().await
    })
}
