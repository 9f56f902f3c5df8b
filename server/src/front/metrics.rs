//! What the front door counts.

use std::{fmt, sync::Arc, time::Duration};

use bindery_proto::code_name;
use bindery_runtime::telemetry::Registry;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

/// Upper bounds of the latency histogram, in seconds.
const BUCKETS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0, 120.0,
];

/// Counters of the front door. Clones count together.
#[derive(Clone)]
pub struct Metrics(Arc<Families>);

struct Families {
    calls: Family<Call, Counter>,
    latency: Family<Latency, Histogram, fn() -> Histogram>,
    streams: Family<Latency, Gauge>,
    stream_ends: Family<Call, Counter>,
    token_checks: Counter,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Call {
    method: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Latency {
    method: &'static str,
}

/// A stream that is open, for the gauge.
pub(super) struct OpenStream {
    metrics: Metrics,
    method: &'static str,
}

impl Metrics {
    /// Counters that the registry shows.
    pub fn new(registry: &mut Registry) -> Self {
        let families = Families {
            calls: Family::default(),
            latency: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            streams: Family::default(),
            stream_ends: Family::default(),
            token_checks: Counter::default(),
        };
        let registry = registry.sub_registry_with_prefix("grpc");
        registry.register("calls", "Calls by method and code", families.calls.clone());
        registry.register(
            "call_seconds",
            "Time to the answer, or to the begin of a stream",
            families.latency.clone(),
        );
        registry.register("streams", "Open watch streams", families.streams.clone());
        registry.register(
            "stream_ends",
            "Ended watch streams by code",
            families.stream_ends.clone(),
        );
        registry.register(
            "token_checks",
            "Tokens that were not known and had to be checked",
            families.token_checks.clone(),
        );
        Self(Arc::new(families))
    }

    pub(super) fn call(&self, method: &'static str, code: tonic::Code, took: Duration) {
        let code = code_name(code);
        self.0.calls.get_or_create(&Call { method, code }).inc();
        self.0
            .latency
            .get_or_create(&Latency { method })
            .observe(took.as_secs_f64());
    }

    pub(super) fn token_check(&self) {
        self.0.token_checks.inc();
    }

    pub(super) fn open_stream(&self, method: &'static str) -> OpenStream {
        self.0.streams.get_or_create(&Latency { method }).inc();
        OpenStream {
            metrics: self.clone(),
            method,
        }
    }
}

impl OpenStream {
    pub(super) fn end(&self, code: tonic::Code) {
        let label = Call {
            method: self.method,
            code: code_name(code),
        };
        self.metrics.0.stream_ends.get_or_create(&label).inc();
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.metrics
            .0
            .streams
            .get_or_create(&Latency { method: self.method })
            .dec();
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}
