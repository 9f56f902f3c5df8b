//! What the status says of the way to the provider.

use bindery_api::{
    Condition, Severity, annotations,
    conditions::{false_condition, true_condition, unknown_condition},
};

use super::{Failures, types};
use crate::{
    binding::{
        credential::Access,
        observe::{ClusterPin, Observed, SessionSeen},
        plan::Plan,
        resource::State,
    },
    session::{dial::DialError, exports::Lookup, heartbeat::Heartbeat},
};

pub(super) fn secret_valid(seen: &Observed) -> Condition {
    let renew = format!("run kubectl bind renew {}", seen.name());
    match &seen.access {
        Access::Problem(problem) => invalid(problem.reason(), problem.to_string()),
        Access::Connecting => true_condition(types::SECRET_VALID),
        Access::Failed(failure) => unusable(failure, &renew),
        Access::Changed { pinned, found } => invalid(
            "ProviderChanged",
            format!(
                "the Secret leads to contract {} ({}) and not to the one that this binding was made for ({pinned}); put the old \
                 one back, or consent by annotating the binding with kube-bind.io/accept-provider-change=<time, RFC 3339>{}",
                found.namespace,
                found.uid,
                seen.takeover().complaint(annotations::ACCEPT_PROVIDER_CHANGE),
            ),
        ),
        Access::Reached(_) => match &seen.session {
            Some(session) => credential(session, &renew),
            None => true_condition(types::SECRET_VALID),
        },
    }
}

fn invalid(reason: &str, message: String) -> Condition {
    false_condition(types::SECRET_VALID, Severity::Error, reason, message)
}

/// What a provider that was asked with it says of the Secret.
fn unusable(failure: &DialError, renew: &str) -> Condition {
    match failure {
        DialError::Unauthorized { .. } => invalid(
            "CredentialExpired",
            format!("{failure}; objects stay, and sync resumes with a new credential: {renew}"),
        ),
        DialError::Denied { .. } => invalid(
            "CredentialDenied",
            format!("{failure}; {renew}, or ask the provider's admin"),
        ),
        DialError::Setup { .. } => invalid("KubeconfigSecretInvalid", format!("{failure}; {renew}")),
        // The Secret may be well: nobody has said that it is not.
        DialError::Unreachable { .. } => unknown_condition(types::SECRET_VALID, "ProviderUnreachable", ""),
        DialError::Gone { .. } => true_condition(types::SECRET_VALID),
    }
}

/// What a session that is open says of it.
fn credential(session: &SessionSeen, renew: &str) -> Condition {
    match (&session.expired, &session.renewal_fails) {
        (Some(why), _) => invalid(
            "CredentialExpired",
            format!("the credential has expired, and {why}; objects stay, and sync resumes with a new one: {renew}"),
        ),
        (None, Some(why)) => false_condition(
            types::SECRET_VALID,
            Severity::Warning,
            "CredentialRenewalFailing",
            format!("the credential works and is not renewed: {why}; if that lasts, {renew}"),
        ),
        (None, None) => true_condition(types::SECRET_VALID),
    }
}

pub(super) fn connected(seen: &Observed, plan: &Plan, failures: &Failures) -> Option<Condition> {
    match &seen.access {
        Access::Failed(failure @ DialError::Unreachable { .. }) => {
            return Some(away(Severity::Warning, "ProviderUnreachable", failure.to_string()));
        }
        Access::Failed(failure @ DialError::Gone { .. }) => {
            return Some(away(Severity::Error, "ContractNotFound", failure.to_string()));
        }
        Access::Reached(_) => {}
        Access::Problem(_) | Access::Connecting | Access::Failed(_) | Access::Changed { .. } => return None,
    }
    let session = seen.session.as_ref()?;
    if let ClusterPin::Other { .. } = session.pin {
        // Said by Heartbeating.
        return None;
    }
    if let Some(condition) = without_export(seen, session) {
        return Some(condition);
    }
    if let Some(failure) = failures.values().next() {
        return Some(away(Severity::Error, failure.reason, failure.message.clone()));
    }
    let refused = plan.states.values().find_map(|state| match state {
        State::Refused { reason, message } => Some((reason, message)),
        State::Pending { .. } | State::Usable(_) => None,
    });
    Some(match refused {
        Some((reason, message)) => away(Severity::Error, reason, message.clone()),
        None => true_condition(types::CONNECTED),
    })
}

fn away(severity: Severity, reason: &str, message: String) -> Condition {
    false_condition(types::CONNECTED, severity, reason, message)
}

/// Why there is no export to serve; `None` if there is one.
fn without_export(seen: &Observed, session: &SessionSeen) -> Option<Condition> {
    let name = seen.name();
    Some(match &session.export {
        Lookup::Unknown { failure: None } => away(
            Severity::Info,
            "Connecting",
            "waiting for the provider to list its exports".to_owned(),
        ),
        Lookup::Unknown { failure: Some(failure) } => away(
            Severity::Warning,
            "ProviderUnreachable",
            format!("exports cannot be read: {failure}"),
        ),
        Lookup::Broken { message } => away(Severity::Error, "APIServiceExportInvalid", message.clone()),
        Lookup::Absent if seen.owned().next().is_none() => away(
            Severity::Error,
            "APIServiceExportNotFound",
            format!(
                "APIServiceExport {}/{name} does not exist on the provider; bind again",
                session.contract
            ),
        ),
        Lookup::Absent | Lookup::Present(_) if seen.export_is_gone() => away(
            Severity::Error,
            "ExportRemoved",
            format!(
                "the provider removed APIServiceExport {}/{name}; objects stay and are not synced any more: bind again, or unbind",
                session.contract
            ),
        ),
        Lookup::Absent | Lookup::Present(_) => return None,
    })
}

pub(super) fn heartbeating(seen: &Observed) -> Option<Condition> {
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
                 kube-bind.io/accept-provider-change=<time, RFC 3339>{}",
                session.contract,
                seen.takeover().complaint(annotations::ACCEPT_PROVIDER_CHANGE),
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
