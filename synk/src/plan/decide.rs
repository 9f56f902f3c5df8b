//! Decides the step for each object, and so the plan for the set.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    Allowed, Decision, Plan, Refusal, Step,
    compare::{compared, expected, fingerprint, is_mark, shown_but_marks},
    desired::said,
    diff::{differences, of_creation, shown},
    guards,
    immutable::must_recreate,
    ownership::entries,
    prune::prune,
    takeover::due,
};
use crate::{
    input::Manifest,
    kinds::Kinds,
    object::Identity,
    order,
    problem::Problem,
    versions::Versions,
    wire::{IGNORE, Phase, SetName},
};

/// The input of a plan. A plan is a pure function of it.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    /// The set that is applied.
    pub set: &'a SetName,
    /// The namespace that the set is applied with.
    pub namespace: &'a str,
    /// The manifests of the set, as [`crate::input::resolve`] left them.
    pub manifests: &'a [Manifest],
    /// The kinds that the cluster serves, and those that the set defines.
    pub kinds: &'a Kinds,
    /// The versions of the set on the cluster.
    pub versions: &'a Versions,
    /// The live objects that [`super::reads`] asked for.
    pub live: &'a BTreeMap<Identity, Value>,
    /// The guards that the user lifted.
    pub allowed: &'a Allowed,
}

/// Makes the plan. If a step is [`Decision::Unsure`], the plan is complete only after [`settle`] and [`conclude`].
pub fn plan(input: &PlanInput<'_>) -> Plan {
    let mut manifests: Vec<_> = input.manifests.iter().collect();
    manifests.sort_by_key(|manifest| order::key(&manifest.object));
    let mut refusals: Vec<_> = guards::of_set(input).into_iter().collect();
    let steps = manifests.into_iter().map(|manifest| {
        refusals.extend(guards::of_object(input, manifest));
        step(input, manifest)
    });
    let steps = steps.collect();
    let left = prune(input);
    refusals.extend(guards::of_prune(input, left.pruned.len(), left.owned));
    let mut plan = Plan {
        set: input.set.clone(),
        namespace: input.namespace.to_owned(),
        current: input.versions.highest(),
        next: None,
        steps,
        prune: left.pruned,
        released: left.released,
        refusals,
    };
    conclude(&mut plan, input);
    plan
}

/// Decides about one object of the set, or returns why the plan must be refused.
pub fn decide(input: &PlanInput<'_>, manifest: &Manifest) -> Result<Decision, Box<Refusal>> {
    match guards::of_object(input, manifest) {
        Some(refusal) => Err(Box::new(refusal)),
        None => Ok(step(input, manifest).decision),
    }
}

/// Sets the version that the plan creates, if there is anything to do.
pub fn conclude(plan: &mut Plan, input: &PlanInput<'_>) {
    let is_still = |step: &Step| matches!(step.decision, Decision::Unchanged | Decision::Ignored);
    let stays = plan.prune.is_empty() && plan.released.is_empty() && plan.steps.iter().all(is_still);
    let is_done = stays && is_settled(plan, input);
    plan.next = (!is_done).then(|| input.versions.highest().unwrap_or(0) + 1);
}

/// Whether the one existing version already lists exactly the objects of the plan.
fn is_settled(plan: &Plan, input: &PlanInput<'_>) -> bool {
    let Some(newest) = input.versions.newest() else {
        return false;
    };
    let mut listed: Vec<_> = newest.objects.iter().collect();
    let mut wanted: Vec<_> = plan.steps.iter().map(|step| &step.object).collect();
    listed.sort();
    wanted.sort();
    input.versions.len() == 1
        && newest.phase == Phase::Settled
        && newest.namespace.as_deref() == Some(input.namespace)
        && listed == wanted
}

/// Records the result of the dry run of [`super::desired`] for one step. A step that is a change stays a change even if
/// the result equals the live object, because field ownership still moves. A refusal counts only in an `exact` plan;
/// otherwise the apply will report it.
pub fn settle(
    step: &mut Step,
    manifest: &Manifest,
    live: Option<&Value>,
    (fields_of, exact): (&[String], bool),
    outcome: Result<&Value, &kube::Error>,
) {
    let gvk = &manifest.object.gvk;
    match (outcome, live) {
        (Err(error), Some(live)) if must_recreate(gvk, live, error) => step.decision = Decision::Recreate,
        (Err(_), Some(_)) if !exact && step.decision == Decision::Unsure => step.decision = Decision::Change,
        (Err(error), _) => {
            let problem = Problem::of(&manifest.object, error);
            step.changes.clear();
            step.decision = Decision::Impossible {
                problem: problem.message,
                transient: problem.transient,
            };
        }
        (Ok(_), None) => {}
        (Ok(after), Some(live)) => {
            let taken = due(live, manifest, fields_of);
            let entries = taken.as_ref().map_or_else(|| entries(live), |taken| &taken.entries);
            let after = match &taken {
                // The dry run does not show the ownership that is transferred before the apply.
                Some(_) => expected(after, manifest, entries).object,
                None => after.clone(),
            };
            let differences = shown(differences(live, &after), gvk);
            if !differences.is_empty() {
                step.decision = Decision::Change;
                step.changes.retain(is_mark);
                step.changes.extend(differences);
            } else if step.decision == Decision::Unsure {
                step.decision = Decision::Unchanged;
                step.changes.clear();
            }
        }
    }
}

fn step(input: &PlanInput<'_>, manifest: &Manifest) -> Step {
    let object = &manifest.object;
    let live = input.live.get(&object.identity());
    let (decision, changes) = match live {
        _ if input.kinds.get(&object.gvk).is_none() => (impossible(input.kinds.unknown(&object.gvk)), Vec::new()),
        None => (Decision::Create, of_creation(&said(manifest), &object.gvk)),
        Some(live) if !live["metadata"]["deletionTimestamp"].is_null() => {
            let finalizers = &live["metadata"]["finalizers"];
            let why = if finalizers.is_null() {
                String::new()
            } else {
                format!(", after its finalizers {finalizers}")
            };
            (
                impossible(format!("it is being deleted: it is made anew once it is gone{why}")),
                Vec::new(),
            )
        }
        Some(live) if live["metadata"]["annotations"][IGNORE] == "true" => (Decision::Ignored, Vec::new()),
        Some(live) => compared(input, manifest, live),
    };
    Step {
        object: object.clone(),
        origin: manifest.origin.clone(),
        fingerprint: fingerprint(&changes),
        changes: shown_but_marks(changes, manifest),
        decision,
        uid: live.and_then(|live| live["metadata"]["uid"].as_str().map(str::to_owned)),
    }
}

fn impossible(problem: String) -> Decision {
    Decision::Impossible {
        problem,
        transient: true,
    }
}
