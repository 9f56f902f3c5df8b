//! Decides how a binding that is being deleted ends: objects, CRDs, the provider's export, credentials, rights, and the
//! finalizer last. Each step is confirmed before the next, so that a restarted konnector continues after a crash.

use std::collections::BTreeSet;

use bindery_api::{annotations, v1alpha2::PermissionClaim};

use super::{
    acceptance,
    claims::{self, Withdrawer},
    observed::ObservedBinding,
    op::BindingOp,
    plan::paused,
};
use crate::{
    controller::{
        access::ContractAccess,
        conditions::not_held,
        observed_session::{ClusterPin, ObservedSession, other_cluster},
    },
    drain::DrainMode,
    engine::Cause,
    holder::Standing,
    session::{exports::ExportLookup, heartbeat::Heartbeat, provider_rights},
};

mod export;
mod objects;

use export::{ExportStep, export_step};
use objects::{delete_crd, describe, drain, let_go, release_objects};

/// What to do for a binding that is being deleted, and what its status says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnbindPlan {
    /// The next steps.
    pub ops: Vec<BindingOp>,
    /// Count of objects that are left; `None` while they are not counted.
    pub remaining: Option<usize>,
    /// Claims that the status has to list, if some were withdrawn.
    pub listed: Option<Vec<PermissionClaim>>,
    /// What is being done, or what the deletion waits for.
    pub message: String,
    /// Whether the deletion waits for the user.
    pub stuck: bool,
    /// What stays on the provider, published as an event at the end.
    pub provider_keeps: Option<String>,
}

/// How the objects of the binding are removed.
#[derive(Debug, PartialEq)]
enum UnbindPath {
    /// Engines of this session delete them on both clusters, or release the copies where the provider keeps them.
    Drain { session: u64 },
    /// Releasers delete them on the consumer only.
    Release,
    /// It is not decided yet.
    Wait { message: String, stuck: bool },
}

/// Decides what to do for a binding that is being deleted.
pub fn plan(seen: &ObservedBinding) -> UnbindPlan {
    if !seen.has_finalizer() {
        return UnbindPlan::default();
    }
    if seen.is_paused() {
        return UnbindPlan {
            ops: paused(seen, Vec::new()),
            message: format!(
                "the binding is paused by its annotation, so nothing is removed; to resume: kubectl annotate apiservicebinding {} {}-",
                seen.name(),
                annotations::PAUSED
            ),
            ..UnbindPlan::default()
        };
    }
    if let Some(answer) = acceptance::answer(seen) {
        return UnbindPlan {
            ops: vec![answer],
            message: "answering what the user said about the holder of the contract".to_owned(),
            ..UnbindPlan::default()
        };
    }
    if seen.owned().next().is_some() {
        let mut plan = objects(seen);
        if plan.remaining == Some(0) && !claims(seen, &mut plan) {
            for (name, crd) in seen.owned() {
                delete_crd(&mut plan, name, crd);
            }
            describe(&mut plan);
        }
        return plan;
    }
    let mut plan = UnbindPlan::default();
    if seen.orphaned().next().is_some() {
        plan = let_go(seen);
        if plan.remaining != Some(0) {
            return plan;
        }
    }
    if claims(seen, &mut plan) {
        return plan;
    }
    for name in seen.engines.keys() {
        plan.ops.push(BindingOp::StopEngine(name.clone()));
    }
    // Those of CRDs that stay run to the end: the next plan would start them again.
    let orphaned: BTreeSet<_> = seen.orphaned().map(|(name, _)| name).collect();
    for name in seen.releasers.keys().filter(|name| !orphaned.contains(name)) {
        plan.ops.push(BindingOp::StopReleaser(name.clone()));
    }
    match export_step(seen) {
        ExportStep::Done { provider_keeps } => plan.provider_keeps = provider_keeps,
        ExportStep::Request { uid, force } => {
            plan.ops.push(BindingOp::DeleteExport { uid, force });
            "requesting the deletion of the export from the provider".clone_into(&mut plan.message);
            return plan;
        }
        ExportStep::Wait { message, stuck } => {
            plan.message = message;
            plan.stuck = stuck;
            return plan;
        }
    }
    if gives_up(seen) {
        if lists_claims(seen) {
            // A plan that still finds them listed withdraws them again, which only the holder of the contract can do.
            "noting that all copies of claimed objects are withdrawn".clone_into(&mut plan.message);
            return plan;
        }
        plan.ops.push(BindingOp::EndHolding);
        "giving the contract up".clone_into(&mut plan.message);
        return plan;
    }
    if let Some(contract_uid) = seen
        .pinned()
        .filter(|_| seen.has_stored_secret && !seen.contract_is_shared)
    {
        plan.ops
            .push(BindingOp::DeleteStoredCredential(contract_uid.to_owned()));
    }
    plan.ops.extend([BindingOp::DeleteRoles, BindingOp::RemoveFinalizer]);
    "removing the stored credential and the roles".clone_into(&mut plan.message);
    plan
}

