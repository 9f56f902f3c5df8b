//! Decides what a binding that is not being deleted needs.

use std::collections::{BTreeMap, BTreeSet};

use bindery_api::{
    finalizers,
    v1alpha2::{GroupResource, PermissionClaim},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use serde_json::Value;

use super::{
    claims::{self, Claims},
    credential::Access,
    observe::{ClusterPin, EngineSpec, Observed, crd_names},
    resource::{self, CrdOp, Held, Schema, State},
};
use crate::release::Mode;

/// One step. Steps of a plan are taken in their order.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Put our finalizer on the binding.
    SetFinalizer,
    /// Take it away: nothing of the binding is left.
    ClearFinalizer,
    /// Create a CRD.
    CreateCrd(Box<CustomResourceDefinition>),
    /// Change a CRD.
    PatchCrd {
        /// Its name.
        name: String,
        /// The merge patch.
        patch: Value,
    },
    /// Delete a CRD.
    DeleteCrd {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Start an engine, in place of one that runs for this CRD.
    StartEngine {
        /// Name of the CRD.
        name: String,
        /// What for.
        spec: EngineSpec,
    },
    /// Stop an engine.
    StopEngine {
        /// Name of the CRD.
        name: String,
    },
    /// Have an engine delete all objects.
    DrainEngine {
        /// Name of the CRD.
        name: String,
    },
    /// Let no engine write, or let all write again.
    Pause(bool),
    /// Let objects go without the provider's word.
    StartReleaser {
        /// Name of the CRD.
        name: String,
        /// Which objects.
        mode: Mode,
    },
    /// End that.
    StopReleaser {
        /// Name of the CRD.
        name: String,
    },
    /// Note on the binding which claims are accepted.
    AcceptClaims(Vec<PermissionClaim>),
    /// Tell the session what to do for the claims.
    Claim(Box<claims::Spec>),
    /// Have it do nothing for them any more.
    Unclaim,
    /// Delete copies of claimed objects on the consumer, without the provider's word.
    Cleanup {
        /// UID of the contract.
        contract_uid: String,
        /// What they are.
        resources: BTreeSet<GroupResource>,
    },
    /// End that.
    StopCleanup,
    /// Have the provider delete the export.
    DeleteExport {
        /// Its UID.
        uid: String,
        /// Also if objects are left there.
        force: bool,
    },
    /// Stop asking for that.
    StopDeletion,
    /// Delete the konnector's own Secret of a contract.
    DeleteStored {
        /// UID of the contract.
        contract_uid: String,
    },
    /// Delete the ClusterRole and ClusterRoleBinding that were made for the binding.
    DeleteRoles,
}

/// What to do, and how the resources stand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The steps.
    pub ops: Vec<Op>,
    /// The export's resources by name of their CRD.
    pub states: BTreeMap<String, State>,
    /// The changes of schemas that are not taken over, by name of their CRD.
    pub held: BTreeMap<String, Held>,
    /// The claims, where enough is known of them.
    pub claims: Option<Claims>,
}

/// Decides.
pub fn plan(seen: &Observed) -> Plan {
    let mut plan = wanted(seen);
    if seen.is_paused() {
        plan.ops = paused(seen, plan.ops);
    }
    plan
}

/// Of these steps, those that write nothing but on the binding itself; and what writes is stopped, first of all.
pub(super) fn paused(seen: &Observed, ops: Vec<Op>) -> Vec<Op> {
    let running = seen.releasers.keys().cloned();
    let mut quiet = vec![Op::Pause(true)];
    quiet.extend(running.map(|name| Op::StopReleaser { name }));
    quiet.extend(seen.claims.cleanup.is_some().then_some(Op::StopCleanup));
    quiet.extend(seen.deletion.is_some().then_some(Op::StopDeletion));
    quiet.extend(ops.into_iter().filter(|op| match op {
        Op::SetFinalizer
        | Op::AcceptClaims(_)
        | Op::StartEngine { .. }
        | Op::StopEngine { .. }
        | Op::Claim(_)
        | Op::Unclaim => true,
        Op::ClearFinalizer
        | Op::CreateCrd(_)
        | Op::PatchCrd { .. }
        | Op::DeleteCrd { .. }
        | Op::DrainEngine { .. }
        | Op::Pause(_)
        | Op::StartReleaser { .. }
        | Op::StopReleaser { .. }
        | Op::Cleanup { .. }
        | Op::StopCleanup
        | Op::DeleteExport { .. }
        | Op::StopDeletion
        | Op::DeleteStored { .. }
        | Op::DeleteRoles => false,
    }));
    quiet
}

