//! Measures one contestant in one phase.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::{
    order::{Order, Percentiles},
    stage::Stage,
};
use crate::bench::proc;

/// What was measured of a phase by one contestant.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sample {
    /// Number of changes.
    pub(super) count: u32,
    /// From the first change to the moment when the driver saw the results of all.
    pub(super) seconds: f64,
    /// From the first change to the API server's last answer to the driver.
    pub(super) load_seconds: f64,
    /// Time from a change to the moment when the driver saw its result, in microseconds.
    pub(super) percentiles: Percentiles,
    /// The part of that time until the API server answered the driver's change.
    pub(super) acks: Percentiles,
    /// How late the driver sent changes, if the order has a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) late: Option<Percentiles>,
    pub(super) cpu_seconds: f64,
    /// Resident memory of the contestant when the results of all changes were seen.
    pub(super) rss_mib: f64,
    /// Peak of its resident memory in the phase.
    pub(super) peak_mib: f64,
    pub(super) requests: usize,
    /// Writes to objects of the bound resource, on both clusters.
    pub(super) writes: usize,
    /// All writes, by kind.
    pub(super) by: BTreeMap<String, usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<u64>,
    /// Answers 409 and 429 of both API servers about the bound resource.
    pub(super) conflicts: f64,
    pub(super) throttled: f64,
    /// When each change was made, in milliseconds since the phase began, and after how many microseconds it was seen.
    pub(super) latencies: Vec<(f64, u64)>,
}

impl Stage {
    /// Runs a phase with the contestant that is working now.
    pub(super) async fn phase(&mut self, order: Order) -> Result<Sample> {
        let pid = self.pid()?;
        let refused_before = self.refused().await?;
        let bytes_before = self.bytes().await?;
        self.quiet().await?;
        proc::forget_peak(pid)?;
        let moment = self.moment()?;
        let cpu_before = proc::cpu_seconds(pid)?;
        let answer = self.give(order).await?;
        let memory = proc::memory(pid)?;
        // What it does afterwards counts too.
        self.quiet().await?;
        let cpu_seconds = proc::cpu_seconds(pid)? - cpu_before;
        let asks = self.asked(&moment)?;
        let bytes = self.bytes().await?;
        let refused = self.refused().await?;
        Ok(Sample {
            count: answer.count,
            seconds: answer.seconds,
            load_seconds: answer.load_seconds,
            percentiles: answer.percentiles.unwrap_or_default(),
            acks: answer.ack_percentiles.unwrap_or_default(),
            late: answer.late_us,
            cpu_seconds,
            rss_mib: memory.rss_mib,
            peak_mib: memory.peak_mib,
            requests: asks.requests,
            writes: asks.writes,
            by: asks.by,
            bytes: bytes
                .zip(bytes_before)
                .map(|(after, before)| after.saturating_sub(before)),
            conflicts: refused.conflicts - refused_before.conflicts,
            throttled: refused.throttled - refused_before.throttled,
            latencies: answer.latencies_us,
        })
    }
}
