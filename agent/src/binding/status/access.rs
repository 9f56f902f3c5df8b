//! Conditions of a binding about the way to its provider.

use bindery_api::{
    Condition, Severity, annotations,
    conditions::{CONTRACT_UNVERIFIED, EXPORT_NOT_SELECTED, EXPORT_REMOVED, false_condition, true_condition},
    v1alpha2::RemovedExports,
};

use super::{CrdFailures, types};
use crate::{
    binding::{observed::ObservedBinding, plan::BindingPlan},
    controller::{
        access::ContractAccess,
        conditions::{self, CredentialWording},
        observed_session::{ClusterPin, ObservedSession, other_cluster},
    },
    session::{
        connect::ConnectError, exports::ExportLookup, heartbeat::Heartbeat, provider_rights::LIST_CLUSTER_BINDINGS,
    },
};

/// The condition SecretValid.
pub(super) fn secret_valid(seen: &ObservedBinding) -> Condition {
    let wording = CredentialWording {
        kind: "binding",
        renew: format!("run kubectl bind renew {}", seen.name()),
        exact: false,
        takeover: seen.takeover(),
    };
    conditions::secret_valid(&seen.access, seen.session.as_ref(), &wording)
}

/// The condition Connected; `None` while the credentials reach no contract or the contract serves another cluster.
pub(super) fn connected(seen: &ObservedBinding, plan: &BindingPlan, failures: &CrdFailures) -> Option<Condition> {
    match &seen.access {
        ContractAccess::Failed(failure @ ConnectError::Unreachable { .. }) => {
            return Some(away(Severity::Warning, "ProviderUnreachable", failure.to_string()));
        }
        ContractAccess::Failed(failure @ ConnectError::Unverified { .. }) => {
            return Some(away(Severity::Error, CONTRACT_UNVERIFIED, failure.to_string()));
        }
        ContractAccess::Failed(failure @ ConnectError::Gone { .. }) => {
            return Some(away(Severity::Error, "ContractNotFound", failure.to_string()));
        }
        ContractAccess::Reached(_) => {}
        ContractAccess::Problem(_)
        | ContractAccess::Connecting
        | ContractAccess::Failed(_)
        | ContractAccess::Changed { .. } => return None,
    }
    let session = seen.session.as_ref()?;
    if let ClusterPin::Other { .. } = session.pin {
        // The condition Heartbeating reports it.
        return None;
    }
    if let Some(condition) = without_export(seen, session) {
        return Some(condition);
    }
    if let Some(failure) = failures.values().next() {
        return Some(away(Severity::Error, failure.reason, failure.message.clone()));
    }
    Some(match plan.refused() {
        Some((reason, message)) => away(Severity::Error, reason, message.clone()),
        None => true_condition(types::CONNECTED),
    })
}

/// The condition Connected, False for this reason.
fn away(severity: Severity, reason: &str, message: String) -> Condition {
    false_condition(types::CONNECTED, severity, reason, message)
}

/// The condition Connected while there is no export to sync; `None` if there is one.
fn without_export(seen: &ObservedBinding, session: &ObservedSession) -> Option<Condition> {
    let name = seen.export_name();
    Some(match &session.export {
        ExportLookup::Unknown { failure: None } => away(
            Severity::Info,
            "Connecting",
            "waiting for the provider to list its exports".to_owned(),
        ),
        ExportLookup::Unknown { failure: Some(failure) } => away(
            Severity::Warning,
            "ProviderUnreachable",
            format!("exports cannot be read: {failure}"),
        ),
        ExportLookup::Broken { message } => away(Severity::Error, "APIServiceExportInvalid", message.clone()),
        ExportLookup::Absent | ExportLookup::Present(_) if seen.export_is_gone() && seen.bundle.is_some() => {
            removed(seen, session)
        }
        ExportLookup::Absent if seen.owned().next().is_none() => away(
            Severity::Error,
            "APIServiceExportNotFound",
            format!(
                "APIServiceExport {}/{name} does not exist on the provider; bind again",
                session.contract
            ),
        ),
        ExportLookup::Absent | ExportLookup::Present(_) if seen.export_is_gone() => away(
            Severity::Error,
            EXPORT_REMOVED,
            format!(
                "the provider removed APIServiceExport {}/{name}; objects stay and are no longer synced: bind again, or unbind",
                session.contract
            ),
        ),
        ExportLookup::Absent | ExportLookup::Present(_) if seen.export_is_missed() => away(
            Severity::Warning,
            CONTRACT_UNVERIFIED,
            format!(
                "the provider shows no APIServiceExport {}/{name}, but the contract cannot be verified, so nothing is unbound; \
                 condition ProviderAccessComplete says why",
                session.contract
            ),
        ),
        ExportLookup::Absent | ExportLookup::Present(_) => return unselected(seen, session),
    })
}

