//! Computes the status of a bundle. Nothing is written here.

use std::{collections::BTreeMap, time::Duration};

use bindery_api::{
    Condition, Conditions as _, Severity,
    conditions::{self, CONTRACT_UNVERIFIED, false_condition, true_condition},
    v1alpha2::APIServiceBindingBundleStatus,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::{
    blocker::{self, Blocker, PATIENCE, SyncedReason},
    observed::ObservedBundle,
    plan::BundlePlan,
};
use crate::{
    controller::{
        access::ContractAccess,
        conditions::{self as shared, CredentialWording, status_changes},
    },
    session::{connect::ConnectError, provider_probe::ProbeResult},
};

/// Types of the conditions of a bundle.
pub mod types {
    pub use bindery_api::conditions::{
        PROVIDER_ACCESS_COMPLETE, PROVIDER_DATA_ACCEPTED, PROVIDER_REACHABLE, SECRET_VALID,
    };
    pub use bindery_api::holder::HELD;
    /// Says whether every export that the bundle selects is bound. If it is False, the reason is a
    /// [`SyncedReason`](super::SyncedReason).
    pub const SYNCED: &str = "Synced";
}

/// The times of the last probe and sync are written this often, if nothing else changes.
const TIMES_INTERVAL: Duration = Duration::from_mins(1);
/// A message names at most this many exports.
const NAMED_MAX: usize = 10;

/// Messages of failed writes, by name of the export.
pub type ExportFailures = BTreeMap<String, String>;

/// The status of a bundle.
pub fn of(seen: &ObservedBundle, plan: &BundlePlan, failures: &ExportFailures) -> APIServiceBindingBundleStatus {
    let mut status = seen.bundle.status.clone().unwrap_or_default();
    status.observed_generation = seen.bundle.metadata.generation;
    let mut list = std::mem::take(&mut status.conditions);
    let mut set = |condition: Option<Condition>, kind: &str| match condition {
        Some(condition) => drop(conditions::set(&mut list, condition, seen.now)),
        None => drop(conditions::remove(&mut list, kind)),
    };
    set(Some(synced(seen, plan, failures)), types::SYNCED);
    if !matches!(seen.access, ContractAccess::Connecting) {
        set(Some(secret_valid(seen)), types::SECRET_VALID);
        set(reachable(seen), types::PROVIDER_REACHABLE);
        set(
            shared::provider_access(&seen.access, seen.session.as_ref(), "bundle", &seen.takeover()),
            types::PROVIDER_ACCESS_COMPLETE,
        );
        set(
            shared::provider_data(seen.session.as_ref()),
            types::PROVIDER_DATA_ACCEPTED,
        );
        set(
            shared::held(&seen.access, seen.session.as_ref(), seen.bundle.conditions()),
            types::HELD,
        );
    }
    conditions::set_summary(&mut list, seen.now);
    status.conditions = list;
    facts(seen, plan, failures, &mut status);
    status
}

/// The condition SecretValid.
fn secret_valid(seen: &ObservedBundle) -> Condition {
    let at = &seen.bundle.spec.kubeconfig_secret_ref;
    let wording = CredentialWording {
        kind: "bundle",
        renew: format!("store a new kubeconfig in Secret {at}, key {}", at.key),
        exact: true,
        takeover: seen.takeover(),
    };
    shared::secret_valid(&seen.access, seen.session.as_ref(), &wording)
}

/// The condition ProviderReachable; `None` while there is no usable kubeconfig.
fn reachable(seen: &ObservedBundle) -> Option<Condition> {
    let before = || seen.bundle.condition(types::PROVIDER_REACHABLE).cloned();
    let probe = match &seen.access {
        ContractAccess::Problem(_)
        | ContractAccess::Changed { .. }
        | ContractAccess::Failed(ConnectError::Setup { .. }) => return None,
        ContractAccess::Connecting | ContractAccess::Failed(_) | ContractAccess::Reached(_) => seen.last_probe.as_ref(),
    };
    let Some(probe) = probe else {
        return before();
    };
    let condition = match &probe.problem {
        None => true_condition(types::PROVIDER_REACHABLE),
        Some(problem) => false_condition(
            types::PROVIDER_REACHABLE,
            blocker::severity(seen),
            unreachable(problem),
            problem.to_string(),
        ),
    };
    Some(Condition {
        last_probe_time: Some(at(probe)),
        ..condition
    })
}

/// Reason of the condition ProviderReachable after a failed probe.
fn unreachable(problem: &ConnectError) -> &'static str {
    match problem {
        ConnectError::Unreachable { .. } | ConnectError::Setup { .. } => "ProviderUnreachable",
        ConnectError::Unauthorized { .. } => "ProviderUnauthorized",
        ConnectError::Denied { .. } => "ProviderForbidden",
        ConnectError::Unverified { .. } => CONTRACT_UNVERIFIED,
        ConnectError::Gone { .. } => "ContractNotFound",
    }
}

/// The time of a probe, in whole seconds as conditions hold it.
fn at(probe: &ProbeResult) -> Time {
    Time(Timestamp::from_second(probe.at.as_second()).unwrap_or(probe.at))
}

/// The condition Synced.
fn synced(seen: &ObservedBundle, plan: &BundlePlan, failures: &ExportFailures) -> Condition {
    if !matches!(seen.access, ContractAccess::Reached(_))
        && let Some(known) = shared::mismatch(seen.bundle.conditions(), types::SYNCED)
    {
        // That the contract serves another cluster is known until it is found out again.
        return known.clone();
    }
    let blocker = plan.blocker.clone().or_else(|| trouble(seen, plan, failures));
    match blocker {
        Some(Blocker {
            reason: SyncedReason::Connecting,
            ..
        }) if seen.bundle.condition(types::SYNCED).is_some() && matches!(seen.access, ContractAccess::Connecting) => {
            // Until the provider answers, the condition stays as it is.
            seen.bundle
                .condition(types::SYNCED)
                .cloned()
                .unwrap_or_else(|| true_condition(types::SYNCED))
        }
        Some(blocker) => false_condition(
            types::SYNCED,
            blocker.severity,
            blocker.reason.as_str(),
            blocker.message,
        ),
        None => Condition {
            message: counted(plan),
            ..true_condition(types::SYNCED)
        },
    }
}

