//! What the driver is told to do, and what it answers.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::Args;

/// Concurrent requests of the driver, unless the order says otherwise.
pub(super) const CONCURRENCY: u32 = 32;

/// Seconds that the driver waits for missing results, besides the time that [`SLOWEST`] gives.
const PATIENCE_S: u64 = 300;

/// Objects per second that even a slow konnector and API server reach: the time limit of a phase follows from it.
const SLOWEST: u32 = 20;

/// One kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Phase {
    /// Creates objects on the consumer. Seen when their copies exist and they have the finalizer.
    Create,
    /// Changes their spec on the consumer. Seen in the copies.
    Update,
    /// Changes the status of their copies. Seen on the consumer.
    Status,
    /// Deletes them on the consumer. Seen when they are gone on both clusters.
    Delete,
    /// Creates objects as `Create` does, without measuring each.
    Fill,
    /// Deletes all objects that exist, without measuring each.
    Clear,
}

/// A command for the driver. All changes of a phase are made at once, or at a rate.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Order {
    pub(super) phase: Phase,
    pub(super) label: String,
    /// Number of the bound resource, among those that the driver was started with.
    pub(super) resource: usize,
    /// Numbers of the consumers whose objects change; `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) consumers: Option<Vec<usize>>,
    pub(super) prefix: String,
    pub(super) from: u32,
    pub(super) count: u32,
    pub(super) namespaces: u32,
    /// Size of an object in bytes.
    pub(super) size: usize,
    /// Changes per second, at random moments; `None` for all at once.
    pub(super) rate: Option<f64>,
    /// Number of changes; `None` for one of each object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) changes: Option<u32>,
    /// Concurrent requests of the driver, if there is no `rate`.
    pub(super) concurrency: u32,
    /// Seed of the random moments, the same for all contestants.
    pub(super) seed: u64,
    /// Number that the changed field gets, so that the driver can tell the change from earlier ones.
    pub(super) seq: u64,
    /// Sockets, one per consumer, at which the driver tells each floor what it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) acks: Option<Vec<PathBuf>>,
    /// Seconds that the driver waits for results after the API server's last answer.
    pub(super) timeout_s: u64,
}

/// The driver's answer to an order.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Answer {
    #[serde(default)]
    pub(super) label: String,
    #[serde(default)]
    ok: bool,
    #[serde(default)]
    pub(super) count: u32,
    /// From the first request to the last result that was seen.
    #[serde(default)]
    pub(super) seconds: f64,
    /// From the first request to the last answer of the API server.
    #[serde(default)]
    pub(super) load_seconds: f64,
    #[serde(default)]
    errors: u32,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    missing: u32,
    #[serde(default)]
    missing_names: Vec<String>,
    #[serde(default)]
    pub(super) latencies_us: Vec<(f64, u64)>,
    #[serde(default)]
    pub(super) percentiles: Option<Percentiles>,
    /// Time that the API server took to answer the driver.
    #[serde(default)]
    pub(super) ack_percentiles: Option<Percentiles>,
    /// How late the driver sent its requests, if the order has a rate.
    #[serde(default)]
    pub(super) late_us: Option<Percentiles>,
    #[serde(default)]
    pub(super) seconds_by_consumer: Vec<f64>,
}

/// Percentiles of latencies, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Percentiles {
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) max: u64,
}

// === impl Phase ===

impl Phase {
    /// The life of an object.
    pub(super) const ALL: [Self; 4] = [Self::Create, Self::Update, Self::Status, Self::Delete];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Status => "status",
            Self::Delete => "delete",
            Self::Fill => "fill",
            Self::Clear => "clear",
        }
    }

    /// The kind of change that whoever follows it sees.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Fill => Self::Create.name(),
            Self::Clear => Self::Delete.name(),
            other => other.name(),
        }
    }

    /// Grows with each phase of a life.
    fn seq(self) -> u64 {
        match self {
            Self::Create | Self::Fill => 1,
            Self::Update => 2,
            Self::Status => 3,
            Self::Delete | Self::Clear => 4,
        }
    }
}

// === impl Order ===

impl Order {
    pub(super) fn new(phase: Phase, count: u32, args: &Args) -> Self {
        Self {
            namespaces: args.namespaces.unwrap_or(1),
            concurrency: args.concurrency,
            ..Self::of(phase, count, args.size)
        }
    }

    /// In one namespace.
    pub(super) fn of(phase: Phase, count: u32, size: usize) -> Self {
        Self {
            phase,
            label: phase.name().to_owned(),
            resource: 0,
            consumers: None,
            prefix: "item".to_owned(),
            from: 0,
            count,
            namespaces: 1,
            size,
            rate: None,
            changes: None,
            concurrency: CONCURRENCY,
            seed: 7,
            seq: phase.seq(),
            acks: None,
            timeout_s: PATIENCE_S + u64::from(count / SLOWEST),
        }
    }

    /// When an answer is overdue. The driver gives up by itself some time before that, and says what is missing.
    pub(super) fn limit(&self) -> Duration {
        let changes = f64::from(self.changes.unwrap_or(self.count));
        // Moments that are drawn may end later than they should.
        let load = match self.rate {
            Some(rate) => 2.0 * changes / rate,
            None => changes / f64::from(SLOWEST),
        };
        Duration::from_secs_f64(load) + Duration::from_secs(self.timeout_s) + Duration::from_mins(1)
    }
}

// === impl Answer ===

impl Answer {
    /// Fails where something that was to be seen was not.
    pub(super) fn check(self) -> Result<Self> {
        ensure!(
            self.ok,
            "{}: {} of {} were not seen, such as {:?}; {} errors: {}",
            self.label,
            self.missing,
            self.count,
            self.missing_names,
            self.errors,
            self.error.as_deref().unwrap_or("none")
        );
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_gives_up_before_it_is_given_up() {
        let order = |count, rate| Order {
            rate,
            ..Order::of(Phase::Create, count, 1024)
        };
        let check = |order: Order, timeout, limit| {
            assert_eq!((order.timeout_s, order.limit()), (timeout, Duration::from_secs(limit)));
        };
        check(order(1000, None), 350, 50 + 350 + 60);
        check(order(100_000, None), 5300, 5000 + 5300 + 60);
        check(order(72_000, Some(20.0)), 3900, 7200 + 3900 + 60);
        let changes = Order {
            changes: Some(300),
            ..order(100, Some(10.0))
        };
        check(changes, 305, 60 + 305 + 60);
    }
}
