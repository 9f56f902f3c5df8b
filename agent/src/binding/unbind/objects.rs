//! Decides how the objects and CRDs of a binding are removed.

use std::collections::BTreeSet;

use bindery_runtime::crds::is_established;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::{FORCE, UnbindPlan};
use crate::{
    binding::{
        crd::{self, CrdState, ObservedSchema},
        observed::{EngineSpec, ObservedBinding},
        op::BindingOp,
        plan::release,
    },
    controller::crd_objects::was_never_served,
    drain::DrainMode,
};

/// Makes the engines of a session delete all objects on both clusters, or release the copies where the provider keeps them.
pub(super) fn drain(seen: &ObservedBinding, session: u64) -> UnbindPlan {
    let mut plan = UnbindPlan {
        remaining: Some(0),
        ..UnbindPlan::default()
    };
    let Some(export) = seen.export() else {
        return plan;
    };
    for name in seen.releasers.keys() {
        plan.ops.push(BindingOp::StopReleaser(name.clone()));
    }
    for (name, crd) in seen.owned() {
        if was_never_served(crd) && !seen.engines.contains_key(name) {
            continue;
        }
        let schema = seen.schemas.get(name).unwrap_or(&ObservedSchema::Missing);
        let state = crd::plan(name, schema, Some(crd), &seen.binding).state;
        let spec = match state {
            CrdState::Usable(resource) => Some(EngineSpec::of(session, export, Some(crd), resource)),
            CrdState::Refused { message, .. } | CrdState::Pending { message, .. } => {
                if !seen.engines.contains_key(name) {
                    plan.remaining = None;
                    let established = if is_established(crd) { "" } else { "; it is not served" };
                    plan.message = format!("waiting to drain {name}: {message}{established}; {FORCE}");
                    plan.stuck = matches!(schema, ObservedSchema::Missing);
                    continue;
                }
                None
            }
        };
        let Some(engine) = seen.engines.get(name) else {
            plan.remaining = None;
            plan.ops.extend(spec.map(|spec| BindingOp::StartEngine {
                name: name.clone(),
                spec: Box::new(spec),
            }));
            plan.ops.push(BindingOp::DrainEngine(name.clone()));
            continue;
        };
        if engine.spec.session != session {
            plan.ops.push(BindingOp::StopEngine(name.clone()));
            plan.remaining = None;
            continue;
        }
        if !engine.draining {
            plan.ops.push(BindingOp::DrainEngine(name.clone()));
        }
        let left = engine
            .progress
            .remaining
            .filter(|_| engine.draining && engine.progress.consumer_synced);
        plan.remaining = plan.remaining.zip(left).map(|(sum, left)| sum + left);
        if let Some(problem) = &engine.progress.problem {
            plan.message = format!("{}; {FORCE}", problem.message);
        }
    }
    plan.ops.push(BindingOp::Pause(false));
    if plan.remaining != Some(0) {
        describe(&mut plan);
    }
    plan
}

/// Makes releasers delete all objects on the consumer only.
pub(super) fn release_objects(seen: &ObservedBinding) -> UnbindPlan {
    let mut plan = UnbindPlan {
        ops: release(seen, &BTreeSet::new(), &BTreeSet::new(), DrainMode::All),
        remaining: Some(0),
        ..UnbindPlan::default()
    };
    for (name, crd) in seen.owned() {
        let released = seen
            .releasers
            .get(name)
            .filter(|(mode, _)| *mode == DrainMode::All)
            .map(|(_, released)| released);
        let left = match released {
            _ if was_never_served(crd) => Some(0),
            released => released.and_then(|released| released.remaining),
        };
        plan.remaining = plan.remaining.zip(left).map(|(sum, left)| sum + left);
        if let Some(problem) = released.and_then(|released| released.problem.as_ref()) {
            plan.message.clone_from(problem);
        }
    }
    if plan.remaining != Some(0) {
        describe(&mut plan);
    }
    plan
}

/// Makes releasers take the konnector's finalizer off all objects that stay, and deletes none.
pub(super) fn let_go(seen: &ObservedBinding) -> UnbindPlan {
    let mut plan = UnbindPlan {
        remaining: Some(0),
        ..UnbindPlan::default()
    };
    for name in seen.engines.keys() {
        plan.ops.push(BindingOp::StopEngine(name.clone()));
    }
    for (name, _) in seen.orphaned().filter(|(_, crd)| !was_never_served(crd)) {
        let Some((DrainMode::LetGo, released)) = seen.releasers.get(name) else {
            plan.remaining = None;
            plan.ops.push(BindingOp::StartReleaser {
                name: name.clone(),
                mode: DrainMode::LetGo,
            });
            continue;
        };
        plan.remaining = plan.remaining.zip(released.remaining).map(|(sum, left)| sum + left);
        if let Some(problem) = &released.problem {
            plan.message.clone_from(problem);
            plan.stuck = true;
        }
    }
    let counted = match plan.remaining {
        Some(1) => "1 object is left to let go".to_owned(),
        Some(left) => format!("{left} objects are left to let go"),
        None => "counting the objects that are left to let go".to_owned(),
    };
    plan.message = match &*plan.message {
        "" => counted,
        problem => format!("{counted}: {problem}"),
    };
    plan.stuck &= plan.remaining != Some(0);
    plan
}

/// Deletes a CRD that has no objects left.
pub(super) fn delete_crd(plan: &mut UnbindPlan, name: &str, crd: &CustomResourceDefinition) {
    if crd.metadata.deletion_timestamp.is_none() {
        plan.ops.push(BindingOp::DeleteCrd {
            name: name.to_owned(),
            uid: crd.metadata.uid.clone().unwrap_or_default(),
        });
    }
}

/// Completes the message by the count of objects that are left.
pub(super) fn describe(plan: &mut UnbindPlan) {
    let counted = match plan.remaining {
        Some(0) => "all objects are deleted; deleting their CRDs".to_owned(),
        Some(1) => "1 object is left to delete".to_owned(),
        Some(left) => format!("{left} objects are left to delete"),
        None => "counting the objects that are left".to_owned(),
    };
    plan.message = match &*plan.message {
        "" => counted,
        problem => format!("{counted}: {problem}"),
    };
}
