//! Runs the controllers on the replica that holds the Lease.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use bindery_runtime::lease::Candidate;
use tokio_util::sync::CancellationToken;

use crate::{controllers, state::State};

/// Runs the controllers while this replica leads. Releases the Lease when told to stop; fails when leadership is lost, so that
/// the process ends before another replica leads.
pub async fn lead(state: State, candidate: Candidate, stop: CancellationToken) -> anyhow::Result<()> {
    let Some(mut leadership) = candidate.elected(&stop).await else {
        return Ok(());
    };
    let (network, metrics) = (state.network.clone(), Arc::clone(&state.metrics));
    metrics.leads(true);
    // After a pause of the process, tasks that it had begun may run before it learns that another replica leads.
    network.require_lease(leadership.renewals());
    let mut work = tokio::spawn(controllers::run(state, stop.clone()));
    tokio::select! {
        () = leadership.lost() => bail!("leadership was lost"),
        ended = &mut work => ended?.context("a controller failed")?,
    }
    if !stop.is_cancelled() {
        bail!("the controllers stopped unexpectedly");
    }
    // Calls that are under way go on, and need no Lease.
    network.require_no_lease();
    metrics.leads(false);
    leadership.release().await;
    Ok(())
}
