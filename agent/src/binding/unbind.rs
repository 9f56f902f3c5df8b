//! Decides how a binding that is being deleted ends: objects, CRDs, the provider's export, credentials, rights, and the
//! finalizer last. Each step is seen to be done before the next, so that a successor goes on where this one was killed.

use std::collections::BTreeSet;

use bindery_api::{annotations, finalizers, v1alpha2::PermissionClaim};
use kube::ResourceExt as _;

use super::{
    claims::{self, By},
    credential::Access,
    observe::{ClusterPin, Observed, SessionSeen},
    plan::{Op, paused},
};
use crate::session::{exports::Lookup, heartbeat::Heartbeat};

mod export;
mod objects;

use export::{Export, export};
use objects::{describe, drain, let_go, remove};

/// What to do, and what to say of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ending {
    /// The steps.
    pub ops: Vec<Op>,
    /// Objects that are left, where they were counted.
    pub remaining: Option<usize>,
    /// The claims that the status is to list, where some were withdrawn.
    pub listed: Option<Vec<PermissionClaim>>,
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
    if seen.is_paused() {
        return Ending {
            ops: paused(seen, Vec::new()),
            message: format!(
                "paused by its annotation, so nothing is removed; to go on: kubectl annotate apiservicebinding {} {}-",
                seen.name(),
                annotations::PAUSED
            ),
            ..Ending::default()
        };
    }
    if seen.owned().next().is_some() {
        let mut ending = objects(seen);
        if ending.remaining == Some(0) && !claims(seen, &mut ending) {
            for (name, crd) in seen.owned() {
                remove(&mut ending, name, crd);
            }
            describe(&mut ending);
        }
        return ending;
    }
    let mut ending = Ending::default();
    if claims(seen, &mut ending) {
        return ending;
    }
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

/// Who answers for objects.
fn way(seen: &Observed) -> Way {
    // The provider's objects stay, so that it has nothing to answer for.
    if seen.orphans() {
        return Way::Release;
    }
    answers(seen)
}

/// Who answers for what this binding has on the provider.
fn answers(seen: &Observed) -> Way {
    if seen.is_forced() || seen.pinned().is_none() {
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

/// Withdraws the claims, whose copies serve the objects and so go after them. Answers whether something is left to do.
fn claims(seen: &Observed, ending: &mut Ending) -> bool {
    let has_claims = seen
        .binding
        .status
        .as_ref()
        .is_some_and(|status| !status.permission_claims.is_empty());
    let withdrawal = match answers(seen) {
        _ if !has_claims => None,
        Way::Drain { session } => claims::withdraw(seen, By::Session(session)),
        Way::Release => claims::withdraw(seen, By::Cleanup),
        Way::Wait { message, stuck } => {
            ending.message = format!("waiting to withdraw copies of claimed objects: {message}");
            ending.stuck = stuck;
            ending.ops.push(Op::Pause(true));
            return true;
        }
    };
    let Some(withdrawal) = withdrawal else {
        // Those that were told to withdraw have.
        ending.listed = Some(Vec::new());
        ending.ops.extend(claims::steps(seen, None, &BTreeSet::new()));
        return false;
    };
    let counted = match withdrawal.left {
        Some(1) => "1 copy of a claimed object is left to delete".to_owned(),
        Some(left) => format!("{left} copies of claimed objects are left to delete"),
        None => "counting the copies of claimed objects that are left".to_owned(),
    };
    ending.message = match withdrawal.problem {
        Some(problem) => format!("{counted}: {problem}; {FORCE}"),
        None => counted,
    };
    ending.ops.extend(withdrawal.ops);
    if !ending.ops.contains(&Op::Pause(false)) {
        ending.ops.push(Op::Pause(false));
    }
    ending.listed = Some(withdrawal.listed);
    true
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

#[cfg(test)]
#[path = "unbind_tests.rs"]
mod tests;
