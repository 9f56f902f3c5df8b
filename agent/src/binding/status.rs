//! What a binding's status says.

use std::collections::BTreeMap;

use bindery_api::{
    Condition, Conditions as _, Severity,
    conditions::{self, false_condition, true_condition},
    v1alpha2::APIServiceBindingStatus,
};
use serde_json::{Map, Value, json};

use super::{credential::Access, observe::Observed, plan::Plan, resource::State, unbind::Ending};
use crate::session::schema_status::ExportReport;

pub(crate) mod access;
mod claims;
pub(super) mod sync;

/// Types of the conditions of a binding, and what False means.
pub mod types {
    /// The Secret gives access. False: it is missing or no kubeconfig, its credential has expired, or it leads to another
    /// provider (`ProviderChanged`).
    pub const SECRET_VALID: &str = "SecretValid";
    /// The export exists and its APIs are installed. False: the provider is not reached, has no such export or took it away
    /// (`ExportRemoved`), the binding's bundle does not take it any more (`ExportNotSelected`), or an API cannot be installed
    /// here (`ProtectedGroup`, `ForeignCustomResourceDefinition`, ...).
    pub const CONNECTED: &str = "Connected";
    /// A reason of that.
    pub const EXPORT_REMOVED: &str = "ExportRemoved";
    /// Another one.
    pub const EXPORT_NOT_SELECTED: &str = "ExportNotSelected";
    /// Another one: a CRD on the consumer belongs to somebody else.
    pub const FOREIGN_CRD: &str = "ForeignCustomResourceDefinition";
    /// Another one: a CRD on the consumer is offered to the binding, and is not what the provider has.
    pub const SCHEMAS_DISAGREE: &str = "SchemasDisagree";
    /// Those of a CRD on the consumer that stands in the way of the export's.
    pub const CRD_CONFLICTS: [&str; 2] = [FOREIGN_CRD, SCHEMAS_DISAGREE];
    /// Both sides are watched.
    pub const INFORMERS_SYNCED: &str = "InformersSynced";
    /// The provider hears that the konnector lives. False also where the contract serves another cluster
    /// (`ConsumerClusterMismatch`).
    pub const HEARTBEATING: &str = "Heartbeating";
    /// The consumer's CRDs are as the provider's schemas say. False also where a change would break objects
    /// (`IncompatibleSchema`): then sync goes on with what is installed.
    pub const SCHEMA_IN_SYNC: &str = "SchemaInSync";
    /// No object fails.
    pub const OBJECTS_IN_SYNC: &str = "ObjectsInSync";
    /// Copies go with their objects. False (`TooManyMissing`): so many objects are missing at once that none is deleted on
    /// the provider until they are back or the user consents.
    pub const DELETIONS_SYNCED: &str = "DeletionsSynced";
    /// The reason of that.
    pub const TOO_MANY_MISSING: &str = "TooManyMissing";
    /// Claimed objects are on both sides as the claims say. The message tells what is claimed and what is rejected. False:
    /// what the user has accepted cannot be read (`AcceptedClaimsUnreadable`), one is refused by the konnector
    /// (`ClaimRefused`), is wider than what the user has accepted (`ClaimNotAccepted`), lacks rights (`RightsMissing`) or fails
    /// (`ClaimFailing`), copies are being withdrawn (`Withdrawing`), or the first lists are on their way (`ClaimsSyncing`).
    pub const PERMISSION_CLAIMS_IN_SYNC: &str = "PermissionClaimsInSync";
    /// The binding is at work. False (`Paused`): its user wants nothing to be written.
    pub const ACTIVE: &str = "Active";
    /// The binding is being deleted. True with reason `Unbinding`, `Stuck` where the user must act, or `Paused`.
    pub const DRAINING: &str = "Draining";
}

/// A write that was refused, by the CRD it was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Reason of the condition.
    pub reason: &'static str,
    /// The API server's words, and the mend.
    pub message: String,
}

/// Failures by name of the CRD.
pub type Failures = BTreeMap<String, Failure>;

/// The status of a binding that is not being deleted.
pub fn live(seen: &Observed, plan: &Plan, failures: &Failures) -> APIServiceBindingStatus {
    let mut status = seen.binding.status.clone().unwrap_or_default();
    let mut list = std::mem::take(&mut status.conditions);
    conditions::remove(&mut list, types::DRAINING);
    let mut set = |condition: Option<Condition>, kind: &str| match condition {
        Some(condition) => drop(conditions::set(&mut list, condition, seen.now)),
        None => drop(conditions::remove(&mut list, kind)),
    };
    set(Some(sync::active(seen)), types::ACTIVE);
    if matches!(seen.access, Access::Connecting) {
        // Nothing is known that was not known before.
        if seen.binding.condition(types::CONNECTED).is_none() {
            let connecting = false_condition(
                types::CONNECTED,
                Severity::Info,
                "Connecting",
                "waiting for the provider to answer",
            );
            set(Some(connecting), types::CONNECTED);
        }
    } else {
        set(Some(access::secret_valid(seen)), types::SECRET_VALID);
        let is_served = matches!(seen.access, Access::Reached(_)) && seen.session.is_some();
        set(access::connected(seen, plan, failures), types::CONNECTED);
        for (condition, kind) in [
            (sync::schema_in_sync(seen, plan, failures), types::SCHEMA_IN_SYNC),
            (access::heartbeating(seen), types::HEARTBEATING),
            (sync::informers_synced(seen), types::INFORMERS_SYNCED),
            (sync::objects_in_sync(seen), types::OBJECTS_IN_SYNC),
            (sync::deletions_synced(seen), types::DELETIONS_SYNCED),
            (claims::in_sync(seen, plan), types::PERMISSION_CLAIMS_IN_SYNC),
        ] {
            set(condition.filter(|_| is_served), kind);
        }
    }
    conditions::set_summary(&mut list, seen.now);
    status.conditions = list;
    facts(seen, plan, &mut status);
    status
}

