//! What a bundle's status says.

use std::{collections::BTreeMap, time::Duration};

use bindery_api::{
    Condition, Conditions as _, Severity,
    conditions::{self, false_condition, true_condition},
    v1alpha2::APIServiceBindingBundleStatus,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Map, Value, json};

use super::{
    hold::{self, Hold, PATIENCE, Reason},
    observe::Observed,
    plan::Plan,
};
use crate::{
    binding::{
        credential::Access,
        status::access::{Words, secret_valid_for},
    },
    session::{dial::DialError, probe::Probed},
};

/// Types of the conditions of a bundle, and what False means.
pub mod types {
    /// The Secret gives access. False: it is missing, no kubeconfig or an unsafe one, its credential has expired, or it leads
    /// to another provider (`ProviderChanged`).
    pub use crate::binding::status::types::SECRET_VALID;
    /// Every export that the bundle takes is bound. False: see [`Reason`](super::Reason).
    pub const SYNCED: &str = "Synced";
    /// The provider answers. False: it does not (`ProviderUnreachable`), or it takes the credential for invalid
    /// (`ProviderUnauthorized`), or allows nothing (`ProviderForbidden`), or has no such contract any more
    /// (`ContractNotFound`).
    pub const PROVIDER_REACHABLE: &str = "ProviderReachable";
}

/// When the times of the last probe and the last sync are written, though nothing else has changed.
const CLOCK: Duration = Duration::from_mins(1);
/// So many exports are named in one message.
const NAMED_MAX: usize = 10;

/// What writes failed, by names of exports.
pub type Failures = BTreeMap<String, String>;

/// The status of a bundle.
pub fn of(seen: &Observed, plan: &Plan, failures: &Failures) -> APIServiceBindingBundleStatus {
    let mut status = seen.bundle.status.clone().unwrap_or_default();
    status.observed_generation = seen.bundle.metadata.generation;
    let mut list = std::mem::take(&mut status.conditions);
    let mut set = |condition: Option<Condition>, kind: &str| match condition {
        Some(condition) => drop(conditions::set(&mut list, condition, seen.now)),
        None => drop(conditions::remove(&mut list, kind)),
    };
    set(Some(synced(seen, plan, failures)), types::SYNCED);
    if !matches!(seen.access, Access::Connecting) {
        set(Some(secret_valid(seen)), types::SECRET_VALID);
        set(reachable(seen), types::PROVIDER_REACHABLE);
    }
    conditions::set_summary(&mut list, seen.now);
    status.conditions = list;
    facts(seen, plan, failures, &mut status);
    status
}

fn secret_valid(seen: &Observed) -> Condition {
    let at = &seen.bundle.spec.kubeconfig_secret_ref;
    let words = Words {
        kind: "bundle",
        renew: format!("store a new kubeconfig in Secret {at}, key {}", at.key),
        exact: true,
        takeover: seen.takeover(),
    };
    secret_valid_for(&seen.access, seen.session.as_ref(), &words)
}

fn reachable(seen: &Observed) -> Option<Condition> {
    let before = || seen.bundle.condition(types::PROVIDER_REACHABLE).cloned();
    let probed = match &seen.access {
        Access::Problem(_) | Access::Changed { .. } | Access::Failed(DialError::Setup { .. }) => return None,
        Access::Connecting | Access::Failed(_) | Access::Reached(_) => seen.probed.as_ref(),
    };
    let Some(probed) = probed else {
        return before();
    };
    let condition = match &probed.problem {
        None => true_condition(types::PROVIDER_REACHABLE),
        Some(problem) => false_condition(
            types::PROVIDER_REACHABLE,
            hold::severity(seen),
            unreachable(problem),
            problem.to_string(),
        ),
    };
    Some(Condition {
        last_probe_time: Some(at(probed)),
        ..condition
    })
}

/// The reason of a provider's silence or refusal.
fn unreachable(problem: &DialError) -> &'static str {
    match problem {
        DialError::Unreachable { .. } | DialError::Setup { .. } => "ProviderUnreachable",
        DialError::Unauthorized { .. } => "ProviderUnauthorized",
        DialError::Denied { .. } => "ProviderForbidden",
        DialError::Gone { .. } => "ContractNotFound",
    }
}

fn at(probed: &Probed) -> Time {
    Time(Timestamp::from_second(probed.at.as_second()).unwrap_or(probed.at))
}

