//! What the engines count.

use std::sync::Arc;

use bindery_runtime::telemetry::Registry;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
};

/// Counters and histograms of all engines of a process.
#[derive(Debug)]
pub struct Metrics {
    operations: Family<OperationLabels, Counter>,
    seconds: Family<OperationName, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    resource: String,
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationName {
    operation: &'static str,
}

fn latency() -> Histogram {
    Histogram::new([
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ])
}

impl Metrics {
    /// Makes the metrics and has them served.
    pub fn register(registry: &mut Registry) -> Arc<Self> {
        let metrics = Self {
            operations: Family::default(),
            seconds: Family::new_with_constructor(latency),
        };
        registry.register(
            "sync_operations",
            "Requests to synchronise objects, by resource, operation and outcome",
            metrics.operations.clone(),
        );
        registry.register(
            "sync_operation_seconds",
            "Time from a request to its answer, by operation",
            metrics.seconds.clone(),
        );
        Arc::new(metrics)
    }

    pub(crate) fn operation(&self, resource: &str, operation: &'static str, ok: bool, seconds: f64) {
        let labels = OperationLabels {
            resource: resource.to_owned(),
            operation,
            outcome: if ok { "ok" } else { "error" },
        };
        self.operations.get_or_create(&labels).inc();
        self.seconds
            .get_or_create(&OperationName { operation })
            .observe(seconds);
    }
}
