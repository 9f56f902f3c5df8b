//! Tells metrics of the bindings, the bundles and the open sessions, computed at each scrape.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use bindery_api::{Conditions, conditions::READY, meta::is_paused};
use bindery_runtime::{guard::Limit, telemetry::Registry};
use kube::{Resource, ResourceExt as _};
use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{family::Family, gauge::Gauge},
};
use tokio::time::Instant;

use crate::controller::context::ControllerContext;

/// The metrics of what a leading konnector serves. Clones are the same. They are absent while the konnector does not lead, so that replicas
/// do not count a binding twice.
#[derive(Clone, Debug, Default)]
pub struct Inventory(Arc<Mutex<Option<ControllerContext>>>);

/// Ends the metrics of an [`Inventory`] when it is dropped.
#[derive(Debug)]
pub struct Followed(Inventory);

/// What one scrape tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Snapshot {
    /// The number of bindings by state.
    bindings: BTreeMap<&'static str, i64>,
    /// The number of bundles by state.
    bundles: BTreeMap<&'static str, i64>,
    /// The time until the credential of each binding's contract expires, in seconds; negative once it has expired. A credential that does
    /// not expire is not told.
    expiry: BTreeMap<Arc<str>, i64>,
    /// How many contracts meet a limit, by limit.
    limits: BTreeMap<&'static str, i64>,
    /// The number of streams of exports by state.
    streams: BTreeMap<&'static str, i64>,
    /// For how long the exports of a contract could not be read, of the contract that is worst off.
    unread: Duration,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BindingLabels {
    binding: Arc<str>,
}

const BINDING_STATES: [&str; 4] = ["ready", "not_ready", "paused", "ending"];
const BUNDLE_STATES: [&str; 3] = ["ready", "not_ready", "ending"];
const STREAM_STATES: [&str; 3] = ["starting", "current", "failing"];

// === impl Inventory ===

impl Inventory {
    /// Makes the metrics and adds them to a registry.
    pub fn register(registry: &mut Registry) -> Self {
        let inventory = Self::default();
        registry.register_collector(Box::new(inventory.clone()));
        inventory
    }

    /// Tells what the controllers of this context serve, until the answer is dropped.
    pub fn follow(&self, context: ControllerContext) -> Followed {
        *self.0.lock() = Some(context);
        Followed(self.clone())
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let ended = self.0.0.lock().take();
        // Outside of the lock: the context may be the last owner of caches.
        drop(ended);
    }
}

impl Collector for Inventory {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let context = self.0.lock().clone();
        let Some(context) = context else { return Ok(()) };
        Snapshot::of(&context).encode(encoder)
    }
}

// === impl Snapshot ===

impl Snapshot {
    fn of(context: &ControllerContext) -> Self {
        let consumer = &context.consumer;
        let bindings = consumer
            .bindings
            .list(|binding| context.other_konnectors.serves_binding(binding));
        let bundles = consumer
            .bundles
            .list(|bundle| context.other_konnectors.serves_bundle(bundle));
        let sessions = context.sessions.open();
        let expires = |contract: &str| {
            let session = sessions.iter().find(|session| &*session.contract().uid == contract)?;
            session.credential().held().schedule.left(Instant::now())
        };
        let mut expiry = BTreeMap::new();
        for binding in &bindings {
            if let Some(left) = binding.contract_uid().and_then(expires) {
                expiry.insert(binding.name_any().into(), left);
            }
        }
        let faults: Vec<_> = sessions
            .iter()
            .map(|session| session.faults().borrow().clone())
            .collect();
        let limits = Limit::ALL.into_iter().map(|limit| {
            let met = faults.iter().filter(|faults| faults.exceeds(limit)).count();
            (limit.label(), number(met))
        });
        Self {
            bindings: count(&BINDING_STATES, bindings.iter().map(|binding| state(&**binding))),
            bundles: count(&BUNDLE_STATES, bundles.iter().map(|bundle| state(&**bundle))),
            expiry,
            limits: limits.collect(),
            streams: count(
                &STREAM_STATES,
                sessions.iter().map(|session| {
                    let exports = session.exports();
                    stream_state(exports.failing_for(), exports.is_complete())
                }),
            ),
            unread: sessions
                .iter()
                .filter_map(|session| session.exports().failing_for())
                .max()
                .unwrap_or_default(),
        }
    }

    fn encode(self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let by_state = |counts: BTreeMap<&'static str, i64>| {
            let counts = counts.into_iter();
            family(counts.map(|(state, count)| (StateLabels { state }, count)))
        };
        tell(
            &mut encoder,
            "bindings",
            "Bindings that this konnector serves, by state (ready, not_ready, paused, ending)",
            &by_state(self.bindings),
        )?;
        tell(
            &mut encoder,
            "bundles",
            "Bundles that this konnector serves, by state (ready, not_ready, ending)",
            &by_state(self.bundles),
        )?;
        let expiry = self.expiry.into_iter();
        tell(
            &mut encoder,
            "credential_expires_in_seconds",
            "Seconds until the credential expires by which the provider of a binding is reached, by binding; absent if it does not expire",
            &family(expiry.map(|(binding, left)| (BindingLabels { binding }, left))),
        )?;
        let limits = self.limits.into_iter();
        tell(
            &mut encoder,
            "provider_limits_met",
            "Contracts whose provider sends more than this konnector holds, by limit (objects, bytes, answer)",
            &family(limits.map(|(limit, count)| (LimitLabels { limit }, count))),
        )?;
        tell(
            &mut encoder,
            "export_streams",
            "Streams by which the exports of contracts are followed, by state (starting, current, failing)",
            &by_state(self.streams),
        )?;
        let unread = Gauge::<i64>::default();
        unread.set(i64::try_from(self.unread.as_secs()).unwrap_or(i64::MAX));
        tell(
            &mut encoder,
            "export_stream_lag_seconds",
            "For how long the exports of a contract could not be read, of the contract that is worst off; 0 while all are current",
            &unread,
        )
    }
}

