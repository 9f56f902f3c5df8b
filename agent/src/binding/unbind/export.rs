//! Decides how the provider's export is deleted.

use super::{FORCE, unpinned, unverified};
use crate::{
    binding::observed::{ExportDeletion, ObservedBinding},
    controller::{
        access::{ContractAccess, SecretProblem},
        conditions::not_held,
        observed_session::ClusterPin,
        ownership::bundle_of,
    },
    holder::Standing,
    session::{connect::ConnectError, exports::ExportLookup},
};

/// The next step for the provider's export, once no object is left.
pub(super) enum ExportStep {
    /// Nothing is left to do. `provider_keeps` says what stays on the provider.
    Done { provider_keeps: Option<String> },
    /// Request the deletion from the provider.
    Request { uid: String, force: bool },
    /// Wait, for the user if `stuck`.
    Wait { message: String, stuck: bool },
}

/// Decides the next step for the provider's export.
pub(super) fn export_step(seen: &ObservedBinding) -> ExportStep {
    let name = seen.export_name();
    if bundle_of(&seen.binding).is_some() && !seen.orphans() {
        // The export was not made by this binding. A bundle that is created again binds it again.
        return ExportStep::Done { provider_keeps: None };
    }
    let keeps = |why: &str| ExportStep::Done {
        provider_keeps: Some(format!("the provider keeps APIServiceExport {name}: {why}")),
    };
    if seen.is_forced() {
        return keeps("the unbind was forced; delete the export and its objects there, or ask its admin to");
    }
    match &seen.deletion {
        Some(ExportDeletion::Done) => return ExportStep::Done { provider_keeps: None },
        Some(ExportDeletion::Running) => {
            return ExportStep::Wait {
                message: "waiting for the provider to delete the export".to_owned(),
                stuck: false,
            };
        }
        Some(ExportDeletion::Failing(message)) => {
            return ExportStep::Wait {
                message: format!("the provider cannot delete the export: {message}; {FORCE}"),
                stuck: true,
            };
        }
        None => {}
    }
    let never_connected = seen.pinned().is_none();
    let wait = |message: String, stuck: bool| ExportStep::Wait { message, stuck };
    match &seen.access {
        ContractAccess::Connecting => return wait("waiting for the provider to answer".to_owned(), false),
        // The binding never created anything on the provider.
        ContractAccess::Problem(_) | ContractAccess::Failed(_) if never_connected => {
            return keeps("this binding never reached it");
        }
        ContractAccess::Problem(SecretProblem::NotFound { .. }) => return keeps("the Secret that leads there is gone"),
        ContractAccess::Problem(problem) => return wait(format!("{problem}; {FORCE}"), true),
        ContractAccess::Failed(ConnectError::Gone { .. }) => return ExportStep::Done { provider_keeps: None },
        ContractAccess::Failed(error) => return wait(format!("{error}; {FORCE}"), true),
        ContractAccess::Changed { .. } => return keeps("the Secret leads to another provider"),
        ContractAccess::Reached(_) => {}
    }
    let Some(session) = &seen.session else {
        return wait("waiting for the session with the provider".to_owned(), false);
    };
    if matches!(session.pin, ClusterPin::Other { .. }) {
        return keeps("the contract serves another cluster");
    }
    if let Some((_, told)) = not_held(session) {
        return if session.has_backend {
            wait(format!("{told}; {FORCE}"), true)
        } else {
            keeps("this konnector does not hold the contract; ask its admin to delete it there")
        };
    }
    if session.standing == Standing::Pending {
        return wait(
            "waiting for the provider to accept the first heartbeat".to_owned(),
            false,
        );
    }
    if !session.is_trusted() {
        return if session.has_backend {
            wait(unverified(session), true)
        } else {
            keeps("the contract cannot be verified; ask its admin to delete it there")
        };
    }
    match &session.export {
        ExportLookup::Absent => ExportStep::Done { provider_keeps: None },
        ExportLookup::Present(export) if export.metadata.deletion_timestamp.is_some() => {
            ExportStep::Done { provider_keeps: None }
        }
        // The export may belong to another cluster.
        ExportLookup::Present(_) if session.pin == ClusterPin::Unknown => {
            let (message, stuck) = unpinned(session);
            wait(message, stuck)
        }
        ExportLookup::Present(_) if !session.has_backend && seen.keeps_copies() && !seen.releases_copies() => keeps(
            "it has no backend that deletes it and marks the objects that stay as released; ask its admin to do both",
        ),
        ExportLookup::Present(_) if !session.has_backend => {
            keeps("it has no backend that deletes it; ask its admin to delete it there")
        }
        ExportLookup::Present(export) => ExportStep::Request {
            uid: export.metadata.uid.clone().unwrap_or_default(),
            force: seen.keeps_copies(),
        },
        ExportLookup::Broken { message } => wait(format!("{message}; {FORCE}"), true),
        ExportLookup::Unknown { failure } => {
            let why = failure
                .as_deref()
                .map_or_else(String::new, |failure| format!(": {failure}"));
            match &session.expired {
                Some(expired) => wait(
                    format!("the credential has expired ({expired}); run kubectl bind renew; {FORCE}"),
                    true,
                ),
                None => wait(format!("waiting for the provider to list its exports{why}"), false),
            }
        }
    }
}
