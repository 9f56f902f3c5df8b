//! The metrics of the gRPC server.

use std::{fmt, sync::Arc, time::Duration};

use bindery_proto::code_name;
use bindery_runtime::telemetry::Registry;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};
use tonic::Code;

use crate::front::{access, transport::places::ConnectionEnd};

/// The codes of calls that are counted from zero: success, and failures of the server, which objectives are about.
const COUNTED: [Code; 5] = [
    Code::Ok,
    Code::Unknown,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
];
/// Upper bounds of the latency histogram, in seconds.
const BUCKETS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0, 120.0,
];

/// The metrics of the gRPC server. Clones share their values.
#[derive(Clone)]
pub struct Metrics(Arc<Families>);

struct Families {
    calls: Family<CallLabels, Counter>,
    latency: Family<MethodLabels, Histogram, fn() -> Histogram>,
    streams: Family<MethodLabels, Gauge>,
    stream_ends: Family<CallLabels, Counter>,
    token_checks: Counter,
    connection_ends: Family<EndLabels, Counter>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EndLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CallLabels {
    method: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct MethodLabels {
    method: &'static str,
}

/// Counts one open stream in the gauge until it is dropped.
pub(crate) struct OpenStream {
    metrics: Metrics,
    method: &'static str,
}

impl Metrics {
    /// Registers the metrics with `registry`.
    pub fn new(registry: &mut Registry) -> Self {
        let families = Families {
            calls: Family::default(),
            latency: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            streams: Family::default(),
            stream_ends: Family::default(),
            token_checks: Counter::default(),
            connection_ends: Family::default(),
        };
        // From the start on, so that the first one is an increase.
        for end in ConnectionEnd::ALL {
            let reason = end.label();
            let _ = families.connection_ends.get_or_create(&EndLabels { reason });
        }
        for method in access::METHODS {
            for code in COUNTED.map(code_name) {
                let method = method.path;
                let _ = families.calls.get_or_create(&CallLabels { method, code });
            }
        }
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
        registry.register(
            "connection_ends",
            "Connections that the server refused or closed, by reason",
            families.connection_ends.clone(),
        );
        Self(Arc::new(families))
    }

    pub(crate) fn call(&self, method: &'static str, code: Code, took: Duration) {
        let code = code_name(code);
        self.0.calls.get_or_create(&CallLabels { method, code }).inc();
        self.0
            .latency
            .get_or_create(&MethodLabels { method })
            .observe(took.as_secs_f64());
    }

    pub(crate) fn token_check(&self) {
        self.0.token_checks.inc();
    }

    pub(crate) fn connection_end(&self, end: ConnectionEnd) {
        let reason = end.label();
        self.0.connection_ends.get_or_create(&EndLabels { reason }).inc();
    }

    pub(crate) fn open_stream(&self, method: &'static str) -> OpenStream {
        self.0.streams.get_or_create(&MethodLabels { method }).inc();
        OpenStream {
            metrics: self.clone(),
            method,
        }
    }
}

impl OpenStream {
    pub(crate) fn end(&self, code: tonic::Code) {
        let label = CallLabels {
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
            .get_or_create(&MethodLabels { method: self.method })
            .dec();
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

#[cfg(test)]
mod tests {
    use bindery_runtime::telemetry;
    use tonic::Code;

    use super::*;

    #[test]
    fn calls_streams_and_ends_of_connections_are_counted() {
        let mut registry = telemetry::registry();
        let metrics = Metrics::new(&mut registry);
        metrics.call("GetExport", Code::Ok, Duration::from_millis(500));
        metrics.call("GetExport", Code::NotFound, Duration::from_millis(1500));
        metrics.token_check();
        metrics.connection_end(ConnectionEnd::Idle);
        let _open = metrics.open_stream("WatchExports");
        metrics.open_stream("WatchExports").end(Code::Unavailable);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        for line in [
            r#"bindery_grpc_calls_total{method="GetExport",code="OK"} 1"#,
            r#"bindery_grpc_calls_total{method="GetExport",code="NOT_FOUND"} 1"#,
            r#"bindery_grpc_call_seconds_sum{method="GetExport"} 2.0"#,
            r#"bindery_grpc_call_seconds_count{method="GetExport"} 2"#,
            r#"bindery_grpc_call_seconds_bucket{le="0.5",method="GetExport"} 1"#,
            r#"bindery_grpc_streams{method="WatchExports"} 1"#,
            r#"bindery_grpc_stream_ends_total{method="WatchExports",code="UNAVAILABLE"} 1"#,
            "bindery_grpc_token_checks_total 1",
            r#"bindery_grpc_connection_ends_total{reason="idle"} 1"#,
            r#"bindery_grpc_connection_ends_total{reason="displaced"} 0"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
