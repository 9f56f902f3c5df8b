//! Refuses plans that delete or take over more than the user allowed.

use super::{PlanInput, Refusal, compare::stranger};
use crate::input::Manifest;

/// Refuses a set that was applied with another namespace.
pub(super) fn of_set(input: &PlanInput<'_>) -> Option<Refusal> {
    let recorded = input
        .versions
        .namespace()
        .filter(|recorded| *recorded != input.namespace)?;
    (!input.allowed.take_over).then(|| Refusal::OtherNamespace {
        set: input.set.clone(),
        recorded: recorded.to_owned(),
        given: input.namespace.to_owned(),
    })
}

/// Refuses an object that another set or a newer version owns. A CRD has no owner.
pub(super) fn of_object(input: &PlanInput<'_>, manifest: &Manifest) -> Option<Refusal> {
    if input.allowed.take_over || manifest.object.gvk.is_crd() {
        return None;
    }
    let live = input.live.get(&manifest.object.identity())?;
    Some(Refusal::Owned {
        object: manifest.object.clone(),
        owner: stranger(live, input.set, input.versions.highest().unwrap_or(0))?,
    })
}

/// Refuses to prune more than half of the set's objects, or all of them because the input is empty.
pub(super) fn of_prune(input: &PlanInput<'_>, pruned: usize, live: usize) -> Option<Refusal> {
    let set = || input.set.clone();
    if input.allowed.prune {
        None
    } else if input.manifests.is_empty() {
        Some(Refusal::Empty { set: set(), live })
    } else {
        (pruned * 2 > live).then(|| Refusal::TooMuch {
            set: set(),
            pruned,
            live,
        })
    }
}