/// Whether the provider still records this konnector as the holder of a contract whose last binding ends.
fn gives_up(seen: &ObservedBinding) -> bool {
    let is_reached = matches!(seen.access, ContractAccess::Reached(_)) && !seen.is_forced();
    let standing = seen.session.as_ref().map(|session| &session.standing);
    is_reached && !seen.contract_is_shared && matches!(standing, Some(Standing::Held { .. }))
}

/// Plans the removal of the objects.
fn objects(seen: &ObservedBinding) -> UnbindPlan {
    match objects_path(seen) {
        UnbindPath::Drain { session } => drain(seen, session),
        UnbindPath::Release => release_objects(seen),
        UnbindPath::Wait { message, stuck } => UnbindPlan {
            ops: vec![BindingOp::Pause(true)],
            message,
            stuck,
            ..UnbindPlan::default()
        },
    }
}

/// Decides how the objects are removed.
fn objects_path(seen: &ObservedBinding) -> UnbindPath {
    if !seen.binding.keeps_copies() {
        return path(seen);
    }
    if !seen.releases_copies() || seen.releasers.values().any(|(mode, _)| *mode == DrainMode::All) {
        // The provider keeps its objects, so its answer is not needed.
        return UnbindPath::Release;
    }
    let is_impatient = seen.release_patience().is_zero();
    match path(seen) {
        UnbindPath::Wait { .. } if is_impatient => UnbindPath::Release,
        UnbindPath::Drain { .. } if is_impatient && is_cut_off(seen) => UnbindPath::Release,
        path => path,
    }
}

/// Whether an engine cannot write to the provider now.
fn is_cut_off(seen: &ObservedBinding) -> bool {
    let mut problems = seen
        .engines
        .values()
        .filter_map(|engine| engine.progress.problem.as_ref());
    problems.any(|problem| matches!(problem.cause, Cause::Unreachable | Cause::ProviderForbids))
}

