//! Whether somebody has to say yes before a claim takes effect.

use bindery_api::{
    Accepted,
    v1alpha2::{APIServiceBinding, GroupResource, PermissionClaim},
};

use super::Decision;
use crate::plan::Installed;

/// What there is to consent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Question {
    /// Nothing that was not accepted already.
    Nothing,
    /// Claims on some objects.
    Claims,
    /// A claim on all Secrets of the cluster.
    Everything,
}

/// How to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Without a word.
    Proceed,
    /// After a yes.
    Ask,
    /// Not at all: nobody is there to ask.
    Refuse,
}

/// What accepting these claims is a question of.
pub(crate) fn question(claims: &[PermissionClaim], decision: &Decision, seen: &Installed) -> Question {
    let news = claims.iter().filter(|claim| {
        let was_accepted = seen
            .binding
            .as_ref()
            .is_some_and(|binding| was_accepted(binding, claim));
        decision.accepted.contains(&claim.group_resource) && !was_accepted
    });
    news.map(question_of).max().unwrap_or(Question::Nothing)
}

/// Whether a claim was accepted before. Without a record, one that is in effect as it is now was.
fn was_accepted(binding: &APIServiceBinding, claim: &PermissionClaim) -> bool {
    match Accepted::of(binding) {
        Accepted::Unrecorded => {
            let mut in_effect = binding.status.iter().flat_map(|status| &status.permission_claims);
            in_effect.any(|known| known == claim)
        }
        accepted => accepted.covers(claim),
    }
}

/// What accepting one claim is a question of.
pub(crate) fn question_of(claim: &PermissionClaim) -> Question {
    if claim.group_resource == GroupResource::new("", "secrets") && claim.selector.selects_all() {
        Question::Everything
    } else {
        Question::Claims
    }
}

/// How to go on, where a flag may have answered already, and somebody may be there to ask.
pub(crate) fn verdict(question: Question, answered: bool, somebody: bool) -> Verdict {
    match question {
        Question::Nothing => Verdict::Proceed,
        _ if answered => Verdict::Proceed,
        _ if somebody => Verdict::Ask,
        Question::Claims => Verdict::Proceed,
        Question::Everything => Verdict::Refuse,
    }
}

/// Whether an answer is a yes. For everything, a letter is not enough.
pub(crate) fn is_yes(question: Question, answer: &str) -> bool {
    let answer = answer.trim().to_ascii_lowercase();
    answer == "yes" || (answer == "y" && question < Question::Everything)
}

#[cfg(test)]
mod tests {
    use bindery_api::{annotations, v1alpha2::APIServiceBindingStatus};

    use super::*;
    use crate::{
        claims::{decide, tests::claim},
        manifests::{Kubeconfig, tests::manifests},
    };

    /// Offered; known before, by the record of the binding or else by what is in effect; rejected.
    #[track_caller]
    fn check(claims: &[PermissionClaim], known: &[PermissionClaim], reject: &[&str], expect: Question) {
        let mut recorded = manifests(Kubeconfig::Hidden("x")).binding;
        let record = serde_json::to_string(known).unwrap();
        let annotations = recorded.metadata.annotations.as_mut().unwrap();
        annotations.insert(annotations::ACCEPTED_CLAIMS.to_owned(), record);
        let mut in_effect = recorded.clone();
        in_effect.metadata.annotations = None;
        in_effect.status = Some(APIServiceBindingStatus {
            permission_claims: known.to_vec(),
            ..APIServiceBindingStatus::default()
        });
        let reject: Vec<_> = reject
            .iter()
            .map(|resource| GroupResource::new("", *resource))
            .collect();
        for binding in [recorded, in_effect] {
            let seen = Installed {
                binding: Some(binding),
                ..Installed::default()
            };
            assert_eq!(question(claims, &decide(claims, &reject, &seen), &seen), expect);
        }
    }

    #[test]
    fn what_is_new_and_accepted_is_asked() {
        let one = std::slice::from_ref::<PermissionClaim>;
        let (some, all) = (claim("secrets", Some(("a", "b"))), claim("secrets", None));
        check(&[], &[], &[], Question::Nothing);
        check(one(&some), &[], &[], Question::Claims);
        check(one(&all), &[], &[], Question::Everything);
        check(&[claim("configmaps", None)], &[], &[], Question::Claims);
        check(
            &[claim("configmaps", None), all.clone()],
            &[],
            &[],
            Question::Everything,
        );
        check(one(&all), &[], &["secrets"], Question::Nothing);
        check(one(&all), one(&all), &[], Question::Nothing);
        // Accepted for some, and now for all.
        check(&[all], &[some], &[], Question::Everything);
    }

    #[test]
    fn nobody_gives_all_secrets_away_by_silence() {
        use Question::{Claims, Everything, Nothing};
        for (question, answered, somebody, expect) in [
            (Nothing, false, true, Verdict::Proceed),
            (Claims, false, true, Verdict::Ask),
            (Claims, false, false, Verdict::Proceed),
            (Claims, true, true, Verdict::Proceed),
            (Everything, false, true, Verdict::Ask),
            (Everything, false, false, Verdict::Refuse),
            (Everything, true, false, Verdict::Proceed),
        ] {
            assert_eq!(
                verdict(question, answered, somebody),
                expect,
                "{question:?} {answered} {somebody}"
            );
        }
    }

    #[test]
    fn a_yes_is_a_yes() {
        for (question, answer, expect) in [
            (Question::Claims, "y\n", true),
            (Question::Claims, "Yes", true),
            (Question::Claims, "\n", false),
            (Question::Claims, "yeah", false),
            (Question::Everything, "y", false),
            (Question::Everything, " YES \n", true),
        ] {
            assert_eq!(is_yes(question, answer), expect, "{question:?} {answer:?}");
        }
    }
}