fn synced(seen: &Observed, plan: &Plan, failures: &Failures) -> Condition {
    let obstacle = plan.hold.clone().or_else(|| trouble(seen, plan, failures));
    match obstacle {
        Some(Hold {
            reason: Reason::Connecting,
            ..
        }) if seen.bundle.condition(types::SYNCED).is_some() && matches!(seen.access, Access::Connecting) => {
            // Nothing is known that was not known before.
            seen.bundle
                .condition(types::SYNCED)
                .cloned()
                .unwrap_or_else(|| true_condition(types::SYNCED))
        }
        Some(hold) => false_condition(types::SYNCED, hold.severity, hold.reason.as_str(), hold.message),
        None => Condition {
            message: counted(plan),
            ..true_condition(types::SYNCED)
        },
    }
}

/// What is not as it should be, though work goes on.
fn trouble(seen: &Observed, plan: &Plan, failures: &Failures) -> Option<Hold> {
    let lasting = seen.exports.failing.as_ref().filter(|(_, since)| *since >= PATIENCE);
    if let Some((why, _)) = lasting {
        return Some(hold::unlisted(seen, why));
    }
    let mut problems = plan.problems.clone();
    problems.extend(failures.clone());
    if !problems.is_empty() {
        return Some(Hold::new(Reason::SyncErrors, Severity::Warning, told(&problems)));
    }
    if let Some(complaint) = &seen.terms.complaint {
        return Some(Hold::new(Reason::InvalidSpec, Severity::Warning, complaint.clone()));
    }
    (!plan.waiting.is_empty()).then(|| Hold::new(Reason::Waiting, Severity::Info, told(&plan.waiting)))
}

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

fn counted(plan: &Plan) -> String {
    let bound = format!("{} of {} exports are bound", plan.bound, plan.discovered);
    match plan.unready {
        0 => bound,
        1 => format!("{bound}; 1 binding is not Ready"),
        unready => format!("{bound}; {unready} bindings are not Ready"),
    }
}

fn facts(seen: &Observed, plan: &Plan, failures: &Failures, status: &mut APIServiceBindingBundleStatus) {
    if plan.hold.is_none() {
        let count = |count: usize| Some(i32::try_from(count).unwrap_or(i32::MAX));
        status.discovered_services = count(plan.discovered);
        status.bound_services = count(plan.bound);
        let is_current = seen.is_confirmed() && failures.is_empty();
        if is_current {
            status.last_sync_time = seen.probed.as_ref().map(at);
        }
    }
    let (Some(session), Access::Reached(_)) = (&seen.session, &seen.access) else {
        return;
    };
    status.contract_uid = Some(session.contract_uid.to_string());
    status.provider_namespace = Some(session.contract.to_string());
    if let Some(name) = &session.pretty_name {
        status.provider_pretty_name = Some(name.clone());
    }
}

/// The merge patch from one status to another; `None` where nothing differs but times that need not be told yet.
pub fn patch(
    before: Option<&APIServiceBindingBundleStatus>,
    after: &APIServiceBindingBundleStatus,
    now: Timestamp,
) -> Option<Value> {
    let default = APIServiceBindingBundleStatus::default();
    let before = before.unwrap_or(&default);
    if before == after || (timeless(before) == timeless(after) && !is_due(before, after, now)) {
        return None;
    }
    let (before, after) = (object(before), object(after));
    let mut patch: Map<String, Value> = before.keys().map(|field| (field.clone(), Value::Null)).collect();
    patch.extend(after);
    Some(json!({ "status": patch }))
}

/// Whether nothing else has changed than how many bindings are ready, which a start with many changes many times.
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

/// The same without the times of the last probe and sync.
fn timeless(status: &APIServiceBindingBundleStatus) -> APIServiceBindingBundleStatus {
    let mut status = status.clone();
    status.last_sync_time = None;
    for condition in &mut status.conditions {
        condition.last_probe_time = None;
    }
    status
}

/// Whether these times are to be told: the first ones at once, later ones now and then.
fn is_due(before: &APIServiceBindingBundleStatus, after: &APIServiceBindingBundleStatus, now: Timestamp) -> bool {
    let probe = |status: &APIServiceBindingBundleStatus| {
        let condition = conditions::get(&status.conditions, types::PROVIDER_REACHABLE)?;
        condition.last_probe_time.clone()
    };
    let is_due = |before: Option<&Time>, after: Option<&Time>| match (before, after) {
        (Some(before), Some(after)) if before != after => {
            let age = Duration::try_from(now.duration_since(before.0)).unwrap_or_default();
            age >= CLOCK
        }
        (before, after) => before != after,
    };
    is_due(before.last_sync_time.as_ref(), after.last_sync_time.as_ref())
        || is_due(probe(before).as_ref(), probe(after).as_ref())
}

fn object(status: &APIServiceBindingBundleStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
