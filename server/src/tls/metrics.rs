//! How long the certificates of the gRPC port are still valid.

use std::{fmt, sync::Arc};

use bindery_runtime::telemetry::Registry;
use jiff::Timestamp;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _},
    metrics::{family::Family, gauge::Gauge},
};

use super::{CaBundle, ServingCertificate};

/// Computes the metrics at each scrape.
#[derive(Debug)]
pub struct ExpiryMetrics {
    serving: Arc<ServingCertificate>,
    ca: CaBundle,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CertificateLabels {
    certificate: &'static str,
}

impl ExpiryMetrics {
    /// Registers the metric `tls_expires_in_seconds` with `registry`.
    pub fn register(registry: &mut Registry, serving: Arc<ServingCertificate>, ca: CaBundle) {
        registry.register_collector(Box::new(Self { serving, ca }));
    }
}

impl Collector for ExpiryMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let now = Timestamp::now();
        let gauges = Family::<CertificateLabels, Gauge>::default();
        for (certificate, end) in [("serving", self.serving.not_after()), ("ca", self.ca.not_after())] {
            if let Some(end) = end {
                let left = end.duration_since(now).as_secs();
                gauges.get_or_create(&CertificateLabels { certificate }).set(left);
            }
        }
        gauges.encode(encoder.encode_descriptor(
            "tls_expires_in_seconds",
            "Seconds until the certificate of the gRPC port, or its CA, expires",
            None,
            gauges.metric_type(),
        )?)
    }
}

#[cfg(test)]
mod tests {
    use bindery_runtime::telemetry;
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn the_time_that_is_left_is_computed_at_each_scrape() {
        let (serving, ca) = (Arc::new(ServingCertificate::default()), CaBundle::default());
        let mut registry = telemetry::registry();
        ExpiryMetrics::register(&mut registry, Arc::clone(&serving), ca.clone());
        let left = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("bindery_tls_expires_in_seconds{certificate=\"ca\"} "));
            line.map(|value| value.parse::<i64>().expect("a number"))
        };
        assert_eq!(left(), None, "there is none yet");
        let now = Timestamp::now();
        ca.set("PEM", Some(now + SignedDuration::from_hours(1)));
        assert!(left().is_some_and(|left| (3000..=3600).contains(&left)));
        ca.set("PEM", Some(now - SignedDuration::from_hours(1)));
        assert!(left().is_some_and(|left| left < 0), "expired");
    }
}
