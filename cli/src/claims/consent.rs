//! Decides whether the user has to be asked before a provider's permission claim takes effect on the consumer.

use bindery_api::{
    Accepted,
    v1alpha2::{APIServiceBinding, GroupResource, PermissionClaim},
};

use super::Decision;

/// What the user is asked to consent to, in the order of its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Question {
    /// Nothing: no claim is newly accepted.
    Nothing,
    /// Newly accepted claims, none of them on all Secrets.
    Claims,
    /// A newly accepted claim on all Secrets of the cluster.
    Everything,
}

/// How a command goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The command goes on without asking.
    Proceed,
    /// The command asks, and goes on after a yes.
    Ask,
    /// The command fails, because it would have to ask about all Secrets and has no terminal.
    Refuse,
}

/// What the user has to consent to before the claims that `decision` accepts take effect. Claims that the installed
/// binding has accepted before need no consent.
pub(crate) fn question(
    claims: &[PermissionClaim],
    decision: &Decision,
    installed: Option<&APIServiceBinding>,
) -> Question {
    let news = claims.iter().filter(|claim| {
        let was_accepted = installed.is_some_and(|binding| was_accepted(binding, claim));
        decision.accepted.contains(&claim.group_resource) && !was_accepted
    });
    news.map(question_of).max().unwrap_or(Question::Nothing)
}

/// Whether the user accepted everything that a claim selects before, by the annotation of the binding. If the
/// annotation is missing, the claims in the status of the binding count as accepted.
fn was_accepted(binding: &APIServiceBinding, claim: &PermissionClaim) -> bool {
    match Accepted::of(binding) {
        Accepted::Unrecorded => {
            let mut in_effect = binding.status.iter().flat_map(|status| &status.permission_claims);
            in_effect.any(|known| known == claim)
        }
        accepted => accepted.covers(claim),
    }
}

/// What the user has to consent to before one claim takes effect.
pub(crate) fn question_of(claim: &PermissionClaim) -> Question {
    if claim.group_resource == GroupResource::new("", "secrets") && claim.selector.selects_all() {
        Question::Everything
    } else {
        Question::Claims
    }
}

/// How the command goes on. `answered`: a flag says yes; `is_terminal`: there is a terminal to ask on. Without a
/// terminal, a script is stopped only by a claim on all Secrets.
pub(crate) fn verdict(question: Question, answered: bool, is_terminal: bool) -> Verdict {
    match question {
        Question::Nothing => Verdict::Proceed,
        _ if answered => Verdict::Proceed,
        _ if is_terminal => Verdict::Ask,
        Question::Claims => Verdict::Proceed,
        Question::Everything => Verdict::Refuse,
    }
}

/// Whether the typed answer is a yes. For [`Question::Everything`], a single letter is not enough.
pub(crate) fn is_yes(question: Question, answer: &str) -> bool {
    is_plain_yes(answer) && (question < Question::Everything || answer.trim().len() > 1)
}

/// Whether the typed answer to a question with `[y/N]` is a yes.
pub(crate) fn is_plain_yes(answer: &str) -> bool {
    let answer = answer.trim();
    ["y", "yes"].iter().any(|yes| answer.eq_ignore_ascii_case(yes))
}

#[cfg(test)]
mod tests;