/// A problem that does not keep the bundle from syncing other exports.
fn trouble(seen: &ObservedBundle, plan: &BundlePlan, failures: &ExportFailures) -> Option<Blocker> {
    let lasting = seen.exports.failing.as_ref().filter(|(_, since)| *since >= PATIENCE);
    if let Some((why, _)) = lasting {
        return Some(blocker::unlisted(seen, why));
    }
    let mut problems = plan.problems.clone();
    problems.extend(failures.clone());
    if !problems.is_empty() {
        return Some(Blocker::new(
            SyncedReason::SyncErrors,
            Severity::Warning,
            told(&problems),
        ));
    }
    if let Some(complaint) = &seen.settings.complaint {
        return Some(Blocker::new(
            SyncedReason::InvalidSpec,
            Severity::Warning,
            complaint.clone(),
        ));
    }
    (!plan.waiting.is_empty()).then(|| Blocker::new(SyncedReason::Waiting, Severity::Info, told(&plan.waiting)))
}

/// Lists the problems of exports in one message.
fn told(problems: &BTreeMap<String, String>) -> String {
    let named = problems.iter().take(NAMED_MAX);
    let mut told: Vec<_> = named
        .map(|(export, problem)| format!("export {export}: {problem}"))
        .collect();
    if let Some(more) = problems.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        told.push(format!("and {more} more"));
    }
    told.join("; ")
}

/// Message of the condition Synced while it holds.
fn counted(plan: &BundlePlan) -> String {
    let bound = format!("{} of {} exports are bound", plan.bound, plan.discovered);
    match plan.unready {
        0 => bound,
        1 => format!("{bound}; 1 binding is not Ready"),
        unready => format!("{bound}; {unready} bindings are not Ready"),
    }
}

/// Sets the fields of the status that are no conditions.
fn facts(
    seen: &ObservedBundle,
    plan: &BundlePlan,
    failures: &ExportFailures,
    status: &mut APIServiceBindingBundleStatus,
) {
    if plan.blocker.is_none() {
        let count = |count: usize| Some(i32::try_from(count).unwrap_or(i32::MAX));
        status.discovered_services = count(plan.discovered);
        status.bound_services = count(plan.bound);
        let is_current = seen.is_confirmed() && failures.is_empty();
        if is_current {
            status.last_sync_time = seen.last_probe.as_ref().map(at);
        }
    }
    let (Some(session), ContractAccess::Reached(_)) = (&seen.session, &seen.access) else {
        return;
    };
    status.contract_uid = Some(session.contract_uid.to_string());
    status.provider_namespace = Some(session.contract.to_string());
    if let Some(name) = &session.pretty_name {
        status.provider_pretty_name = Some(name.clone());
    }
}

/// Returns the fields of the status that have to be written; `None` if only times differ that are not due yet.
pub fn changes(
    before: Option<&APIServiceBindingBundleStatus>,
    after: &APIServiceBindingBundleStatus,
    now: Timestamp,
) -> Option<Value> {
    let default = APIServiceBindingBundleStatus::default();
    let before = before.unwrap_or(&default);
    if before == after || (timeless(before) == timeless(after) && !is_due(before, after, now)) {
        return None;
    }
    Some(status_changes(before, after))
}

/// Whether two statuses differ in nothing but how many bindings are Ready, which changes often while many are started.
pub fn is_mere_progress(before: Option<&APIServiceBindingBundleStatus>, after: &APIServiceBindingBundleStatus) -> bool {
    let quiet = |status: &APIServiceBindingBundleStatus| {
        let mut status = timeless(status);
        let synced = |condition: &&mut Condition| condition.type_ == types::SYNCED && condition.is_true();
        if let Some(condition) = status.conditions.iter_mut().find(synced) {
            condition.message.clear();
            condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
        }
        status
    };
    before.is_some_and(|before| timeless(before) != timeless(after) && quiet(before) == quiet(after))
}

/// Returns the status without the times of the last probe and sync.
fn timeless(status: &APIServiceBindingBundleStatus) -> APIServiceBindingBundleStatus {
    let mut status = status.clone();
    status.last_sync_time = None;
    for condition in &mut status.conditions {
        condition.last_probe_time = None;
    }
    status
}

/// Whether the times of the last probe and sync have to be written: the first ones at once, later ones rarely.
fn is_due(before: &APIServiceBindingBundleStatus, after: &APIServiceBindingBundleStatus, now: Timestamp) -> bool {
    let probe = |status: &APIServiceBindingBundleStatus| {
        let condition = conditions::get(&status.conditions, types::PROVIDER_REACHABLE)?;
        condition.last_probe_time.clone()
    };
    let is_due = |before: Option<&Time>, after: Option<&Time>| match (before, after) {
        (Some(before), Some(after)) if before != after => {
            let age = Duration::try_from(now.duration_since(before.0)).unwrap_or_default();
            age >= TIMES_INTERVAL
        }
        (before, after) => before != after,
    };
    is_due(before.last_sync_time.as_ref(), after.last_sync_time.as_ref())
        || is_due(probe(before).as_ref(), probe(after).as_ref())
}

#[cfg(test)]
#[path = "tests/status.rs"]
mod tests;
