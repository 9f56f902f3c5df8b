//! What a binding's status says.

use std::collections::BTreeMap;

use bindery_api::{
    Condition, Conditions as _, Severity,
    conditions::{self, false_condition, true_condition, unknown_condition},
    v1alpha2::APIServiceBindingStatus,
};
use serde_json::{Map, Value, json};

use super::{
    credential::Access,
    observe::{ClusterPin, Observed},
    plan::Plan,
    resource::State,
    unbind::Ending,
};
use crate::{
    rights,
    session::{exports::Lookup, heartbeat::Heartbeat, schema_status::ExportReport},
};

/// Types of the conditions of a binding.
pub mod types {
    /// The Secret gives access.
    pub const SECRET_VALID: &str = "SecretValid";
    /// The export exists and its APIs are installed.
    pub const CONNECTED: &str = "Connected";
    /// Both sides are watched.
    pub const INFORMERS_SYNCED: &str = "InformersSynced";
    /// The provider hears that the konnector lives.
    pub const HEARTBEATING: &str = "Heartbeating";
    /// The consumer's CRDs are as the provider's schemas say.
    pub const SCHEMA_IN_SYNC: &str = "SchemaInSync";
    /// No object fails.
    pub const OBJECTS_IN_SYNC: &str = "ObjectsInSync";
    /// The binding is being deleted.
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
        set(Some(secret_valid(seen)), types::SECRET_VALID);
        let is_served = matches!(seen.access, Access::Reached(_)) && seen.session.is_some();
        set(connected(seen, plan, failures), types::CONNECTED);
        set(
            schema_in_sync(seen, plan, failures).filter(|_| is_served),
            types::SCHEMA_IN_SYNC,
        );
        set(heartbeating(seen).filter(|_| is_served), types::HEARTBEATING);
        set(informers_synced(seen).filter(|_| is_served), types::INFORMERS_SYNCED);
        set(objects_in_sync(seen).filter(|_| is_served), types::OBJECTS_IN_SYNC);
    }
    conditions::set_summary(&mut list, seen.now);
    status.conditions = list;
    facts(seen, &mut status);
    status
}

/// The status of a binding that is being deleted.
pub fn ending(seen: &Observed, ending: &Ending) -> APIServiceBindingStatus {
    let mut status = seen.binding.status.clone().unwrap_or_default();
    let list = &mut status.conditions;
    let reason = if ending.stuck { "Stuck" } else { "Unbinding" };
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

/// The conditions that people should hear of: those that stopped to hold, and Ready when it begins to.
pub fn turned<'a>(
    before: Option<&APIServiceBindingStatus>,
    after: &'a APIServiceBindingStatus,
) -> impl Iterator<Item = &'a Condition> {
    let before = before.map(|status| status.conditions.clone()).unwrap_or_default();
    after.conditions.iter().filter(move |condition| {
        let known = conditions::get(&before, &condition.type_);
        if condition.type_ == conditions::READY {
            return condition.is_true() && !known.is_some_and(Condition::is_true);
        }
        let serious = matches!(condition.severity, Severity::Error | Severity::Warning);
        serious && known.is_none_or(|known| known.reason != condition.reason || known.message != condition.message)
    })
}

