//! What is not done unless it is said to be meant.

use super::{PlanInput, Refusal, compare::stranger};
use crate::input::Manifest;

/// Of the set as a whole.
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

/// Of one object. A definition belongs to nobody.
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

/// Of what goes: more than half of what the set owns, or all because nothing is given.
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