/// The status of a binding that is being deleted.
pub fn ending(seen: &Observed, ending: &Ending) -> APIServiceBindingStatus {
    let mut status = seen.binding.status.clone().unwrap_or_default();
    let list = &mut status.conditions;
    let reason = match (seen.is_paused(), ending.stuck) {
        (true, _) => "Paused",
        (false, true) => "Stuck",
        (false, false) => "Unbinding",
    };
    conditions::set(list, sync::active(seen), seen.now);
    if let Some(deletions) = sync::deletions_synced(seen) {
        conditions::set(list, deletions, seen.now);
    }
    let draining = Condition {
        reason: reason.to_owned(),
        message: ending.message.clone(),
        ..true_condition(types::DRAINING)
    };
    conditions::set(list, draining, seen.now);
    // A binding on its way out is not ready, however well the rest of it is.
    let severity = if ending.stuck { Severity::Error } else { Severity::Info };
    conditions::set(
        list,
        false_condition(conditions::READY, severity, reason, &ending.message),
        seen.now,
    );
    status.bound_schemas = seen.bound();
    if let Some(listed) = &ending.listed {
        status.permission_claims.clone_from(listed);
    }
    status
}

/// The merge patch from one status to another; `None` where they are the same.
pub fn patch(before: Option<&APIServiceBindingStatus>, after: &APIServiceBindingStatus) -> Option<Value> {
    let default = APIServiceBindingStatus::default();
    let before = before.unwrap_or(&default);
    if before == after {
        return None;
    }
    let (before, after) = (object(before), object(after));
    let mut patch: Map<String, Value> = before.keys().map(|field| (field.clone(), Value::Null)).collect();
    patch.extend(after);
    Some(json!({ "status": patch }))
}

/// Whether every condition stands as it stood, and only their messages say something else.
pub fn is_mere_progress(before: Option<&APIServiceBindingStatus>, after: &APIServiceBindingStatus) -> bool {
    let unsaid = |status: &APIServiceBindingStatus| {
        let mut status = status.clone();
        status
            .conditions
            .iter_mut()
            .for_each(|condition| condition.message.clear());
        status
    };
    before.is_some_and(|before| before != after && unsaid(before) == unsaid(after))
}

/// The conditions that people should hear of: those that stopped to hold, and Ready when it begins to.
pub fn turned<'a>(before: &'a [Condition], after: &'a [Condition]) -> impl Iterator<Item = &'a Condition> {
    after.iter().filter(move |condition| {
        let known = conditions::get(before, &condition.type_);
        if condition.type_ == conditions::READY {
            return condition.is_true() && !known.is_some_and(Condition::is_true);
        }
        let serious = matches!(condition.severity, Severity::Error | Severity::Warning);
        // Of what counts people hear once, though its numbers move on.
        let counts = [
            types::TOO_MANY_MISSING,
            types::EXPORT_REMOVED,
            types::EXPORT_NOT_SELECTED,
        ];
        let says_more = |known: &Condition| {
            known.reason != condition.reason
                || (known.message != condition.message && !counts.contains(&condition.reason.as_str()))
        };
        serious && known.is_none_or(says_more)
    })
}

fn object(status: &APIServiceBindingStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// What the provider is told of the export.
pub fn report(seen: &Observed, status: &APIServiceBindingStatus, plan: &Plan) -> ExportReport {
    let refused = plan.states.values().find_map(|state| match state {
        State::Refused { message, .. } => Some(message),
        State::Pending { .. } | State::Usable(_) => None,
    });
    let connected = match refused {
        None => true_condition("Connected"),
        Some(message) => false_condition("Connected", Severity::Warning, "BoundSchemasNotValid", message),
    };
    let repeated = sync::refused_by_provider(seen);
    let is_repeated = |condition: &Condition| {
        let is_same = |said: &Condition| (&said.reason, &said.message) == (&condition.reason, &condition.message);
        repeated.as_ref().is_some_and(is_same)
    };
    let in_sync = match conditions::get(&status.conditions, types::SCHEMA_IN_SYNC) {
        // What is refused on the provider is no matter of the consumer.
        Some(condition) if is_repeated(condition) => true_condition("ConsumerInSync"),
        Some(condition) => Condition {
            type_: "ConsumerInSync".to_owned(),
            ..condition.clone()
        },
        None => false_condition("ConsumerInSync", Severity::Info, "Unknown", ""),
    };
    ExportReport {
        connected,
        consumer_in_sync: in_sync,
    }
}

fn facts(seen: &Observed, plan: &Plan, status: &mut APIServiceBindingStatus) {
    status.bound_schemas = seen.bound();
    let (Some(session), Access::Reached(_)) = (&seen.session, &seen.access) else {
        return;
    };
    status.contract_uid = Some(session.contract_uid.to_string());
    status.provider_namespace = Some(session.contract.to_string());
    if let Some(name) = &session.pretty_name {
        status.provider_pretty_name = Some(name.clone());
    }
    if let Some(claims) = &plan.claims {
        status.permission_claims.clone_from(&claims.listed);
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
