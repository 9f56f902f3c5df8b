//! Waits until a control plane has done what the step before left it to do.

use std::time::Duration;

use anyhow::Result;
use bindery_e2e::ControlPlane;
use tokio::time::{Instant, sleep};

use super::proc;

/// How long the processor time of a control plane is summed up for.
const SPAN: Duration = Duration::from_millis(500);

/// Clock ticks in a span (of 50, as Linux counts) that an idle control plane may take.
const IDLE: u64 = 4;

/// After this the next step begins all the same.
const LIMIT: Duration = Duration::from_secs(30);

/// Waits until garbage collector and API server have next to nothing to do. Without this a step pays for the one before.
pub(super) async fn quiet(plane: &ControlPlane) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    let mut before = ticks(plane);
    while Instant::now() < deadline {
        sleep(SPAN).await;
        let now = ticks(plane);
        if now.saturating_sub(before) <= IDLE {
            return Ok(());
        }
        before = now;
    }
    eprintln!("the control plane is not quiet: the next step shares the machine with it");
    Ok(())
}

/// Processor time of all its programs, in clock ticks.
fn ticks(plane: &ControlPlane) -> u64 {
    plane.pids().into_iter().filter_map(|pid| proc::ticks(pid).ok()).sum()
}
