//! The metric of refusals by limits.

use bindery_runtime::telemetry::Registry;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};

use super::LimitName;

/// Counts refusals by limit. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Family<LimitLabels, Counter>);

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
}

impl Refusals {
    /// Registers the metric with `registry`, with every limit from the start on, so that the first refusal is an increase.
    pub fn register(&self, registry: &mut Registry) {
        for name in LimitName::ALL {
            let _ = self.counter(name);
        }
        registry.register(
            "limit_refusals",
            "Refusals because a contract or a principal has reached a limit, by limit",
            self.0.clone(),
        );
    }

    /// Counts one refusal.
    pub fn count(&self, name: LimitName) {
        self.counter(name).inc();
    }

    fn counter(&self, name: LimitName) -> Counter {
        self.0.get_or_create(&LimitLabels { limit: name.as_str() }).clone()
    }
}
