//! Judges the health of a konnector by its heartbeats.

use std::time::Duration;

use bindery_api::{
    Condition, Conditions as _, Severity,
    conditions::{false_condition, true_condition},
    v1alpha2::ClusterBinding,
};
use jiff::Timestamp;

use crate::credentials::renewal;

/// The condition about the konnector, which the provider writes. The konnector writes all others but [`RENEWABLE`].
const HEALTHY: &str = "Healthy";
/// The condition about the renewal of the credentials. It is there once renewal was locked.
const RENEWABLE: &str = "CredentialRenewable";
/// Reason of [`RENEWABLE`] while renewal is locked.
const RENEWAL_LOCKED: &str = "RenewalLocked";
/// A konnector is looked at at least this often, whatever interval it reports.
const LOOK_AGAIN_MAX: Duration = Duration::from_hours(24);
/// How far a konnector's clock may be ahead of the server's before the condition reports it.
const DRIFT_MAX: Duration = Duration::from_secs(10);

/// What to do for a ClusterBinding.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HealthPlan {
    /// All conditions to write; `None` if nothing changed.
    pub(super) conditions: Option<Vec<Condition>>,
    /// After which time the health may change without a heartbeat.
    pub(super) look_again: Option<Duration>,
}

/// Plans for a ClusterBinding. `since` is the time since this server saw its last heartbeat come; `None` if it found it when it started.
pub(super) fn plan(binding: &ClusterBinding, since: Option<Duration>, now: Timestamp) -> HealthPlan {
    let (condition, look_again) = health(binding, since, now);
    let mut conditions = binding.conditions().to_vec();
    let mut changed = conditions.set_condition(condition, now);
    if let Some(condition) = renewable(binding) {
        changed |= conditions.set_condition(condition, now);
    }
    changed |= conditions.set_ready_summary(now);
    HealthPlan {
        conditions: changed.then_some(conditions),
        look_again: look_again.map(|delay| delay.min(LOOK_AGAIN_MAX)),
    }
}

/// The condition [`RENEWABLE`]; none for a contract whose renewal was never locked.
fn renewable(binding: &ClusterBinding) -> Option<Condition> {
    let Some(lock) = renewal::lock(binding) else {
        let was_locked = binding.condition(RENEWABLE).is_some();
        return was_locked.then(|| true_condition(RENEWABLE));
    };
    let message = format!(
        "renewal is locked since {}: {}; revoke the credentials if a copy was stolen, and have the owner bind again: kubectl bind renew \
         NAME on the consumer",
        lock.time,
        lock.reason
            .as_deref()
            .unwrap_or("the record of renewals cannot be read"),
    );
    Some(false_condition(RENEWABLE, Severity::Error, RENEWAL_LOCKED, message))
}

/// The condition [`HEALTHY`], and after which time it may change without a heartbeat. The konnector's clock tells how old a heartbeat is only where
/// the server did not see it come: clocks differ.
fn health(binding: &ClusterBinding, since: Option<Duration>, now: Timestamp) -> (Condition, Option<Duration>) {
    let status = binding.status.as_ref();
    let Some(last) = status.and_then(|status| status.last_heartbeat_time.as_ref()) else {
        let message = "no konnector has connected yet; bind on the consumer, and see the konnector's log there";
        return (
            false_condition(HEALTHY, Severity::Info, "FirstHeartbeatPending", message),
            None,
        );
    };
    let Some(allowed) = binding.heartbeat_allowance() else {
        let message = "the konnector does not say how often it reports";
        return (
            false_condition(HEALTHY, Severity::Info, "HeartbeatIntervalMissing", message),
            None,
        );
    };
    let ahead = Duration::try_from(last.0.duration_since(now)).unwrap_or_default();
    let silent = since.unwrap_or_else(|| Duration::try_from(now.duration_since(last.0)).unwrap_or_default());
    if silent > allowed {
        let message = format!(
            "last heartbeat at {}, due within {}s; see whether the konnector runs and reaches this cluster",
            last.0,
            allowed.as_secs()
        );
        return (
            false_condition(HEALTHY, Severity::Error, "HeartbeatTimeout", message),
            None,
        );
    }
    // A heartbeat that was found with a time to come ages from then on.
    let young = if since.is_some() { Duration::ZERO } else { ahead };
    // A little later than allowed, since a heartbeat that is due right now is not late.
    let left = young.saturating_add(allowed.saturating_sub(silent));
    let look_again = Some(left.saturating_add(Duration::from_millis(100)));
    if ahead <= DRIFT_MAX {
        return (true_condition(HEALTHY), look_again);
    }
    let message = "the konnector's clock is ahead of the provider's; set both by NTP";
    (
        false_condition(HEALTHY, Severity::Warning, "HeartbeatTimeDrift", message),
        look_again,
    )
}