/// What an active binding needs.
fn wanted(seen: &Observed) -> Plan {
    if !seen
        .binding
        .finalizers()
        .iter()
        .any(|finalizer| finalizer == finalizers::KONNECTOR)
    {
        return steps(vec![Op::SetFinalizer]);
    }
    match &seen.access {
        // What runs goes on until the provider has answered.
        Access::Connecting => return Plan::default(),
        Access::Problem(_) | Access::Failed(_) | Access::Changed { .. } => return steps(vec![Op::Pause(true)]),
        Access::Reached(_) => {}
    }
    let Some(session) = &seen.session else {
        return Plan::default();
    };
    // The pin is written before anything is made: a successor must know where it was made for.
    if seen.pinned() != Some(&*session.contract_uid) {
        return steps(vec![Op::Pause(true)]);
    }
    match session.pin {
        ClusterPin::Unknown => return Plan::default(),
        ClusterPin::Other { .. } => return steps(vec![Op::Pause(true)]),
        ClusterPin::Ours => {}
    }
    let mut plan = Plan {
        claims: claims::sorted(seen),
        ..Plan::default()
    };
    if let Some(claims) = &plan.claims {
        plan.ops.extend(claims.record.clone().map(Op::AcceptClaims));
        plan.ops
            .extend(claims::steps(seen, claims.spec.as_ref(), &claims.cleanup));
    }
    if seen.export_is_gone() {
        let released = release(seen, &BTreeSet::new(), &BTreeSet::new(), Mode::Deleted);
        plan.ops.extend(released);
        return plan;
    }
    let Some(export) = seen.export() else {
        return plan;
    };
    let mut used = BTreeSet::new();
    for name in crd_names(export) {
        let schema = seen.schemas.get(&name).unwrap_or(&Schema::Unknown);
        let decision = resource::plan(&name, schema, seen.crds.get(&name).map(AsRef::as_ref), &seen.binding);
        plan.ops.extend(decision.op.map(|op| match op {
            CrdOp::Create(crd) => Op::CreateCrd(crd),
            CrdOp::Patch(patch) => Op::PatchCrd {
                name: name.clone(),
                patch,
            },
        }));
        if let State::Usable(resource) = &decision.state {
            let spec = EngineSpec::of(session.id, export, resource.clone());
            if seen
                .engines
                .get(&name)
                .is_none_or(|engine| engine.spec != spec || engine.draining)
            {
                plan.ops.push(Op::StartEngine {
                    name: name.clone(),
                    spec,
                });
            }
            used.insert(name.clone());
        } else if matches!(schema, Schema::Unknown) && seen.engines.contains_key(&name) {
            // The list is on its way: no reason to stop what runs.
            used.insert(name.clone());
        }
        plan.held.extend(decision.held.map(|held| (name.clone(), held)));
        plan.states.insert(name, decision.state);
    }
    let exported = crd_names(export).collect();
    plan.ops.extend(release(seen, &used, &exported, Mode::Deleted));
    plan.ops.push(Op::Pause(false));
    plan
}

/// Stops the engines of what is not used, and lets the objects go of what is not exported any more.
pub(super) fn release(seen: &Observed, used: &BTreeSet<String>, exported: &BTreeSet<String>, mode: Mode) -> Vec<Op> {
    let mut ops = Vec::new();
    for name in seen.engines.keys().filter(|name| !used.contains(*name)) {
        ops.push(Op::StopEngine { name: name.clone() });
    }
    let idle: BTreeSet<_> = seen
        .owned()
        .filter(|(name, crd)| !exported.contains(*name) && !resource::was_never_served(crd))
        .map(|(name, _)| name)
        .collect();
    for name in seen.releasers.keys().filter(|name| !idle.contains(name)) {
        ops.push(Op::StopReleaser { name: name.clone() });
    }
    for name in idle {
        if seen.releasers.get(name).is_none_or(|(running, _)| *running != mode) {
            ops.push(Op::StartReleaser {
                name: name.clone(),
                mode,
            });
        }
    }
    ops
}

fn steps(ops: Vec<Op>) -> Plan {
    Plan { ops, ..Plan::default() }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
