//! Decides how a binding that is being deleted ends: objects, CRDs, the provider's export, credentials, rights, and the
//! finalizer last. Each step is seen to be done before the next, so that a successor goes on where this one was killed.

use std::collections::BTreeSet;

use bindery_api::finalizers;
use bindery_runtime::crds::is_established;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;

use super::{
    credential::{Access, SecretProblem},
    observe::{ClusterPin, DeletionSeen, EngineSpec, Observed, SessionSeen},
    plan::{Op, release},
    resource::{self, Schema, State},
};
use crate::{
    release::Mode,
    session::{exports::Lookup, heartbeat::Heartbeat},
};

/// What to do, and what to say of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ending {
    /// The steps.
    pub ops: Vec<Op>,
    /// Objects that are left, where they were counted.
    pub remaining: Option<usize>,
    /// What is going on, or waited for.
    pub message: String,
    /// Nobody can go on without the user.
    pub stuck: bool,
    /// What stays on the provider, said once at the end.
    pub leaves: Option<String>,
}

/// Who answers for the objects.
#[derive(Debug, PartialEq)]
enum Way {
    /// The provider: engines delete here and there.
    Drain { session: u64 },
    /// Nobody: objects are deleted here alone.
    Release,
    /// It cannot be told yet.
    Wait { message: String, stuck: bool },
}

/// Decides.
pub fn plan(seen: &Observed) -> Ending {
    if !seen
        .binding
        .finalizers()
        .iter()
        .any(|finalizer| finalizer == finalizers::KONNECTOR)
    {
        return Ending::default();
    }
    if seen.owned().next().is_some() {
        return objects(seen);
    }
    let mut ending = Ending::default();
    for name in seen.engines.keys() {
        ending.ops.push(Op::StopEngine { name: name.clone() });
    }
    for name in seen.releasers.keys() {
        ending.ops.push(Op::StopReleaser { name: name.clone() });
    }
    match export(seen) {
        Export::Done { leaves } => ending.leaves = leaves,
        Export::Ask { uid, force } => {
            ending.ops.push(Op::DeleteExport { uid, force });
            "the provider is asked to delete the export".clone_into(&mut ending.message);
            return ending;
        }
        Export::Wait { message, stuck } => {
            ending.message = message;
            ending.stuck = stuck;
            return ending;
        }
    }
    if let Some(contract_uid) = seen
        .pinned()
        .filter(|_| seen.has_stored_secret && !seen.contract_is_shared)
    {
        let contract_uid = contract_uid.to_owned();
        ending.ops.push(Op::DeleteStored { contract_uid });
    }
    ending.ops.extend([Op::DeleteRoles, Op::ClearFinalizer]);
    "the last traces are removed".clone_into(&mut ending.message);
    ending
}

fn objects(seen: &Observed) -> Ending {
    match way(seen) {
        Way::Drain { session } => drain(seen, session),
        Way::Release => let_go(seen),
        Way::Wait { message, stuck } => Ending {
            ops: vec![Op::Pause(true)],
            message,
            stuck,
            ..Ending::default()
        },
    }
}

fn way(seen: &Observed) -> Way {
    if seen.is_forced() || seen.orphans() || seen.pinned().is_none() {
        return Way::Release;
    }
    let wait = |message: String, stuck: bool| Way::Wait { message, stuck };
    match &seen.access {
        Access::Connecting => return wait("waiting for the provider to answer".to_owned(), false),
        Access::Problem(problem) => return wait(format!("{problem}; {FORCE}"), true),
        Access::Failed(error) => return wait(format!("{error}; {FORCE}"), true),
        Access::Changed { .. } => {
            return wait(
                format!("the Secret leads to another provider, so nobody can tell the old one; {FORCE}"),
                true,
            );
        }
        Access::Reached(_) => {}
    }
    let Some(session) = &seen.session else {
        return wait("waiting for the session with the provider".to_owned(), false);
    };
    if let Some(expired) = &session.expired {
        return wait(
            format!("the credential has expired ({expired}); run kubectl bind renew; {FORCE}"),
            true,
        );
    }
    match &session.pin {
        ClusterPin::Unknown => {
            let (message, stuck) = unpinned(session);
            return wait(message, stuck);
        }
        ClusterPin::Other { recorded } => {
            return wait(
                format!("the contract serves another cluster ({recorded}); {FORCE}"),
                true,
            );
        }
        ClusterPin::Ours => {}
    }
    match &session.export {
        Lookup::Unknown { failure } => {
            let why = failure
                .as_deref()
                .map_or_else(String::new, |failure| format!(": {failure}"));
            wait(format!("waiting for the provider to list its exports{why}"), false)
        }
        Lookup::Broken { message } => wait(format!("{message}; {FORCE}"), true),
        Lookup::Absent | Lookup::Present(_) if seen.export_is_gone() => Way::Release,
        Lookup::Absent | Lookup::Present(_) => Way::Drain { session: session.id },
    }
}