#[cfg(test)]
mod tests {
    use bindery_api::{annotations, v1alpha2::ClusterBindingStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::ResourceExt as _;
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn binding(last: Option<i64>, interval: Option<u64>) -> ClusterBinding {
        let mut binding: ClusterBinding = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "cluster" },
            "spec": { "kubeconfigSecretRef": { "name": "kubeconfig", "key": "kubeconfig" }, "providerPrettyName": "W" },
        }))
        .unwrap();
        binding.status = Some(ClusterBindingStatus {
            last_heartbeat_time: last.map(|last| Time(at(last))),
            heartbeat_interval: interval.map(|seconds| Duration::from_secs(seconds).into()),
            ..ClusterBindingStatus::default()
        });
        binding
    }

    #[track_caller]
    fn check(last: Option<i64>, interval: Option<u64>, expect: (&str, Option<u64>)) {
        let mut binding = binding(last, interval);
        let first = plan(&binding, None, at(NOW));
        let conditions = first.conditions.expect("the first look writes");
        let healthy = bindery_api::conditions::get(&conditions, HEALTHY).unwrap();
        assert_eq!(
            (healthy.reason.as_str(), first.look_again.map(|again| again.as_secs())),
            expect
        );
        assert_eq!(conditions[0].type_, "Ready");
        assert_eq!(
            (conditions[0].status, &conditions[0].reason),
            (healthy.status, &healthy.reason)
        );
        binding.status.as_mut().unwrap().conditions = conditions;
        assert_eq!(
            plan(&binding, None, at(NOW)).conditions,
            None,
            "the second look writes nothing"
        );
    }

    #[test]
    fn health_follows_the_heartbeat() {
        check(None, Some(300), ("FirstHeartbeatPending", None));
        check(Some(NOW), None, ("HeartbeatIntervalMissing", None));
        check(Some(NOW), Some(0), ("HeartbeatIntervalMissing", None));
        check(Some(NOW), Some(300), ("", Some(600)));
        check(Some(NOW - 1), Some(300), ("", Some(599)));
        check(Some(NOW - 600), Some(300), ("", Some(0)));
        check(Some(NOW - 601), Some(300), ("HeartbeatTimeout", None));
        check(Some(NOW + 10), Some(300), ("", Some(610)));
        check(Some(NOW + 11), Some(300), ("HeartbeatTimeDrift", Some(611)));
    }

    #[test]
    fn a_heartbeat_that_was_seen_to_come_counts_from_then_on_by_whatever_clock_it_was_written() {
        let check = |last: i64, since: u64, expect: (&str, Option<u64>)| {
            let plan = plan(
                &binding(Some(last), Some(60)),
                Some(Duration::from_secs(since)),
                at(NOW),
            );
            let conditions = plan.conditions.expect("the first look writes");
            let healthy = conditions.condition(HEALTHY).unwrap();
            let look_again = plan.look_again.map(|again| again.as_secs());
            assert_eq!((healthy.reason.as_str(), look_again), expect, "{last}, {since} s ago");
        };
        check(NOW - 115, 0, ("", Some(120)));
        check(NOW - 4_000, 30, ("", Some(90)));
        check(NOW - 4_000, 121, ("HeartbeatTimeout", None));
        check(NOW + 4_000, 30, ("HeartbeatTimeDrift", Some(90)));
        check(NOW + 4_000, 121, ("HeartbeatTimeout", None));
    }

    #[test]
    fn a_lock_of_renewal_is_shown_until_an_owner_bound_again() {
        let mut binding = binding(Some(NOW), Some(300));
        let renewable = |binding: &ClusterBinding| {
            let conditions = plan(binding, None, at(NOW)).conditions.unwrap_or_default();
            conditions
                .condition(RENEWABLE)
                .map(|condition| condition.reason.clone())
        };
        assert_eq!(renewable(&binding), None);
        let lock = json!({"newest": at(0), "began": at(0), "lock": {"id": "0a1b", "reason": "used again"}}).to_string();
        binding.annotations_mut().insert(annotations::RENEWAL.to_owned(), lock);
        assert_eq!(renewable(&binding).as_deref(), Some(RENEWAL_LOCKED));
        binding.status.as_mut().unwrap().conditions = plan(&binding, None, at(NOW)).conditions.unwrap();
        binding.annotations_mut().clear();
        assert_eq!(renewable(&binding).as_deref(), Some(""));
    }

    #[test]
    fn no_interval_is_too_long() {
        check(Some(NOW), Some(10 * 365 * 24 * 3_600), ("", Some(24 * 3_600)));
        let mut binding = binding(Some(NOW), None);
        let text = serde_json::json!("99999999999999999999999h");
        binding.status.as_mut().unwrap().heartbeat_interval = Some(serde_json::from_value(text).unwrap());
        let conditions = plan(&binding, None, at(NOW)).conditions.unwrap();
        assert_eq!(
            conditions.condition(HEALTHY).unwrap().reason,
            "HeartbeatIntervalMissing"
        );
    }

    #[test]
    fn the_konnectors_conditions_stay() {
        let mut binding = binding(Some(NOW), Some(300));
        let conditions = &mut binding.status.as_mut().unwrap().conditions;
        conditions.set_condition(
            false_condition("SecretValid", Severity::Warning, "ProviderSecretInvalid", "x"),
            at(1),
        );
        let written = plan(&binding, None, at(NOW)).conditions.unwrap();
        assert_eq!(
            written.condition("SecretValid").unwrap().last_transition_time,
            Time(at(1))
        );
        assert_eq!(written.condition("Ready").unwrap().reason, "ProviderSecretInvalid");
    }
}
