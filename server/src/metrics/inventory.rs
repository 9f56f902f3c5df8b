//! How many contracts, exports, requests and templates there are in each state, counted when somebody asks.

use std::fmt;

use bindery_api::{
    Conditions,
    conditions::READY,
    v1alpha2::{APIServiceExport, APIServiceExportTemplate, BindableResourcesRequest, Phase},
};
use bindery_runtime::telemetry::Registry;
use k8s_openapi::api::core::v1::Namespace;
use kube::Resource;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _},
    metrics::{family::Family, gauge::Gauge},
};

use crate::{
    contract,
    controllers::{POLICY_IN_FORCE, PROVIDER_IN_SYNC},
    state::Caches,
};

/// Counts the objects in the caches of a replica.
#[derive(Debug)]
pub struct Inventory(Caches);

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

/// Counts of one kind of object, by state. Each state of `all` is told, also if no object is in it.
struct Counts(Family<StateLabels, Gauge>);

// === impl Inventory ===

impl Inventory {
    /// Registers the metrics of these caches with `registry`.
    pub fn register(caches: Caches, registry: &mut Registry) {
        registry.register_collector(Box::new(Self(caches)));
    }
}

impl Collector for Inventory {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let caches = &self.0;
        let contracts = Counts::of(
            &["active", "terminating"],
            caches
                .namespaces
                .list(contract::is_contract)
                .iter()
                .map(|namespace| contract_state(namespace)),
        );
        contracts.encode(&mut encoder, "contracts", "Contracts, by state (active, terminating)")?;
        let exports = Counts::of(
            &CONDITION_STATES,
            caches.exports.list(|_| true).iter().map(|export| export_state(export)),
        );
        exports.encode(
            &mut encoder,
            "exports",
            "Exports, by state (ready, not_ready, terminating)",
        )?;
        let requests = Counts::of(
            &["pending", "failed", "succeeded"],
            caches
                .requests
                .list(|_| true)
                .iter()
                .map(|request| request_state(request)),
        );
        requests.encode(
            &mut encoder,
            "requests",
            "BindableResourcesRequests, by state (pending, failed, succeeded)",
        )?;
        let templates = Counts::of(
            &CONDITION_STATES,
            caches
                .templates
                .list(|_| true)
                .iter()
                .map(|template| template_state(template)),
        );
        templates.encode(
            &mut encoder,
            "templates",
            "Templates, by state (ready, not_ready, terminating)",
        )
    }
}

/// The states of objects with a condition `Ready`.
const CONDITION_STATES: [&str; 3] = ["ready", "not_ready", "terminating"];

fn contract_state(namespace: &Namespace) -> &'static str {
    if contract::is_terminating(namespace) {
        "terminating"
    } else {
        "active"
    }
}

/// Whether the provider's side of an export is as it has to be. What the consumer says in other conditions is the consumer's.
fn export_state(export: &APIServiceExport) -> &'static str {
    let lacks_policy = export.condition(POLICY_IN_FORCE).is_some_and(|known| !known.is_true());
    state(export, export.is_condition_true(PROVIDER_IN_SYNC) && !lacks_policy)
}

fn template_state(template: &APIServiceExportTemplate) -> &'static str {
    state(template, template.is_condition_true(READY))
}

fn request_state(request: &BindableResourcesRequest) -> &'static str {
    match request.phase() {
        Phase::Pending => "pending",
        Phase::Failed => "failed",
        Phase::Succeeded => "succeeded",
    }
}

fn state(object: &impl Resource, is_ready: bool) -> &'static str {
    if object.meta().deletion_timestamp.is_some() {
        "terminating"
    } else if is_ready {
        "ready"
    } else {
        "not_ready"
    }
}

// === impl Counts ===

impl Counts {
    fn of(all: &[&'static str], states: impl Iterator<Item = &'static str>) -> Self {
        let counts = Family::<StateLabels, Gauge>::default();
        for state in all {
            let _ = counts.get_or_create_owned(&StateLabels { state });
        }
        for state in states {
            counts.get_or_create(&StateLabels { state }).inc();
        }
        Self(counts)
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str) -> Result<(), fmt::Error> {
        self.0
            .encode(encoder.encode_descriptor(name, help, None, self.0.metric_type())?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[track_caller]
    fn check(export: serde_json::Value, expect: &str) {
        let export: APIServiceExport = from_value(export).expect("an export");
        assert_eq!(export_state(&export), expect);
    }

    /// An export with these conditions and their statuses.
    fn export(metadata: &serde_json::Value, conditions: &[(&str, &str)]) -> serde_json::Value {
        let conditions = conditions.iter().map(|(type_, status)| {
            json!({"type": type_, "status": status, "reason": "", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
        });
        let conditions: Vec<_> = conditions.collect();
        json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExport", "metadata": metadata,
            "spec": {"resources": [], "informerScope": "Namespaced", "isolation": "Prefixed"}, "status": {"conditions": conditions},
        })
    }

    #[test]
    fn an_export_is_ready_by_the_conditions_of_the_provider_until_it_ends() {
        let name = json!({"name": "a"});
        let served = (PROVIDER_IN_SYNC, "True");
        check(export(&name, &[]), "not_ready");
        check(export(&name, &[(PROVIDER_IN_SYNC, "False")]), "not_ready");
        check(export(&name, &[served]), "ready");
        check(export(&name, &[served, (POLICY_IN_FORCE, "False")]), "not_ready");
        check(export(&name, &[served, ("Connected", "False")]), "ready");
        let ending = json!({"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        check(export(&ending, &[served]), "terminating");
    }

    #[test]
    fn each_state_is_told_also_without_objects() {
        let counts = Counts::of(&["ready", "not_ready"], ["ready", "ready"].into_iter());
        let of = |state| counts.0.get_or_create(&StateLabels { state }).get();
        assert_eq!((of("ready"), of("not_ready")), (2, 0));
    }
}
