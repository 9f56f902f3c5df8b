//! The state of each claim of a binding.

use std::collections::BTreeSet;

use bindery_api::{
    Accepted,
    v1alpha2::{APIServiceBinding, GroupResource, PermissionClaim},
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Serialize;

use super::{join, news, rules::holds_claim, selection};

/// The claims of a binding on one resource, with their state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Claim {
    /// The claimed resource.
    #[serde(flatten)]
    pub(crate) resource: GroupResource,
    pub(crate) state: ClaimState,
    /// The claims as the provider makes them now, or else as they are in effect; empty if neither is known.
    #[serde(rename = "claims", skip_serializing_if = "Vec::is_empty")]
    pub(crate) said: Vec<PermissionClaim>,
    /// The parts of the claims that were not accepted.
    #[serde(rename = "notAccepted", skip_serializing_if = "Vec::is_empty")]
    pub(crate) news: Vec<PermissionClaim>,
    /// What was accepted before, if the claims have become wider since.
    #[serde(rename = "acceptedBefore", skip_serializing_if = "Vec::is_empty")]
    pub(crate) before: Vec<PermissionClaim>,
}

/// The state of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum ClaimState {
    /// The claim is accepted, and the konnector copies what it selects.
    InEffect,
    /// The claim is accepted, but not in effect yet.
    Accepted,
    /// The claim is accepted, but the konnector has no right on the resource.
    RightMissing,
    /// The claim has become wider since it was accepted; only what was accepted is in effect.
    Changed,
    /// The claim is new since the bind, was not accepted, and is not in effect.
    NotAccepted,
    /// The claim is rejected, and the konnector is still deleting its copies.
    Withdrawing,
    /// The claim is rejected and not in effect, but the konnector still has a right on the resource.
    RightLeft,
    /// The claim is rejected and not in effect.
    Rejected,
}

/// What is known about the claims of a binding beside the binding itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The rules of the binding's ClusterRole; none if the role cannot be read.
    pub(crate) rules: Option<Vec<PolicyRule>>,
    /// The claims of the provider's export; none if the export cannot be read.
    pub(crate) offered: Option<Vec<PermissionClaim>>,
}

impl ClaimState {
    /// The state in words.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::InEffect => "in effect",
            Self::Accepted => "accepted, not in effect yet",
            Self::RightMissing => "accepted, the konnector has no right",
            Self::Changed => "changed: not accepted",
            Self::NotAccepted => "new: not accepted",
            Self::Withdrawing => "rejected, being withdrawn",
            Self::RightLeft => "rejected, the konnector's right is left",
            Self::Rejected => "rejected",
        }
    }
}

impl Claim {
    /// Which objects the claims select, and which part of that was not accepted.
    pub(crate) fn selects(&self) -> String {
        let all = |claims: &[PermissionClaim]| join(claims.iter().map(selection), "; ");
        match self.state {
            ClaimState::Changed => format!("new: {}; accepted before: {}", all(&self.news), all(&self.before)),
            _ if self.said.is_empty() => "<unknown>".to_owned(),
            _ => all(&self.said),
        }
    }
}

/// All claims of a binding by resource: those in effect, those that its export makes, and those that it rejects.
pub(crate) fn states(binding: &APIServiceBinding, known: &Known) -> Vec<Claim> {
    let rejected = &binding.spec.rejected_permission_claims;
    let in_effect = binding
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.permission_claims);
    let offered = known.offered.as_deref().unwrap_or_default();
    let resources: BTreeSet<_> = in_effect
        .iter()
        .chain(offered)
        .map(|claim| &claim.group_resource)
        .chain(rejected)
        .collect();
    let accepted = Accepted::of(binding);
    let state = |resource: &GroupResource| {
        let (served, said) = (on(in_effect, resource), on(offered, resource));
        let news: Vec<_> = said.iter().filter_map(|claim| news(&accepted, claim)).collect();
        let before: Vec<_> = accepted.on(resource).cloned().collect();
        let right = known.rules.as_ref().map(|rules| holds_claim(rules, resource));
        // What was accepted of a claim is in effect when it is served as it is claimed now.
        let is_served = !served.is_empty() && said.iter().all(|claim| served.contains(claim));
        let state = match (rejected.contains(resource), right) {
            (true, _) if !served.is_empty() => ClaimState::Withdrawing,
            (true, Some(true)) => ClaimState::RightLeft,
            (true, _) => ClaimState::Rejected,
            (false, _) if !news.is_empty() && before.is_empty() => ClaimState::NotAccepted,
            (false, _) if !news.is_empty() => ClaimState::Changed,
            (false, Some(false)) => ClaimState::RightMissing,
            (false, _) if is_served => ClaimState::InEffect,
            (false, _) => ClaimState::Accepted,
        };
        let is_changed = state == ClaimState::Changed;
        Claim {
            resource: resource.clone(),
            state,
            // What the provider says now is what would take effect.
            said: if said.is_empty() { served } else { said },
            before: if is_changed { before } else { Vec::new() },
            news: if is_changed || state == ClaimState::NotAccepted {
                news
            } else {
                Vec::new()
            },
        }
    };
    resources.into_iter().map(state).collect()
}

fn on(claims: &[PermissionClaim], resource: &GroupResource) -> Vec<PermissionClaim> {
    let claims = claims.iter().filter(|claim| claim.group_resource == *resource);
    claims.cloned().collect()
}

#[cfg(test)]
mod tests;
