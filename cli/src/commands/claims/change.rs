//! Which claims of a binding the user accepts or rejects.

use std::collections::BTreeSet;

use bindery_api::v1alpha2::{APIServiceBinding, GroupResource, PermissionClaim};

use crate::{
    args::ClaimsArgs,
    claims::{self, Claim, ClaimState, Question, Unclaimed, question_of},
    errors::Failure,
};

/// The resources whose claims the user accepts or rejects.
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
                "{both} is both accepted and rejected; give only one of --accept and --reject"
            ))),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.accept.is_empty() && self.reject.is_empty()
    }

    /// Refuses resources that are not claimed, which may be typing errors, and to accept claims that cannot be read now.
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
        let is_rejected = |claim: &&Claim| {
            matches!(
                claim.state,
                ClaimState::Rejected | ClaimState::RightLeft | ClaimState::Withdrawing
            )
        };
        let mut unseen = self.about(claims).filter(|_| !is_current).filter(is_rejected);
        if let Some(claim) = unseen.next() {
            return Err(Failure::Usage(format!(
                "what the provider claims of {} cannot be read now, so it cannot be accepted; run this again when the provider \
                 can be reached",
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

    /// The known claims on the resources to accept.
    fn about<'a>(&'a self, claims: &'a [Claim]) -> impl Iterator<Item = &'a Claim> {
        claims.iter().filter(|claim| self.accept.contains(&claim.resource))
    }

    /// The resources to accept on which there is a claim.
    pub(super) fn claimed<'a>(&'a self, claims: &'a [Claim]) -> impl Iterator<Item = &'a GroupResource> {
        let claimed = self.about(claims).filter(|claim| !claim.said.is_empty());
        claimed.map(|claim| &claim.resource)
    }

    /// The claims to accept.
    pub(super) fn accepted<'a>(&'a self, claims: &'a [Claim]) -> impl Iterator<Item = &'a PermissionClaim> {
        self.about(claims).flat_map(|claim| &claim.said)
    }

    /// The claims to accept that were not accepted before, or for which the konnector lacks the right.
    pub(super) fn news<'a>(&'a self, claims: &'a [Claim]) -> impl Iterator<Item = &'a PermissionClaim> {
        let is_old = |claim: &&Claim| matches!(claim.state, ClaimState::InEffect | ClaimState::Accepted);
        self.about(claims)
            .filter(move |claim| !is_old(claim))
            .flat_map(|claim| &claim.said)
    }

    /// What the user has to consent to.
    pub(super) fn question(&self, claims: &[Claim]) -> Question {
        let news = self.news(claims);
        news.map(question_of).max().unwrap_or(Question::Nothing)
    }

    /// Adds claims to `after` that were accepted now and of which only the rejection was known.
    pub(super) fn keep(&self, before: &[Claim], after: &mut Vec<Claim>) {
        let lost = before
            .iter()
            .filter(|claim| {
                self.accept.contains(&claim.resource) && after.iter().all(|known| known.resource != claim.resource)
            })
            .map(|claim| Claim {
                state: ClaimState::Accepted,
                ..claim.clone()
            });
        let lost: Vec<_> = lost.collect();
        after.extend(lost);
    }

    /// What the binding rejects after the change, in a stable order.
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
mod tests;