/// The state of a binding or a bundle. One that is being deleted or paused is not asked whether it is ready.
fn state(object: &(impl Resource + Conditions)) -> &'static str {
    if object.meta().deletion_timestamp.is_some() {
        "ending"
    } else if is_paused(object.meta()) {
        "paused"
    } else if object.is_condition_true(READY) {
        "ready"
    } else {
        "not_ready"
    }
}

fn stream_state(failing: Option<Duration>, is_complete: bool) -> &'static str {
    match failing {
        Some(_) => "failing",
        None if is_complete => "current",
        None => "starting",
    }
}

/// The number of objects in each state. Each of `all` is told, also if no object is in it; another state counts as the second.
fn count(all: &[&'static str], states: impl Iterator<Item = &'static str>) -> BTreeMap<&'static str, i64> {
    let mut counts: BTreeMap<_, _> = all.iter().map(|state| (*state, 0)).collect();
    for state in states {
        let state = if counts.contains_key(state) { state } else { all[1] };
        *counts.entry(state).or_default() += 1;
    }
    counts
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn family<L>(values: impl Iterator<Item = (L, i64)>) -> Family<L, Gauge>
where
    L: Clone + std::hash::Hash + Eq,
{
    let family = Family::<L, Gauge>::default();
    for (labels, value) in values {
        family.get_or_create(&labels).set(value);
    }
    family
}

fn tell(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> Result<(), fmt::Error> {
    if metric.is_empty() {
        return Ok(());
    }
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::APIServiceBinding;
    use bindery_runtime::telemetry;
    use serde_json::{Value, from_value, json};

    use super::*;

    fn binding(metadata: &Value, ready: &str) -> APIServiceBinding {
        let condition = json!({"type": "Ready", "status": ready, "reason": "", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        from_value(json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding", "metadata": metadata,
            "spec": {"kubeconfigSecretRef": {"name": "s", "namespace": "kube-bind", "key": "kubeconfig"}},
            "status": {"conditions": [condition]},
        }))
        .unwrap()
    }

    #[test]
    fn a_binding_has_one_state() {
        let paused = json!({"name": "a", "annotations": {"kube-bind.io/paused": "true"}});
        let ending = json!({"name": "a", "annotations": {"kube-bind.io/paused": "true"},
            "deletionTimestamp": "2026-01-01T00:00:00Z"});
        for (metadata, ready, expect) in [
            (json!({"name": "a"}), "True", "ready"),
            (json!({"name": "a"}), "False", "not_ready"),
            (json!({"name": "a"}), "Unknown", "not_ready"),
            (paused, "True", "paused"),
            (ending, "True", "ending"),
        ] {
            assert_eq!(state(&binding(&metadata, ready)), expect, "{metadata} {ready}");
        }
    }

    #[test]
    fn each_state_is_told_and_an_unknown_one_is_not_lost() {
        let counts = count(&BUNDLE_STATES, ["ready", "paused", "ready"].into_iter());
        assert_eq!(counts, BTreeMap::from([("ready", 2), ("not_ready", 1), ("ending", 0)]));
        let hour = Some(Duration::from_hours(1));
        for (failing, complete, expect) in [
            (None, false, "starting"),
            (None, true, "current"),
            (hour, true, "failing"),
            (hour, false, "failing"),
        ] {
            assert_eq!(stream_state(failing, complete), expect);
            assert!(STREAM_STATES.contains(&expect));
        }
    }

    #[derive(Debug)]
    struct Once(Snapshot);
    impl Collector for Once {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
            self.0.clone().encode(encoder)
        }
    }

    #[test]
    fn a_snapshot_is_served_and_nothing_while_another_replica_leads() {
        let snapshot = Snapshot {
            bindings: count(&BINDING_STATES, ["ready"].into_iter()),
            expiry: BTreeMap::from([("cowboys".into(), -3)]),
            limits: BTreeMap::from([("objects", 1)]),
            unread: Duration::from_secs(90),
            ..Snapshot::default()
        };
        let text = |registry: &Registry| {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
            text
        };
        let mut registry = telemetry::registry();
        registry.register_collector(Box::new(Once(snapshot)));
        let served = text(&registry);
        for line in [
            r#"bindery_bindings{state="ready"} 1"#,
            r#"bindery_bindings{state="ending"} 0"#,
            r#"bindery_credential_expires_in_seconds{binding="cowboys"} -3"#,
            r#"bindery_provider_limits_met{limit="objects"} 1"#,
            "bindery_export_stream_lag_seconds 90",
        ] {
            assert!(
                served.lines().any(|found| found == line),
                "{line} is missing in\n{served}"
            );
        }
        let mut registry = telemetry::registry();
        let _inventory = Inventory::register(&mut registry);
        assert_eq!(text(&registry), "# EOF\n");
    }
}
