//! Prometheus metrics of the engines.

mod lag;
mod meter;

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use bindery_runtime::telemetry::Registry;
use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

pub(crate) use meter::Meter;

/// Counters, histograms and gauges of all engines of a process.
#[derive(Debug)]
pub struct Metrics {
    operations: Family<OperationLabels, Counter>,
    seconds: Family<RequestLabels, Histogram, fn() -> Histogram>,
    waits: Family<ResourceLabels, Histogram, fn() -> Histogram>,
    lags: Family<WatchLabels, Histogram, fn() -> Histogram>,
    sync_lags: Family<DirectionLabels, Histogram, fn() -> Histogram>,
    received: Family<SideLabels, Counter>,
    objects: Family<EngineLabels, Gauge>,
    pending: Family<EngineLabels, Gauge>,
    failing: Family<EngineLabels, Gauge>,
    orphans: Family<EngineLabels, Gauge>,
    retained: Family<EngineLabels, Gauge>,
    synced: Family<EngineLabels, Gauge>,
    /// The number of running engines by labels. The successor of an engine may start before that one has ended.
    engines: Mutex<HashMap<EngineLabels, usize>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    resource: Arc<str>,
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    resource: Arc<str>,
    side: &'static str,
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    resource: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabels {
    resource: Arc<str>,
    side: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EngineLabels {
    binding: Arc<str>,
    resource: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    binding: Arc<str>,
    resource: Arc<str>,
    /// `up` for changes that are written to the provider, `down` for those that are written to the consumer.
    direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SideLabels {
    binding: Arc<str>,
    resource: Arc<str>,
    side: &'static str,
}

/// Values of the label `direction`.
const DIRECTIONS: [&str; 2] = ["up", "down"];
/// Values of the label `side`.
const SIDES: [&str; 2] = ["consumer", "provider"];

/// There are two of these for each binding and resource, so they have few buckets.
fn lag() -> Histogram {
    Histogram::new([
        0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    ])
}

fn latency() -> Histogram {
    Histogram::new([
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ])
}

impl Metrics {
    /// Makes the metrics and adds them to a registry.
    pub fn register(registry: &mut Registry) -> Arc<Self> {
        let metrics = Self {
            operations: Family::default(),
            seconds: Family::new_with_constructor(latency),
            waits: Family::new_with_constructor(latency),
            lags: Family::new_with_constructor(latency),
            sync_lags: Family::new_with_constructor(lag),
            received: Family::default(),
            objects: Family::default(),
            pending: Family::default(),
            failing: Family::default(),
            orphans: Family::default(),
            retained: Family::default(),
            synced: Family::default(),
            engines: Mutex::default(),
        };
        registry.register(
            "sync_operations",
            "Requests to synchronise objects, by resource, operation and outcome",
            metrics.operations.clone(),
        );
        registry.register(
            "sync_operation_seconds",
            "Time from a request to its answer, by resource, side and operation",
            metrics.seconds.clone(),
        );
        registry.register(
            "sync_queue_wait_seconds",
            "Time from a change that is known of to the beginning of work on its object",
            metrics.waits.clone(),
        );
        registry.register(
            "sync_watch_lag_seconds",
            "Time from the answer to a write until the watch of that side shows it, of samples",
            metrics.lags.clone(),
        );
        registry.register(
            "sync_lag_seconds",
            "Time from the event of a watch that shows a change until the write of it to the other cluster was answered, failed attempts \
             included, by binding, resource and direction (up to the provider, down to the consumer); what lists show, pauses, and objects that waited for their provider namespace do not count",
            metrics.sync_lags.clone(),
        );
        registry.register(
            "sync_received_bytes",
            "Content of the objects that lists and watches showed, without their metadata, by binding, resource and side",
            metrics.received.clone(),
        );
        registry.register(
            "sync_objects",
            "The consumer's objects, by binding (of a claimed resource, which bindings share: the contract) and resource",
            metrics.objects.clone(),
        );
        registry.register(
            "sync_pending",
            "Objects that wait to be worked on, by binding and resource",
            metrics.pending.clone(),
        );
        registry.register(
            "sync_failing",
            "Objects whose last attempt failed, by binding and resource",
            metrics.failing.clone(),
        );
        registry.register(
            "sync_orphans",
            "Copies that lost their source although nobody was seen to delete it, by binding and resource",
            metrics.orphans.clone(),
        );
        registry.register(
            "sync_retained",
            "Copies that the provider retains after their sources were deleted, by binding and resource",
            metrics.retained.clone(),
        );
        registry.register(
            "sync_synced",
            "1 while both sides are known and no object waits, is worked on or fails, by binding and resource",
            metrics.synced.clone(),
        );
        Arc::new(metrics)
    }

    fn begin(&self, labels: &EngineLabels) {
        *self.engines.lock().entry(labels.clone()).or_default() += 1;
    }

    /// Notes that an engine has ended. The last engine with these labels removes its gauges.
    fn end(&self, labels: &EngineLabels) {
        let mut engines = self.engines.lock();
        let Entry::Occupied(mut users) = engines.entry(labels.clone()) else {
            return;
        };
        *users.get_mut() -= 1;
        if *users.get() == 0 {
            users.remove();
            for gauges in [
                &self.objects,
                &self.pending,
                &self.failing,
                &self.orphans,
                &self.retained,
                &self.synced,
            ] {
                gauges.remove(labels);
            }
            for direction in DIRECTIONS {
                self.sync_lags.remove(&labels.in_direction(direction));
            }
            for side in SIDES {
                self.received.remove(&labels.on_side(side));
            }
        }
    }
}

impl EngineLabels {
    fn in_direction(&self, direction: &'static str) -> DirectionLabels {
        DirectionLabels {
            binding: Arc::clone(&self.binding),
            resource: Arc::clone(&self.resource),
            direction,
        }
    }

    fn on_side(&self, side: &'static str) -> SideLabels {
        SideLabels {
            binding: Arc::clone(&self.binding),
            resource: Arc::clone(&self.resource),
            side,
        }
    }
}
