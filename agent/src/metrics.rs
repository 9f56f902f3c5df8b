//! What the konnector counts besides its objects.

use std::sync::Arc;

use bindery_runtime::{
    client::{ClusterTraffic, TrafficMetrics},
    policy::PoliciesInForce,
    telemetry::Registry,
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

/// Counters and gauges of the konnector.
#[derive(Debug, Default)]
pub struct Metrics {
    renewals: Family<Outcome, Counter>,
    heartbeats: Family<Outcome, Counter>,
    sessions: Gauge,
    leading: Gauge,
    bundle_bindings: Family<Operation, Counter>,
    traffic: TrafficMetrics,
    policies: PoliciesInForce,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

impl Metrics {
    /// Makes the metrics and has them served.
    pub fn register(registry: &mut Registry) -> Arc<Self> {
        let metrics = Self {
            traffic: TrafficMetrics::register(registry),
            ..Self::default()
        };
        registry.register(
            "credential_renewals",
            "Attempts to renew a provider's credential",
            metrics.renewals.clone(),
        );
        registry.register(
            "heartbeats",
            "Heartbeats sent to providers; those that cannot be sent, because no connection is made, are errors too",
            metrics.heartbeats.clone(),
        );
        // From the start on, so that the first failure is an increase.
        for outcomes in [&metrics.renewals, &metrics.heartbeats] {
            drop(outcomes.get_or_create(&Outcome::of(true)));
            drop(outcomes.get_or_create(&Outcome::of(false)));
        }
        registry.register("sessions", "Contracts with a session", metrics.sessions.clone());
        registry.register("leading", "Whether this replica leads", metrics.leading.clone());
        registry.register(
            "bundle_bindings",
            "Bindings that were made and ended for bundles",
            metrics.bundle_bindings.clone(),
        );
        metrics.policies.register(registry);
        Arc::new(metrics)
    }

    /// Counts what goes over the wire to the consumer's API server.
    pub(crate) fn consumer_traffic(&self) -> ClusterTraffic {
        self.traffic.of_cluster("consumer")
    }

    /// Counts what goes over the wire to the API servers of all providers.
    pub(crate) fn provider_traffic(&self) -> ClusterTraffic {
        self.traffic.of_cluster("provider")
    }

    /// The admission policies on the konnector's account.
    pub(crate) fn policies(&self) -> &PoliciesInForce {
        &self.policies
    }

    pub(crate) fn renewal(&self, ok: bool) {
        self.renewals.get_or_create(&Outcome::of(ok)).inc();
    }

    /// Counts a heartbeat, which its provider took or did not get.
    pub(crate) fn heartbeat(&self, ok: bool) {
        self.heartbeats.get_or_create(&Outcome::of(ok)).inc();
    }

    pub(crate) fn session_began(&self) {
        self.sessions.inc();
    }

    pub(crate) fn session_ended(&self) {
        self.sessions.dec();
    }

    pub(crate) fn bundle_binding(&self, operation: &'static str) {
        self.bundle_bindings.get_or_create(&Operation { operation }).inc();
    }

    /// This replica leads from now on.
    pub fn leads(&self) {
        self.leading.set(1);
    }
}

impl Outcome {
    fn of(ok: bool) -> Self {
        Self {
            outcome: if ok { "ok" } else { "error" },
        }
    }
}

#[cfg(test)]
mod tests {
    use bindery_runtime::telemetry;

    use super::*;

    #[test]
    fn what_happened_is_counted_under_the_documented_names() {
        let mut registry = telemetry::registry();
        let metrics = Metrics::register(&mut registry);
        metrics.renewal(true);
        metrics.renewal(false);
        metrics.heartbeat(true);
        for _ in 0..3 {
            metrics.session_began();
        }
        metrics.session_ended();
        metrics.bundle_binding("created");
        metrics.leads();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"bindery_credential_renewals_total{outcome="ok"} 1"#,
            r#"bindery_credential_renewals_total{outcome="error"} 1"#,
            r#"bindery_heartbeats_total{outcome="ok"} 1"#,
            "bindery_sessions 2",
            r#"bindery_bundle_bindings_total{operation="created"} 1"#,
            "bindery_leading 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