/// Decides how objects that the binding has on the provider are removed.
fn path(seen: &ObservedBinding) -> UnbindPath {
    if seen.is_forced() || seen.pinned().is_none() {
        return UnbindPath::Release;
    }
    let wait = |message: String, stuck: bool| UnbindPath::Wait { message, stuck };
    match &seen.access {
        ContractAccess::Connecting => return wait("waiting for the provider to answer".to_owned(), false),
        ContractAccess::Problem(problem) => return wait(format!("{problem}; {FORCE}"), true),
        ContractAccess::Failed(error) => return wait(format!("{error}; {FORCE}"), true),
        ContractAccess::Changed { .. } => {
            return wait(
                format!("the Secret leads to another provider, so the old one cannot be asked; {FORCE}"),
                true,
            );
        }
        ContractAccess::Reached(_) => {}
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
    if let Some((_, told)) = not_held(session) {
        return wait(format!("{told}; {FORCE}"), true);
    }
    match &session.pin {
        ClusterPin::Unknown => {
            let (message, stuck) = unpinned(session);
            return wait(message, stuck);
        }
        ClusterPin::Other { recorded } => {
            return wait(
                format!(
                    "the contract serves another cluster ({}); {FORCE}",
                    other_cluster(recorded.as_deref())
                ),
                true,
            );
        }
        ClusterPin::Ours | ClusterPin::Unverified => {}
    }
    if session.standing == Standing::Pending {
        return wait(
            "waiting for the provider to accept the first heartbeat".to_owned(),
            false,
        );
    }
    if !session.is_trusted() {
        return wait(unverified(session), true);
    }
    match &session.export {
        ExportLookup::Unknown { failure } => {
            let why = failure
                .as_deref()
                .map_or_else(String::new, |failure| format!(": {failure}"));
            wait(format!("waiting for the provider to list its exports{why}"), false)
        }
        ExportLookup::Broken { message } => wait(format!("{message}; {FORCE}"), true),
        ExportLookup::Absent | ExportLookup::Present(_) if seen.export_is_gone() => UnbindPath::Release,
        ExportLookup::Absent | ExportLookup::Present(_) => UnbindPath::Drain { session: session.id },
    }
}

/// Whether the status lists claims, of which copies may be left.
fn lists_claims(seen: &ObservedBinding) -> bool {
    let status = seen.binding.status.as_ref();
    status.is_some_and(|status| !status.permission_claims.is_empty())
}

/// Withdraws the claims after the objects that need their copies are gone. Returns whether something is left to do.
fn claims(seen: &ObservedBinding, plan: &mut UnbindPlan) -> bool {
    let withdrawal = match path(seen) {
        _ if !lists_claims(seen) => None,
        UnbindPath::Drain { session } => claims::withdraw(seen, Withdrawer::Session(session)),
        UnbindPath::Release => claims::withdraw(seen, Withdrawer::Cleanup),
        UnbindPath::Wait { message, stuck } => {
            plan.message = format!("waiting to withdraw copies of claimed objects: {message}");
            plan.stuck = stuck;
            plan.ops.push(BindingOp::Pause(true));
            return true;
        }
    };
    let Some(withdrawal) = withdrawal else {
        // All claims are withdrawn.
        plan.listed = Some(Vec::new());
        plan.ops.extend(claims::steps(seen, None, &BTreeSet::new()));
        return false;
    };
    let counted = match withdrawal.remaining {
        Some(1) => "1 copy of a claimed object is left to delete".to_owned(),
        Some(left) => format!("{left} copies of claimed objects are left to delete"),
        None => "counting the copies of claimed objects that are left".to_owned(),
    };
    plan.message = match withdrawal.problem {
        Some(problem) => format!("{counted}: {problem}; {FORCE}"),
        None => counted,
    };
    plan.ops.extend(withdrawal.ops);
    if !plan.ops.contains(&BindingOp::Pause(false)) {
        plan.ops.push(BindingOp::Pause(false));
    }
    plan.listed = Some(withdrawal.listed);
    true
}

/// Message while nothing tells whether the provider still has the contract and serves this cluster.
fn unverified(session: &ObservedSession) -> String {
    let contract = &session.contract;
    let why = match &session.found {
        Some(found) if !session.is_verified() => format!(
            "the binding is pinned to {}, but the namespace has UID {found}; consent to that by annotating the binding with \
             kube-bind.io/accept-provider-change=<time, RFC 3339>",
            session.contract_uid
        ),
        None if session.is_gone() => "it does not exist there".to_owned(),
        _ => format!(
            "the konnector lacks rights there: {}",
            provider_rights::granting(&session.missing_rights)
        ),
    };
    format!(
        "nothing tells whether namespace {contract} of the provider is still the same contract and serves this cluster, since {why}; {FORCE}"
    )
}

/// Message while it is not known whether the contract serves this cluster, and whether the user must act.
fn unpinned(session: &ObservedSession) -> (String, bool) {
    match &session.heartbeat {
        Heartbeat::Failing { message } => (format!("{message}; {FORCE}"), true),
        _ => ("waiting for the provider to answer".to_owned(), false),
    }
}

/// The end of messages about a deletion that waits for the user.
const FORCE: &str = "fix that, or annotate the binding with kube-bind.io/force-unbind=true to remove it without the \
                     provider, which then keeps its objects";

#[cfg(test)]
#[path = "tests/unbind.rs"]
mod tests;