/// The condition Connected of a bundle's binding whose export the provider removed.
fn removed(seen: &ObservedBinding, session: &ObservedSession) -> Condition {
    let message = format!(
        "the provider removed APIServiceExport {}/{}; objects stay and are no longer synced",
        session.contract,
        seen.export_name()
    );
    away(Severity::Error, EXPORT_REMOVED, format!("{message}; {}", fate(seen)))
}

/// The condition Connected of a bundle's binding whose export the bundle's selector no longer matches.
fn unselected(seen: &ObservedBinding, session: &ObservedSession) -> Option<Condition> {
    let bundle = seen.bundle.as_ref().filter(|bundle| !bundle.selects)?;
    let message = format!(
        "spec.selector of APIServiceBindingBundle {} no longer matches APIServiceExport {}/{}; it is synced until the \
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

/// Tells when a binding without an export ends, and how the user can end it.
fn fate(seen: &ObservedBinding) -> String {
    // While objects are counted again, the message shows the last count. Decisions never use it.
    let counted = match seen.objects().or(seen.last_count) {
        Some(1) => "1 object is left".to_owned(),
        Some(left) => format!("{left} objects are left"),
        None => "objects are being counted".to_owned(),
    };
    let (name, allow) = (seen.name(), annotations::ALLOW_UNBIND);
    let policy = seen.bundle.as_ref().map(|bundle| bundle.removed).unwrap_or_default();
    match policy {
        _ if seen.is_paused() => format!("{counted}; the binding is paused, and stays until it is resumed"),
        RemovedExports::Unbind => {
            format!("{counted}; the binding and its objects will be deleted unless the export comes back")
        }
        RemovedExports::Keep => format!(
            "{counted}, and the binding ends with the last of them: delete them, or consent to delete them with the binding: kubectl \
             annotate apiservicebinding {name} --overwrite {allow}=$(date -u -d +1hour +%Y-%m-%dT%H:%M:%SZ){}",
            seen.unbind_allowed().complaint(allow)
        ),
    }
}

/// The condition Heartbeating.
pub(super) fn heartbeating(seen: &ObservedBinding) -> Option<Condition> {
    let session = seen.session.as_ref()?;
    let of =
        |severity, reason: &str, message: String| Some(false_condition(types::HEARTBEATING, severity, reason, message));
    if let ClusterPin::Other { recorded } = &session.pin {
        return of(
            Severity::Error,
            conditions::CONSUMER_CLUSTER_MISMATCH,
            format!(
                "contract {} serves another cluster ({}), so nothing is written; bind with credentials \
                 for this cluster, or take the contract over by annotating the binding with \
                 kube-bind.io/accept-provider-change=<time, RFC 3339>{}",
                session.contract,
                other_cluster(recorded.as_deref()),
                seen.takeover().complaint(annotations::ACCEPT_PROVIDER_CHANGE),
            ),
        );
    }
    match &session.heartbeat {
        Heartbeat::Pending | Heartbeat::Failing { .. } if session.lacks(LIST_CLUSTER_BINDINGS) => of(
            Severity::Warning,
            "ClusterBindingUpdateFailed",
            format!(
                "the konnector may not read the ClusterBinding of contract {}, so it sends no heartbeats",
                session.contract
            ),
        ),
        Heartbeat::Pending => of(
            Severity::Info,
            "FirstHeartbeatPending",
            "waiting for the provider to accept the first heartbeat".to_owned(),
        ),
        Heartbeat::Beating | Heartbeat::OtherCluster { .. } => Some(true_condition(types::HEARTBEATING)),
        Heartbeat::Withheld => of(
            Severity::Info,
            "NotHeld",
            "no heartbeat is sent while another konnector may hold the contract; condition Held says what was seen"
                .to_owned(),
        ),
        Heartbeat::Failing { message } => of(Severity::Warning, "ClusterBindingUpdateFailed", message.clone()),
    }
}
