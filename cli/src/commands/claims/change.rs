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

    /// A slip of the pen must not pass for an answer, and nobody accepts what nobody can see.
    pub(super) fn check(&self, claims: &[Claim], is_current: bool) -> Result<(), Failure> {
        let claimed: BTreeSet<_> = claims.iter().map(|claim| claim.resource.clone()).collect();
        if let Some(unknown) = self.accept.difference(&claimed).next() {
            return Err(Unclaimed {
                resource: unknown.clone(),
                verb: "accept",
                claimed,
            }
            .into());
        }
        let is_rejected =
            |claim: &&Claim| matches!(claim.state, State::Rejected | State::RightLeft | State::Withdrawing);
        let mut unseen = self.about(claims).filter(|_| !is_current).filter(is_rejected);
        if let Some(claim) = unseen.next() {
            return Err(Failure::Usage(format!(
                "nobody can tell what the provider claims of {} now, so that there is nothing to accept; say so again when it \
                 can be seen",
                claim.resource
            )));
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

    /// What is known of that which is to be accepted.
    fn about<'a>(&'a self, claims: &'a [Claim]) -> impl Iterator<Item = &'a Claim> {
        claims.iter().filter(|claim| self.accept.contains(&claim.resource))
    }

    /// The resources to be accepted on which there is a claim.
    pub(super) fn claimed<'a>(&'a self, claims: &'a [Claim]) -> impl Iterator<Item = &'a GroupResource> {
        let claimed = self.about(claims).filter(|claim| !claim.said.is_empty());
        claimed.map(|claim| &claim.resource)
    }

    /// The claims to be accepted.
    pub(super) fn accepted<'a>(&'a self, claims: &'a [Claim]) -> impl Iterator<Item = &'a PermissionClaim> {
        self.about(claims).flat_map(|claim| &claim.said)
    }

    /// Those of them that were not accepted before, or accepted without the right that makes it true.
    pub(super) fn news<'a>(&'a self, claims: &'a [Claim]) -> impl Iterator<Item = &'a PermissionClaim> {
        let is_old = |claim: &&Claim| matches!(claim.state, State::InEffect | State::Accepted);
        self.about(claims)
            .filter(move |claim| !is_old(claim))
            .flat_map(|claim| &claim.said)
    }

    /// What accepting is a question of.
    pub(super) fn question(&self, claims: &[Claim]) -> Question {
        let news = self.news(claims);
        news.map(question_of).max().unwrap_or(Question::Nothing)
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

    fn secrets(state: State, said: Option<PermissionClaim>) -> [Claim; 1] {
        [Claim {
            resource: GroupResource::new("", "secrets"),
            state,
            said: said.into_iter().collect(),
            news: Vec::new(),
            before: Vec::new(),
        }]
    }

    #[test]
    fn what_is_new_is_asked() {
        let (some, all) = (|| claim("secrets", Some(("a", "b"))), || claim("secrets", None));
        for (said, state, expect) in [
            (some(), State::Rejected, Question::Claims),
            (all(), State::Rejected, Question::Everything),
            (all(), State::Withdrawing, Question::Everything),
            (some(), State::Changed, Question::Claims),
            (all(), State::Changed, Question::Everything),
            (all(), State::NotAccepted, Question::Everything),
            (all(), State::RightMissing, Question::Everything),
            (all(), State::Accepted, Question::Nothing),
            (all(), State::InEffect, Question::Nothing),
        ] {
            let claims = secrets(state, Some(said));
            assert_eq!(change(&["secrets"], &[]).question(&claims), expect, "{state:?}");
            assert_eq!(change(&["configmaps"], &[]).question(&claims), Question::Nothing);
        }
    }

    #[test]
    fn nobody_accepts_what_nobody_sees() {
        let accept = change(&["secrets"], &[]);
        let blind = accept.check(&secrets(State::Rejected, None), false);
        assert!(blind.is_err_and(|failure| failure.to_string().contains("claims of secrets now")));
        assert!(accept.check(&secrets(State::Rejected, None), true).is_ok());
        // Only the right is missing.
        assert!(accept.check(&secrets(State::RightMissing, None), false).is_ok());
        assert!(
            change(&[], &["secrets"])
                .check(&secrets(State::InEffect, None), false)
                .is_ok()
        );
    }

    #[test]
    fn what_was_accepted_now_does_not_vanish() {
        let before = secrets(State::Rejected, None);
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
        let claims = secrets(State::Rejected, None);
        assert!(change(&["secrets"], &["configmaps"]).check(&claims, true).is_ok());
        let failure = change(&["configmaps"], &[])
            .check(&claims, true)
            .expect_err("a failure");
        assert!(failure.to_string().contains("nothing to accept"), "{failure}");
        assert!(change(&[], &["secret"]).check(&claims, true).is_err());
    }
}
