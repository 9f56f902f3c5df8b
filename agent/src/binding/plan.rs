//! Decides what to do for a binding that is not being deleted.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    acceptance,
    claims::{self, ClaimsPlan},
    crd::{self, CrdOp, CrdState, ObservedSchema, RefusedSchemaChange},
    observed::{EngineSpec, ObservedBinding, crd_names},
    op::BindingOp,
    orphans, retained,
};
use crate::{
    controller::{access::ContractAccess, crd_objects::was_never_served, observed_session::ClusterPin},
    drain::DrainMode,
};

/// What to do for a binding, and the state of its resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BindingPlan {
    /// The steps.
    pub ops: Vec<BindingOp>,
    /// State of the export's resources, by name of their CRD.
    pub states: BTreeMap<String, CrdState>,
    /// Refused changes of schemas, by name of the CRD.
    pub refused_changes: BTreeMap<String, RefusedSchemaChange>,
    /// The claims, once enough is known to sort them.
    pub claims: Option<ClaimsPlan>,
}

/// Decides what to do for a binding that is not being deleted.
pub fn plan(seen: &ObservedBinding) -> BindingPlan {
    let mut plan = wanted(seen);
    if seen.is_paused() {
        plan.ops = paused(seen, plan.ops);
    }
    plan
}

/// Reduces steps to those of a paused binding: all that writes is stopped first, and only the binding itself is written.
pub(super) fn paused(seen: &ObservedBinding, ops: Vec<BindingOp>) -> Vec<BindingOp> {
    let running = seen.releasers.keys().cloned();
    let mut quiet = vec![BindingOp::Pause(true)];
    quiet.extend(running.map(BindingOp::StopReleaser));
    quiet.extend(seen.claims.cleanup.is_some().then_some(BindingOp::StopCleanup));
    quiet.extend(seen.deletion.is_some().then_some(BindingOp::StopExportDeletion));
    quiet.extend(ops.into_iter().filter(|op| {
        use BindingOp::{AcceptClaims, AddFinalizer, RemoveClaims, SetClaims, StartEngine, StopEngine};
        matches!(
            op,
            AddFinalizer | AcceptClaims(_) | StartEngine { .. } | StopEngine(_) | SetClaims(_) | RemoveClaims
        )
    }));
    quiet
}

