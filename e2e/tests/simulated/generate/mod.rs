//! Writes the sequence of requests of a seed, without IO.

mod draft;
pub(crate) mod kind;
mod random;
pub(crate) mod step;
mod subjects;

use serde_json::json;

use self::{
    draft::Draft,
    kind::{CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT},
    step::{Call, Sequence, Step},
    subjects::{Author, SUBJECTS},
};

/// A sequence takes up another subject while it has fewer steps.
const STEPS: usize = 26;

/// Writes the sequence of a seed, whose names begin with `prefix`; about one subject alone if it is given.
pub(crate) fn sequence(seed: u64, prefix: &str, only: Option<&str>) -> Sequence {
    let mut draft = Draft::new(seed, prefix);
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": draft.namespace, "labels": {"sequence": draft.id}},
    });
    draft.call(Call::post(NAMESPACE.list(""), namespace));
    // What controllers put into each namespace is there before anything else.
    for kind in [CONFIG_MAP, SERVICE_ACCOUNT] {
        draft.state.insert(kind.list(&draft.namespace));
    }
    draft.settle();
    let mut subjects = Vec::new();
    while draft.steps.len() < STEPS {
        let (name, act) = choose(&mut draft, only);
        subjects.push((name, draft.steps.len()));
        act(&mut draft);
    }
    draft.settle();
    Sequence {
        seed,
        subjects,
        steps: draft.steps,
        state: draft.state,
        users: draft.users,
    }
}

/// The names of all subjects.
pub(crate) fn subjects() -> impl Iterator<Item = &'static str> {
    SUBJECTS.iter().map(|(name, ..)| *name)
}

/// Takes one of the subjects, each by its weight.
fn choose(draft: &mut Draft, only: Option<&str>) -> (&'static str, Author) {
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let total: usize = SUBJECTS
        .iter()
        .filter(|subject| wanted(subject.0))
        .map(|subject| subject.1)
        .sum();
    let mut place = draft.random.below(total);
    for (name, weight, act) in SUBJECTS.iter().filter(|subject| wanted(subject.0)) {
        if place < *weight {
            return (name, *act);
        }
        place -= weight;
    }
    (SUBJECTS[0].0, SUBJECTS[0].2)
}

/// How many requests a sequence has, watches included.
pub(crate) fn requests(sequence: &Sequence) -> usize {
    let is_request = |step: &&Step| matches!(step, Step::Call(_) | Step::Watch(_));
    sequence.steps.iter().filter(is_request).count()
}
