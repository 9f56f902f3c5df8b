//! Which claims of a binding somebody accepts or rejects. Pure.

use std::collections::BTreeSet;

use bindery_api::v1alpha2::{APIServiceBinding, GroupResource, PermissionClaim};

use crate::{
    args::ClaimsArgs,
    claims::{self, Claim, Question, State, Unclaimed, question_of},
    errors::Failure,
};

/// What is to change.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) accept: BTreeSet<GroupResource>,
    pub(super) reject: BTreeSet<GroupResource>,
}

impl Change {
    pub(super) fn new(args: &ClaimsArgs) -> Result<Self, Failure> {
        let change = Self {
            accept: args.accept.iter().cloned().collect(),
            reject: args.reject.iter().cloned().collect(),
        };
        match change.accept.intersection(&change.reject).next() {
            None => Ok(change),
            Some(both) => Err(Failure::Usage(format!(
                "{both} is both to be accepted and rejected; say one"
            ))),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.accept.is_empty() && self.reject.is_empty()
    }

    /// A slip of the pen must not pass for an answer.
    pub(super) fn check(&self, claims: &[Claim]) -> Result<(), Failure> {
        let claimed: BTreeSet<_> = claims.iter().map(|claim| claim.resource.clone()).collect();
        if let Some(unknown) = self.accept.difference(&claimed).next() {
            return Err(Unclaimed {
                resource: unknown.clone(),
                verb: "accept",
                claimed,
            }
            .into());
        }
        let known: Vec<_> = claims
            .iter()
            .map(|claim| PermissionClaim {
                group_resource: claim.resource.clone(),
                ..PermissionClaim::default()
            })
            .collect();
        Ok(claims::check_rejected(&known, &self.reject)?)
    }

    /// What accepting is a question of. Secrets of which nobody can tell how many are as good as all of them.
    pub(super) fn question(&self, claims: &[Claim], binding: &APIServiceBinding, is_current: bool) -> Question {
        let in_effect = binding
            .status
            .as_ref()
            .map_or(&[][..], |status| &status.permission_claims);
        let news = claims
            .iter()
            .filter(|claim| self.accept.contains(&claim.resource) && claim.state != State::InEffect);
        let question = |claim: &Claim| match &claim.said {
            Some(known) if is_current || in_effect.contains(known) => question_of(known),
            _ if claim.resource == GroupResource::new("", "secrets") => Question::Everything,
            _ => Question::Claims,
        };
        news.map(question).max().unwrap_or(Question::Nothing)
    }

    /// A claim that was accepted now is shown also where only its rejection was known.
    pub(super) fn keep(&self, before: &[Claim], after: &mut Vec<Claim>) {
        let lost = before
            .iter()
            .filter(|claim| {
                self.accept.contains(&claim.resource) && after.iter().all(|known| known.resource != claim.resource)
            })
            .map(|claim| Claim {
                state: State::Accepted,
                ..claim.clone()
            });
        let lost: Vec<_> = lost.collect();
        after.extend(lost);
    }

    /// What the binding is to reject, in a stable order.
    pub(super) fn rejected_after(&self, binding: &APIServiceBinding) -> Vec<GroupResource> {
        let before = binding.spec.rejected_permission_claims.iter();
        let mut after: Vec<_> = before.filter(|claim| !self.accept.contains(claim)).cloned().collect();
        for claim in &self.reject {
            if !after.contains(claim) {
                after.push(claim.clone());
            }
        }
        after
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::APIServiceBindingSpec;

    use super::*;
    use crate::claims::tests::claim;

    fn core(resources: &[&str]) -> Vec<GroupResource> {
        resources
            .iter()
            .map(|resource| GroupResource::new("", *resource))
            .collect()
    }

    fn change(accept: &[&str], reject: &[&str]) -> Change {
        Change {
            accept: core(accept).into_iter().collect(),
            reject: core(reject).into_iter().collect(),
        }
    }

    fn rejecting(rejected: &[&str]) -> APIServiceBinding {
        let spec = APIServiceBindingSpec {
            rejected_permission_claims: core(rejected),
            ..APIServiceBindingSpec::default()
        };
        APIServiceBinding::new("west", spec)
    }

    #[test]
    fn rejections_are_added_and_lifted() {
        for (before, accept, reject, expect) in [
            (&[][..], &[][..], &["secrets"][..], &["secrets"][..]),
            (&["secrets"], &[], &["secrets"], &["secrets"]),
            (&["secrets", "configmaps"], &["secrets"], &[], &["configmaps"]),
            (&["secrets"], &["secrets"], &["configmaps"], &["configmaps"]),
            (&[], &["secrets"], &[], &[]),
        ] {
            assert_eq!(change(accept, reject).rejected_after(&rejecting(before)), core(expect));
        }
    }

    #[track_caller]
    fn check(known: Option<PermissionClaim>, state: State, is_current: bool, expect: Question) {
        let claims = [Claim {
            resource: GroupResource::new("", "secrets"),
            state,
            said: known,
        }];
        let question = change(&["secrets"], &[]).question(&claims, &rejecting(&["secrets"]), is_current);
        assert_eq!(question, expect);
    }

    #[test]
    fn what_nobody_can_tell_is_as_much_as_everything() {
        let some = || Some(claim("secrets", Some(("a", "b"))));
        check(some(), State::Rejected, true, Question::Claims);
        check(
            Some(claim("secrets", None)),
            State::Rejected,
            true,
            Question::Everything,
        );
        check(None, State::Rejected, false, Question::Everything);
        check(some(), State::InEffect, true, Question::Nothing);
    }

    #[test]
    fn what_was_accepted_now_does_not_vanish() {
        let before = [Claim {
            resource: GroupResource::new("", "secrets"),
            state: State::Rejected,
            said: None,
        }];
        let mut after = Vec::new();
        change(&["secrets"], &[]).keep(&before, &mut after);
        change(&["secrets"], &[]).keep(&before, &mut after);
        assert_eq!(
            after.iter().map(|claim| claim.state).collect::<Vec<_>>(),
            [State::Accepted]
        );
    }

    #[test]
    fn only_what_is_claimed_is_accepted() {
        let claims = [Claim {
            resource: GroupResource::new("", "secrets"),
            state: State::Rejected,
            said: None,
        }];
        assert!(change(&["secrets"], &["configmaps"]).check(&claims).is_ok());
        let failure = change(&["configmaps"], &[]).check(&claims).expect_err("a failure");
        assert!(failure.to_string().contains("nothing to accept"), "{failure}");
        assert!(change(&[], &["secret"]).check(&claims).is_err());
    }
}