/// Decides what an active binding needs.
fn wanted(seen: &ObservedBinding) -> BindingPlan {
    if !seen.has_finalizer() {
        return steps(vec![BindingOp::AddFinalizer]);
    }
    match &seen.access {
        // Engines keep running until the provider answers.
        ContractAccess::Connecting => return BindingPlan::default(),
        ContractAccess::Problem(_) | ContractAccess::Failed(_) | ContractAccess::Changed { .. } => {
            return steps(vec![BindingOp::Pause(true)]);
        }
        ContractAccess::Reached(_) => {}
    }
    let Some(session) = &seen.session else {
        return BindingPlan::default();
    };
    // The contract is recorded in the status before anything is created, so that a restarted konnector knows it.
    if seen.pinned() != Some(&*session.contract_uid) {
        return steps(vec![BindingOp::Pause(true)]);
    }
    match session.pin {
        ClusterPin::Other { .. } => return steps(vec![BindingOp::Pause(true)]),
        // No heartbeat is sent then, so that the pin may stay unknown.
        _ if session.standing.waiting().is_some() => {
            let answer = acceptance::answer(seen);
            return steps([BindingOp::Pause(true)].into_iter().chain(answer).collect());
        }
        ClusterPin::Unknown => return BindingPlan::default(),
        ClusterPin::Ours | ClusterPin::Unverified => {}
    }
    // Running engines wait as well until it is known who holds the contract.
    if !session.standing.may_write() {
        return BindingPlan::default();
    }
    let mut plan = BindingPlan {
        // Claimed objects may be secret, and go to nobody but the contract that they were accepted for.
        claims: if session.is_trusted() {
            claims::plan(seen)
        } else {
            claims::unverified(seen)
        },
        ..BindingPlan::default()
    };
    if let Some(claims) = &plan.claims {
        plan.ops.extend(claims.record.clone().map(BindingOp::AcceptClaims));
        plan.ops
            .extend(claims::steps(seen, claims.spec.as_ref(), &claims.cleanup));
    }
    if seen.export_is_gone() {
        let released = release(seen, &BTreeSet::new(), &BTreeSet::new(), DrainMode::Deleted);
        plan.ops.extend(released);
        return plan;
    }
    let Some(export) = seen.export() else {
        // Nothing is written for an export that the provider does not show, and nothing ends before that is certain.
        plan.ops
            .extend(seen.export_is_missed().then_some(BindingOp::Pause(true)));
        return plan;
    };
    let mut used = BTreeSet::new();
    for name in crd_names(export) {
        let schema = seen.schemas.get(&name).unwrap_or(&ObservedSchema::Unknown);
        let crd = seen.crds.get(&name).map(AsRef::as_ref);
        let decision = crd::plan(&name, schema, crd, &seen.binding);
        plan.ops.extend(decision.op.map(|op| match op {
            CrdOp::Create(crd) => BindingOp::CreateCrd(crd),
            CrdOp::Patch(patch) => BindingOp::PatchCrd {
                name: name.clone(),
                patch,
            },
        }));
        if let CrdState::Usable(resource) = &decision.state {
            let spec = EngineSpec::of(session.id, export, crd, resource.clone());
            if seen
                .engines
                .get(&name)
                .is_none_or(|engine| engine.spec != spec || engine.draining)
            {
                plan.ops.push(BindingOp::StartEngine {
                    name: name.clone(),
                    spec: Box::new(spec),
                });
            }
            used.insert(name.clone());
        } else if matches!(schema, ObservedSchema::Unknown | ObservedSchema::Unreadable)
            && seen.engines.contains_key(&name)
        {
            // Until the schemas are listed, a running engine continues.
            used.insert(name.clone());
        }
        let refused_change = decision.refused_change;
        plan.refused_changes
            .extend(refused_change.map(|change| (name.clone(), change)));
        plan.states.insert(name, decision.state);
    }
    let exported = crd_names(export).collect();
    let mut released = release(seen, &used, &exported, DrainMode::Deleted);
    // That an unverified provider exports less is no reason to release objects.
    released.retain(|op| session.is_trusted() || !matches!(op, BindingOp::StartReleaser { .. }));
    plan.ops.extend(released);
    // What an unverified provider shows is no orphan for certain.
    let answers = orphans::answer(seen).into_iter().chain(retained::answer(seen));
    plan.ops.extend(answers.filter(|_| session.is_trusted()));
    plan.ops.extend(acceptance::answer(seen));
    plan.ops.push(BindingOp::Pause(false));
    plan
}

/// Stops the engines of unused CRDs and releases the objects of CRDs that are no longer exported.
pub(super) fn release(
    seen: &ObservedBinding,
    used: &BTreeSet<String>,
    exported: &BTreeSet<String>,
    mode: DrainMode,
) -> Vec<BindingOp> {
    let mut ops = Vec::new();
    for name in seen.engines.keys().filter(|name| !used.contains(*name)) {
        ops.push(BindingOp::StopEngine(name.clone()));
    }
    let idle: BTreeSet<_> = seen
        .owned()
        .filter(|(name, crd)| !exported.contains(*name) && !was_never_served(crd))
        .map(|(name, _)| name)
        .collect();
    for name in seen.releasers.keys().filter(|name| !idle.contains(name)) {
        ops.push(BindingOp::StopReleaser(name.clone()));
    }
    for name in idle {
        if seen.releasers.get(name).is_none_or(|(running, _)| *running != mode) {
            ops.push(BindingOp::StartReleaser {
                name: name.clone(),
                mode,
            });
        }
    }
    ops
}

impl BindingPlan {
    /// Reason and message of the first resource that cannot be synced until a user acts.
    pub fn refused(&self) -> Option<(&'static str, &String)> {
        self.states.values().find_map(|state| match state {
            CrdState::Refused { reason, message } => Some((*reason, message)),
            CrdState::Pending { .. } | CrdState::Usable(_) => None,
        })
    }
}

/// Returns a plan of these steps, without states of resources.
fn steps(ops: Vec<BindingOp>) -> BindingPlan {
    BindingPlan {
        ops,
        ..BindingPlan::default()
    }
}

#[cfg(test)]
#[path = "tests/plan.rs"]
mod tests;