/// What to say while it is not known whether the contract serves this cluster.
fn unpinned(session: &SessionSeen) -> (String, bool) {
    match &session.heartbeat {
        Heartbeat::Failing { message } => (format!("{message}; {FORCE}"), true),
        _ => ("waiting for the provider to answer".to_owned(), false),
    }
}

const FORCE: &str = "mend that, or annotate the binding with kube-bind.io/force-unbind=true to end it without the \
                     provider, whose objects then stay there";

fn drain(seen: &Observed, session: u64) -> Ending {
    let mut ending = Ending {
        remaining: Some(0),
        ..Ending::default()
    };
    let Some(export) = seen.export() else {
        return ending;
    };
    for name in seen.releasers.keys() {
        ending.ops.push(Op::StopReleaser { name: name.clone() });
    }
    for (name, crd) in seen.owned() {
        if resource::was_never_served(crd) && !seen.engines.contains_key(name) {
            remove(&mut ending, name, crd);
            continue;
        }
        let schema = seen.schemas.get(name).unwrap_or(&Schema::Missing);
        let state = resource::plan(name, schema, Some(crd), &seen.binding).state;
        let spec = match state {
            State::Usable(resource) => Some(EngineSpec {
                session,
                export: (seen.name(), export.metadata.uid.clone().unwrap_or_default()),
                resource,
                informer_scope: export.spec.informer_scope,
            }),
            State::Refused { message, .. } | State::Pending { message, .. } => {
                if !seen.engines.contains_key(name) {
                    ending.remaining = None;
                    let established = if is_established(crd) { "" } else { "; it is not served" };
                    ending.message = format!("waiting to drain {name}: {message}{established}; {FORCE}");
                    ending.stuck = matches!(schema, Schema::Missing);
                    continue;
                }
                None
            }
        };
        let Some(engine) = seen.engines.get(name) else {
            ending.remaining = None;
            ending.ops.extend(spec.map(|spec| Op::StartEngine {
                name: name.clone(),
                spec,
            }));
            ending.ops.push(Op::DrainEngine { name: name.clone() });
            continue;
        };
        if engine.spec.session != session {
            ending.ops.push(Op::StopEngine { name: name.clone() });
            ending.remaining = None;
            continue;
        }
        if !engine.draining {
            ending.ops.push(Op::DrainEngine { name: name.clone() });
        }
        let left = engine
            .progress
            .remaining
            .filter(|_| engine.draining && engine.progress.consumer_synced);
        ending.remaining = ending.remaining.zip(left).map(|(sum, left)| sum + left);
        if left == Some(0) {
            remove(&mut ending, name, crd);
        }
        if let Some(problem) = &engine.progress.problem {
            ending.message = format!("{problem}; {FORCE}");
        }
    }
    ending.ops.push(Op::Pause(false));
    describe(&mut ending);
    ending
}

fn let_go(seen: &Observed) -> Ending {
    let mut ending = Ending {
        ops: release(seen, &BTreeSet::new(), &BTreeSet::new(), Mode::All),
        remaining: Some(0),
        ..Ending::default()
    };
    for (name, crd) in seen.owned() {
        let released = seen
            .releasers
            .get(name)
            .filter(|(mode, _)| *mode == Mode::All)
            .map(|(_, released)| released);
        let left = match released {
            _ if resource::was_never_served(crd) => Some(0),
            released => released.and_then(|released| released.remaining),
        };
        ending.remaining = ending.remaining.zip(left).map(|(sum, left)| sum + left);
        if left == Some(0) {
            remove(&mut ending, name, crd);
        }
        if let Some(problem) = released.and_then(|released| released.problem.as_ref()) {
            ending.message.clone_from(problem);
        }
    }
    describe(&mut ending);
    ending
}

fn remove(ending: &mut Ending, name: &str, crd: &CustomResourceDefinition) {
    if crd.metadata.deletion_timestamp.is_none() {
        ending.ops.push(Op::DeleteCrd {
            name: name.to_owned(),
            uid: crd.metadata.uid.clone().unwrap_or_default(),
        });
    }
}

fn describe(ending: &mut Ending) {
    let counted = match ending.remaining {
        Some(0) => "all objects are gone; their CRDs are being removed".to_owned(),
        Some(1) => "1 object is left to delete".to_owned(),
        Some(left) => format!("{left} objects are left to delete"),
        None => "counting the objects that are left".to_owned(),
    };
    ending.message = match &*ending.message {
        "" => counted,
        problem => format!("{counted}: {problem}"),
    };
}

enum Export {
    Done { leaves: Option<String> },
    Ask { uid: String, force: bool },
    Wait { message: String, stuck: bool },
}

/// What is left to do about the provider's export, once no object is left.
fn export(seen: &Observed) -> Export {
    let name = seen.name();
    let leaves = |why: &str| Export::Done {
        leaves: Some(format!("the provider keeps APIServiceExport {name}: {why}")),
    };
    if seen.is_forced() {
        return leaves("the unbind was forced; delete it there, or ask its admin to");
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
        Access::Failed(crate::session::dial::DialError::Gone { .. }) => return Export::Done { leaves: None },
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

#[cfg(test)]
#[path = "unbind_tests.rs"]
mod tests;