fn object(status: &APIServiceBindingStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// What the provider is told of the export.
pub fn report(status: &APIServiceBindingStatus, plan: &Plan) -> ExportReport {
    let refused = plan.states.values().find_map(|state| match state {
        State::Refused { message, .. } => Some(message),
        State::Pending { .. } | State::Usable(_) => None,
    });
    let connected = match refused {
        None => true_condition("Connected"),
        Some(message) => false_condition("Connected", Severity::Warning, "BoundSchemasNotValid", message),
    };
    let in_sync = match conditions::get(&status.conditions, types::SCHEMA_IN_SYNC) {
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

fn facts(seen: &Observed, status: &mut APIServiceBindingStatus) {
    status.bound_schemas = seen.bound();
    let (Some(session), Access::Reached(_)) = (&seen.session, &seen.access) else {
        return;
    };
    status.contract_uid = Some(session.contract_uid.to_string());
    status.provider_namespace = Some(session.contract.to_string());
    if let Some(name) = &session.pretty_name {
        status.provider_pretty_name = Some(name.clone());
    }
    if let Some(export) = seen.export() {
        status.permission_claims.clone_from(&export.spec.permission_claims);
    }
}

fn secret_valid(seen: &Observed) -> Condition {
    let error = |reason: &str, message: String| false_condition(types::SECRET_VALID, Severity::Error, reason, message);
    let renew = format!("run kubectl bind renew {}", seen.name());
    match &seen.access {
        Access::Problem(problem) => error(problem.reason(), problem.to_string()),
        Access::Connecting => true_condition(types::SECRET_VALID),
        Access::Failed(failure) => {
            use crate::session::dial::DialError;
            match failure {
                DialError::Unauthorized { .. } => error(
                    "CredentialExpired",
                    format!("{failure}; objects stay, and sync resumes with a new credential: {renew}"),
                ),
                DialError::Denied { .. } => error(
                    "CredentialDenied",
                    format!("{failure}; {renew}, or ask the provider's admin"),
                ),
                DialError::Setup { .. } => error("KubeconfigSecretInvalid", format!("{failure}; {renew}")),
                // The Secret may be well: nobody has said that it is not.
                DialError::Unreachable { .. } => unknown_condition(types::SECRET_VALID, "ProviderUnreachable", ""),
                DialError::Gone { .. } => true_condition(types::SECRET_VALID),
            }
        }
        Access::Changed { pinned, found } => error(
            "ProviderChanged",
            format!(
                "the Secret leads to contract {} ({}) and not to the one that this binding was made for ({pinned}); put the old \
                 one back, or consent by annotating the binding with kube-bind.io/accept-provider-change=<time, RFC 3339>",
                found.namespace, found.uid
            ),
        ),
        Access::Reached(_) => match &seen.session {
            Some(session) => match (&session.expired, &session.renewal_fails) {
                (Some(why), _) => error(
                    "CredentialExpired",
                    format!(
                        "the credential has expired, and {why}; objects stay, and sync resumes with a new one: {renew}"
                    ),
                ),
                (None, Some(why)) => false_condition(
                    types::SECRET_VALID,
                    Severity::Warning,
                    "CredentialRenewalFailing",
                    format!("the credential works and is not renewed: {why}; if that lasts, {renew}"),
                ),
                (None, None) => true_condition(types::SECRET_VALID),
            },
            None => true_condition(types::SECRET_VALID),
        },
    }
}

fn connected(seen: &Observed, plan: &Plan, failures: &Failures) -> Option<Condition> {
    use crate::session::dial::DialError;
    let condition =
        |severity, reason: &str, message: String| Some(false_condition(types::CONNECTED, severity, reason, message));
    let error = |reason: &str, message: String| condition(Severity::Error, reason, message);
    match &seen.access {
        Access::Failed(failure @ DialError::Unreachable { .. }) => {
            return condition(Severity::Warning, "ProviderUnreachable", failure.to_string());
        }
        Access::Failed(failure @ DialError::Gone { .. }) => return error("ContractNotFound", failure.to_string()),
        Access::Reached(_) => {}
        Access::Problem(_) | Access::Connecting | Access::Failed(_) | Access::Changed { .. } => return None,
    }
    let session = seen.session.as_ref()?;
    if let ClusterPin::Other { .. } = session.pin {
        // Said by Heartbeating.
        return None;
    }
    let name = seen.name();
    match &session.export {
        Lookup::Unknown { failure: None } => {
            return condition(
                Severity::Info,
                "Connecting",
                "waiting for the provider to list its exports".to_owned(),
            );
        }
        Lookup::Unknown { failure: Some(failure) } => {
            return condition(
                Severity::Warning,
                "ProviderUnreachable",
                format!("exports cannot be read: {failure}"),
            );
        }
        Lookup::Broken { message } => return error("APIServiceExportInvalid", message.clone()),
        Lookup::Absent if seen.owned().next().is_none() => {
            return error(
                "APIServiceExportNotFound",
                format!(
                    "APIServiceExport {}/{name} does not exist on the provider; bind again",
                    session.contract
                ),
            );
        }
        Lookup::Absent | Lookup::Present(_) if seen.export_is_gone() => {
            return error(
                "ExportRemoved",
                format!(
                    "the provider removed APIServiceExport {}/{name}; objects stay and are not synced any more: bind again, or unbind",
                    session.contract
                ),
            );
        }
        Lookup::Absent | Lookup::Present(_) => {}
    }
    if let Some(failure) = failures.values().next() {
        return error(failure.reason, failure.message.clone());
    }
    let refused = plan.states.values().find_map(|state| match state {
        State::Refused { reason, message } => Some((reason, message)),
        State::Pending { .. } | State::Usable(_) => None,
    });
    match refused {
        Some((reason, message)) => error(reason, message.clone()),
        None => Some(true_condition(types::CONNECTED)),
    }
}

fn schema_in_sync(seen: &Observed, plan: &Plan, failures: &Failures) -> Option<Condition> {
    let of = |severity, reason: &str, message: &str| false_condition(types::SCHEMA_IN_SYNC, severity, reason, message);
    if plan.states.is_empty() {
        return seen
            .binding
            .status
            .as_ref()
            .and_then(|status| conditions::get(&status.conditions, types::SCHEMA_IN_SYNC).cloned())
            .filter(|_| seen.export_is_gone());
    }
    if let Some(failure) = failures.values().next() {
        return Some(of(Severity::Error, failure.reason, &failure.message));
    }
    let problems = |wanted: fn(&State) -> bool| plan.states.values().find(move |state| wanted(state));
    let worst = problems(|state| matches!(state, State::Refused { .. }))
        .or_else(|| problems(|state| matches!(state, State::Pending { .. })));
    Some(match worst {
        Some(State::Refused { reason, message }) => of(Severity::Error, reason, message),
        Some(State::Pending { reason, message }) => of(Severity::Info, reason, message),
        Some(State::Usable(_)) | None => true_condition(types::SCHEMA_IN_SYNC),
    })
}

fn heartbeating(seen: &Observed) -> Option<Condition> {
    let session = seen.session.as_ref()?;
    let of =
        |severity, reason: &str, message: String| Some(false_condition(types::HEARTBEATING, severity, reason, message));
    if let ClusterPin::Other { recorded } = &session.pin {
        return of(
            Severity::Error,
            "ConsumerClusterMismatch",
            format!(
                "contract {} serves another cluster (kube-system {recorded}), so nothing is written; bind with credentials of \
                 this cluster's own, or take it over by annotating the binding with \
                 kube-bind.io/accept-provider-change=<time, RFC 3339>",
                session.contract
            ),
        );
    }
    match &session.heartbeat {
        Heartbeat::Pending => of(
            Severity::Info,
            "FirstHeartbeatPending",
            "the first heartbeat is on its way".to_owned(),
        ),
        Heartbeat::Beating | Heartbeat::OtherCluster { .. } => Some(true_condition(types::HEARTBEATING)),
        Heartbeat::Failing { message } => of(Severity::Warning, "ClusterBindingUpdateFailed", message.clone()),
    }
}

fn informers_synced(seen: &Observed) -> Option<Condition> {
    if seen.engines.is_empty() {
        return None;
    }
    let waiting = seen
        .engines
        .values()
        .find(|engine| !engine.progress.consumer_synced || !engine.progress.provider_synced);
    let Some(engine) = waiting else {
        return Some(true_condition(types::INFORMERS_SYNCED));
    };
    let resource = &engine.spec.resource;
    let Some(problem) = &engine.progress.problem else {
        let message = format!("the first lists of {resource} are on their way");
        return Some(false_condition(
            types::INFORMERS_SYNCED,
            Severity::Info,
            "InformersSyncing",
            message,
        ));
    };
    let mend = if !engine.progress.consumer_synced && problem.contains("forbidden") {
        format!(
            "; {}",
            rights::bound_resource(&seen.name(), &resource.group, &resource.plural)
        )
    } else {
        String::new()
    };
    let message = format!("{resource}: {problem}{mend}");
    Some(false_condition(
        types::INFORMERS_SYNCED,
        Severity::Error,
        "InformerSyncTimeout",
        message,
    ))
}

fn objects_in_sync(seen: &Observed) -> Option<Condition> {
    if seen.engines.is_empty() {
        return None;
    }
    // Without a count, which would change the status with every object.
    let failing = seen.engines.values().find(|engine| engine.progress.failing > 0);
    Some(match failing {
        None => true_condition(types::OBJECTS_IN_SYNC),
        Some(engine) => {
            let problem = engine.progress.problem.as_deref().unwrap_or("see their events");
            let message = format!("some {} are not in sync: {problem}", engine.spec.resource);
            false_condition(types::OBJECTS_IN_SYNC, Severity::Warning, "ObjectsFailing", message)
        }
    })
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
