//! How the provider's export goes.

use super::{FORCE, unpinned};
use crate::{
    binding::{
        credential::{Access, SecretProblem},
        observe::{self, ClusterPin, DeletionSeen, Observed},
    },
    session::{dial::DialError, exports::Lookup},
};

/// What is left to do about the provider's export, once no object is left.
pub(super) enum Export {
    Done { leaves: Option<String> },
    Ask { uid: String, force: bool },
    Wait { message: String, stuck: bool },
}

/// Decides that.
pub(super) fn export(seen: &Observed) -> Export {
    let name = seen.export_name();
    if observe::bundle_of(&seen.binding).is_some() && !seen.orphans() {
        // It was found there, and not made by binding: a bundle that comes again finds it again.
        return Export::Done { leaves: None };
    }
    let leaves = |why: &str| Export::Done {
        leaves: Some(format!("the provider keeps APIServiceExport {name}: {why}")),
    };
    if seen.is_forced() {
        return leaves("the unbind was forced; delete it and its objects there, or ask its admin to");
    }
    match &seen.deletion {
        Some(DeletionSeen::Done) => return Export::Done { leaves: None },
        Some(DeletionSeen::Running) => {
            return Export::Wait {
                message: "waiting for the provider to delete the export".to_owned(),
                stuck: false,
            };
        }
        Some(DeletionSeen::Failing(message)) => {
            return Export::Wait {
                message: format!("the provider does not delete the export: {message}; {FORCE}"),
                stuck: true,
            };
        }
        None => {}
    }
    let never_connected = seen.pinned().is_none();
    let wait = |message: String, stuck: bool| Export::Wait { message, stuck };
    match &seen.access {
        Access::Connecting => return wait("waiting for the provider to answer".to_owned(), false),
        // Nothing was ever made through this binding.
        Access::Problem(_) | Access::Failed(_) if never_connected => {
            return leaves("this binding never reached it");
        }
        Access::Problem(SecretProblem::NotFound { .. }) => return leaves("the Secret that leads there is gone"),
        Access::Problem(problem) => return wait(format!("{problem}; {FORCE}"), true),
        Access::Failed(DialError::Gone { .. }) => return Export::Done { leaves: None },
        Access::Failed(error) => return wait(format!("{error}; {FORCE}"), true),
        Access::Changed { .. } => return leaves("the Secret leads to another provider"),
        Access::Reached(_) => {}
    }
    let Some(session) = &seen.session else {
        return wait("waiting for the session with the provider".to_owned(), false);
    };
    if matches!(session.pin, ClusterPin::Other { .. }) {
        return leaves("the contract serves another cluster");
    }
    match &session.export {
        Lookup::Absent => Export::Done { leaves: None },
        Lookup::Present(export) if export.metadata.deletion_timestamp.is_some() => Export::Done { leaves: None },
        // It may be another cluster's.
        Lookup::Present(_) if session.pin == ClusterPin::Unknown => {
            let (message, stuck) = unpinned(session);
            wait(message, stuck)
        }
        Lookup::Present(_) if !session.has_backend && seen.orphans() => leaves(
            "it has no backend that would delete it and mark the objects that stay as released; its admin may do both",
        ),
        Lookup::Present(_) if !session.has_backend => {
            leaves("it has no backend that would delete it; its admin may delete it there")
        }
        Lookup::Present(export) => Export::Ask {
            uid: export.metadata.uid.clone().unwrap_or_default(),
            force: seen.orphans(),
        },
        Lookup::Broken { message } => wait(format!("{message}; {FORCE}"), true),
        Lookup::Unknown { failure } => {
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
