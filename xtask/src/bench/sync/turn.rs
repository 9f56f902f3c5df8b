//! One phase by one contestant, and what it costs.

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
    /// Changes.
    pub(super) count: u32,
    /// From the first change to the moment when all was seen.
    pub(super) seconds: f64,
    /// From the first change to the API server's last answer to the driver.
    pub(super) load_seconds: f64,
    /// Of the time until a change was seen, in microseconds.
    pub(super) percentiles: Percentiles,
    /// Of the time until the API server answered the driver, which is part of it.
    pub(super) acks: Percentiles,
    /// How late the driver was; only at a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) late: Option<Percentiles>,
    pub(super) cpu_seconds: f64,
    /// When all was seen.
    pub(super) rss_mib: f64,
    /// The most within the phase.
    pub(super) peak_mib: f64,
    pub(super) requests: usize,
    /// To objects of the bound resource.
    pub(super) writes: usize,
    /// All that was written, by kind.
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
    /// Has whoever works do a phase.
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
