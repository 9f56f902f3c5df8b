//! Whether somebody has to say yes before a claim takes effect.

use bindery_api::v1alpha2::{GroupResource, PermissionClaim};

use super::Decision;
use crate::plan::Installed;

/// What there is to consent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Question {
    /// Nothing that is not in effect already.
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

/// What accepting these claims is a question of. One that is in effect as it is now was accepted before.
pub(crate) fn question(claims: &[PermissionClaim], decision: &Decision, seen: &Installed) -> Question {
    let status = seen.binding.as_ref().and_then(|binding| binding.status.as_ref());
    let in_effect = status.map_or(&[][..], |status| &status.permission_claims);
    let news = claims
        .iter()
        .filter(|claim| decision.accepted.contains(&claim.group_resource) && !in_effect.contains(claim));
    news.map(question_of).max().unwrap_or(Question::Nothing)
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
    use bindery_api::v1alpha2::APIServiceBindingStatus;

    use super::*;
    use crate::{
        claims::{decide, tests::claim},
        manifests::{Kubeconfig, tests::manifests},
    };

    #[track_caller]
    fn check(claims: &[PermissionClaim], in_effect: &[PermissionClaim], reject: &[&str], expect: Question) {
        let mut binding = manifests(Kubeconfig::Hidden("x")).binding;
        binding.status = Some(APIServiceBindingStatus {
            permission_claims: in_effect.to_vec(),
            ..APIServiceBindingStatus::default()
        });
        let seen = Installed {
            binding: Some(binding),
            ..Installed::default()
        };
        let reject: Vec<_> = reject
            .iter()
            .map(|resource| GroupResource::new("", *resource))
            .collect();
        assert_eq!(question(claims, &decide(claims, &reject, &seen), &seen), expect);
    }

    #[test]
    fn what_is_new_and_accepted_is_asked() {
        let (some, all) = (claim("secrets", Some(("a", "b"))), claim("secrets", None));
        check(&[], &[], &[], Question::Nothing);
        check(std::slice::from_ref(&some), &[], &[], Question::Claims);
        check(std::slice::from_ref(&all), &[], &[], Question::Everything);
        check(&[claim("configmaps", None)], &[], &[], Question::Claims);
        check(
            &[claim("configmaps", None), all.clone()],
            &[],
            &[],
            Question::Everything,
        );
        check(std::slice::from_ref(&all), &[], &["secrets"], Question::Nothing);
        check(
            std::slice::from_ref(&all),
            std::slice::from_ref(&all),
            &[],
            Question::Nothing,
        );
        // In effect for some, and now for all.
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
