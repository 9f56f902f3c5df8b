//! The metric that tells of each admission policy whether it is in force.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
};

use super::Standing;
use crate::telemetry::Registry;

/// The metric `policy_in_force`. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct PoliciesInForce {
    in_force: Family<PolicyLabels, Gauge>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PolicyLabels {
    policy: String,
}

// === impl PoliciesInForce ===

impl PoliciesInForce {
    /// Has the metric served.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "policy_in_force",
            "Whether the admission policy refused its last probe (1), or is missing (0); absent where this process has not probed it",
            self.in_force.clone(),
        );
    }

    /// Notes what is known of a policy.
    pub fn note(&self, policy: &str, standing: Standing) {
        if standing != Standing::Unknown {
            let labels = PolicyLabels {
                policy: policy.to_owned(),
            };
            let is_in_force = standing == Standing::InForce;
            self.in_force.get_or_create(&labels).set(i64::from(is_in_force));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry;

    #[test]
    fn the_metric_says_of_each_policy_that_was_probed_whether_it_is_in_force() {
        let mut registry = telemetry::registry();
        let metric = PoliciesInForce::default();
        metric.register(&mut registry);
        let value = |policy: &str| {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
            let sample = format!("bindery_policy_in_force{{policy=\"{policy}\"}} ");
            text.lines()
                .find_map(|line| line.strip_prefix(&*sample).map(ToOwned::to_owned))
        };
        metric.note("first", Standing::Unknown);
        assert_eq!(value("first"), None, "nobody knows");
        metric.note("first", Standing::InForce);
        assert_eq!((value("first").as_deref(), value("second")), (Some("1"), None));
        for standing in [Standing::Withheld, Standing::Withdrawn] {
            metric.note("first", standing);
            assert_eq!(value("first").as_deref(), Some("0"), "{standing:?}");
        }
    }
}
