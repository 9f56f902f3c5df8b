//! What the status says of the way to the provider.

use bindery_api::{
    Condition, Severity, annotations,
    conditions::{false_condition, true_condition, unknown_condition},
    v1alpha2::RemovedExports,
};

use super::{
    Failures,
    types::{self, EXPORT_NOT_SELECTED, EXPORT_REMOVED},
};
use crate::{
    binding::{
        consent::Consent,
        credential::Access,
        observe::{ClusterPin, Observed, SessionSeen},
        plan::Plan,
        resource::State,
    },
    session::{dial::DialError, exports::Lookup, heartbeat::Heartbeat},
};

/// How a holder of credentials is told what to do.
pub(crate) struct Words<'a> {
    /// `binding` or `bundle`.
    pub(crate) kind: &'a str,
    /// How to give it a new credential.
    pub(crate) renew: String,
    /// Whether it is told more exactly what is wrong with its Secret.
    pub(crate) exact: bool,
    /// Whether it lets another provider take over.
    pub(crate) takeover: Consent,
}

pub(super) fn secret_valid(seen: &Observed) -> Condition {
    let words = Words {
        kind: "binding",
        renew: format!("run kubectl bind renew {}", seen.name()),
        exact: false,
        takeover: seen.takeover(),
    };
    secret_valid_for(&seen.access, seen.session.as_ref(), &words)
}

/// What is to be said of the Secret of a binding or a bundle.
pub(crate) fn secret_valid_for(access: &Access, session: Option<&SessionSeen>, words: &Words<'_>) -> Condition {
    let renew = &words.renew;
    match access {
        Access::Problem(problem) if words.exact => invalid(problem.exact_reason(), problem.to_string()),
        Access::Problem(problem) => invalid(problem.reason(), problem.to_string()),
        Access::Connecting => true_condition(types::SECRET_VALID),
        Access::Failed(failure) => unusable(failure, renew),
        Access::Changed { pinned, found } => invalid(
            "ProviderChanged",
            format!(
                "the Secret leads to contract {} ({}) and not to the one that this {kind} was made for ({pinned}); put the old \
                 one back, or consent by annotating the {kind} with kube-bind.io/accept-provider-change=<time, RFC 3339>{}",
                found.namespace,
                found.uid,
                words.takeover.complaint(annotations::ACCEPT_PROVIDER_CHANGE),
                kind = words.kind,
            ),
        ),
        Access::Reached(_) => match session {
            Some(session) => credential(session, renew),
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
    let name = seen.export_name();
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
        Lookup::Absent | Lookup::Present(_) if seen.export_is_gone() && seen.bundle.is_some() => removed(seen, session),
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
            EXPORT_REMOVED,
            format!(
                "the provider removed APIServiceExport {}/{name}; objects stay and are not synced any more: bind again, or unbind",
                session.contract
            ),
        ),
        Lookup::Absent | Lookup::Present(_) => return unselected(seen, session),
    })
}

/// What becomes of a bundle's binding whose export the provider took away.
fn removed(seen: &Observed, session: &SessionSeen) -> Condition {
    let message = format!(
        "the provider removed APIServiceExport {}/{}; objects stay and are not synced any more",
        session.contract,
        seen.export_name()
    );
    away(Severity::Error, EXPORT_REMOVED, format!("{message}; {}", fate(seen)))
}

/// What becomes of one whose export its bundle does not take any more.
fn unselected(seen: &Observed, session: &SessionSeen) -> Option<Condition> {
    let bundle = seen.bundle.as_ref().filter(|bundle| !bundle.selects)?;
    let message = format!(
        "spec.selector of APIServiceBindingBundle {} does not take APIServiceExport {}/{} any more; it is synced until the \
         binding ends",
        bundle.name,
        session.contract,
        seen.export_name()
    );
    Some(away(
        Severity::Error,
        EXPORT_NOT_SELECTED,
        format!("{message}; {}", fate(seen)),
    ))
}

/// Until when such a binding stays, and how it is ended.
fn fate(seen: &Observed) -> String {
    // While others count anew, people are told what was counted last; nothing is decided by that.
    let counted = match seen.objects().or(seen.last_count) {
        Some(1) => "1 object is left".to_owned(),
        Some(left) => format!("{left} objects are left"),
        None => "objects are being counted".to_owned(),
    };
    let (name, allow) = (seen.name(), annotations::ALLOW_UNBIND);
    let policy = seen.bundle.as_ref().map(|bundle| bundle.removed).unwrap_or_default();
    match policy {
        _ if seen.is_paused() => format!("{counted}; the binding is paused, and stays until that ends"),
        RemovedExports::Unbind => {
            format!("{counted}; the binding ends, with its objects, unless the export comes back")
        }
        RemovedExports::Keep => format!(
            "{counted}, and with the last of them the binding ends: delete them, or let them go with the binding: kubectl \
             annotate apiservicebinding {name} --overwrite {allow}=$(date -u -d +1hour +%Y-%m-%dT%H:%M:%SZ){}",
            seen.unbind_allowed().complaint(allow)
        ),
    }
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
