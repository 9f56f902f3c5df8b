//! Selects the steps for which a plan needs the API server's answer, by a dry run.

use super::{Decision, Plan, Step};
use crate::{kinds::Kinds, object::ObjectRef};

/// Returns the indices of the steps to send as dry runs: those that are [`Decision::Unsure`] and, for an `exact` plan,
/// all that write. Steps whose kind or namespace the plan itself creates are left out.
pub fn asks(plan: &Plan, kinds: &Kinds, exact: bool) -> Vec<usize> {
    let is_asked = |step: &Step| {
        let is_open = match step.decision {
            Decision::Unsure => true,
            Decision::Create | Decision::Change => exact,
            _ => false,
        };
        is_open && is_answered(plan, kinds, &step.object)
    };
    let steps = plan.steps.iter().enumerate();
    steps
        .filter(|(_, step)| is_asked(step))
        .map(|(index, _)| index)
        .collect()
}

/// Turns each [`Decision::Unsure`] step that cannot be sent as a dry run yet into a change. The API server would refuse
/// such a dry run, because the plan itself creates the kind or the namespace.
pub fn presume(plan: &mut Plan, kinds: &Kinds) {
    let is_presumed = |step: &Step| step.decision == Decision::Unsure && !is_answered(plan, kinds, &step.object);
    let presumed: Vec<bool> = plan.steps.iter().map(is_presumed).collect();
    for (step, is_presumed) in plan.steps.iter_mut().zip(presumed) {
        if is_presumed {
            step.decision = Decision::Change;
        }
    }
}

fn is_answered(plan: &Plan, kinds: &Kinds, object: &ObjectRef) -> bool {
    has_place(plan, object) && has_kind(plan, kinds, object)
}

/// Whether the namespace of an object exists already, so that a dry run can name it.
fn has_place(plan: &Plan, object: &ObjectRef) -> bool {
    let Some(namespace) = &object.namespace else {
        return true;
    };
    let is_it = |step: &Step| step.object.gvk.is_namespace() && step.object.name == *namespace;
    !plan
        .steps
        .iter()
        .any(|step| step.decision == Decision::Create && is_it(step))
}

/// Whether the API server already serves the kind of an object as the plan leaves it.
fn has_kind(plan: &Plan, kinds: &Kinds, object: &ObjectRef) -> bool {
    let Some(resource) = kinds.get(&object.gvk).filter(|_| kinds.is_served(&object.gvk)) else {
        return false;
    };
    let name = format!("{}.{}", resource.plural, object.gvk.group);
    let is_it = |step: &Step| step.object.gvk.is_crd() && step.object.name == name;
    let writes = |step: &Step| matches!(step.decision, Decision::Create | Decision::Change | Decision::Unsure);
    !plan.steps.iter().any(|step| writes(step) && is_it(step))
}
