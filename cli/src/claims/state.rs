//! How each claim of a binding stands.

use std::collections::BTreeSet;

use bindery_api::v1alpha2::{APIServiceBinding, GroupResource, PermissionClaim};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Serialize;

use crate::manifests;

/// One claim of a binding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Claim {
    /// What is claimed.
    #[serde(flatten)]
    pub(crate) resource: GroupResource,
    /// How it stands.
    pub(crate) state: State,
    /// The claim itself, where somebody says what it selects.
    #[serde(rename = "claim", skip_serializing_if = "Option::is_none")]
    pub(crate) said: Option<PermissionClaim>,
}

/// How a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum State {
    /// The konnector serves it.
    InEffect,
    /// It is accepted, and the konnector does not serve it yet.
    Accepted,
    /// It is accepted, and the konnector has no right on the resource.
    RightMissing,
    /// It is rejected, and the konnector is still taking back what it copied.
    Withdrawing,
    /// It is rejected, nothing of it is left, and the konnector has a right on the resource all the same.
    RightLeft,
    /// It is rejected, and nothing of it is left.
    Rejected,
}

/// What is known beside the binding.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The rules of the binding's ClusterRole; none if it cannot be read.
    pub(crate) rules: Option<Vec<PolicyRule>>,
    /// The claims of the provider's export; none if it cannot be read.
    pub(crate) offered: Option<Vec<PermissionClaim>>,
}

impl State {
    /// In words.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::InEffect => "in effect",
            Self::Accepted => "accepted, not in effect yet",
            Self::RightMissing => "accepted, the konnector has no right",
            Self::Withdrawing => "rejected, being withdrawn",
            Self::RightLeft => "rejected, the konnector's right is left",
            Self::Rejected => "rejected",
        }
    }
}

/// All claims of a binding: those in effect, those that its export makes, and those that it rejects.
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
    let of = |claims: &[PermissionClaim], resource: &GroupResource| {
        claims.iter().find(|claim| claim.group_resource == *resource).cloned()
    };
    let mut claims = Vec::with_capacity(resources.len());
    for resource in resources {
        let served = of(in_effect, resource);
        let right = known
            .rules
            .as_ref()
            .map(|rules| manifests::holds_claim(rules, resource));
        let state = match (rejected.contains(resource), served.is_some(), right) {
            (true, true, _) => State::Withdrawing,
            (true, false, Some(true)) => State::RightLeft,
            (true, false, _) => State::Rejected,
            (false, _, Some(false)) => State::RightMissing,
            (false, true, _) => State::InEffect,
            (false, false, _) => State::Accepted,
        };
        claims.push(Claim {
            resource: resource.clone(),
            state,
            // What the provider says now is what would take effect.
            said: of(offered, resource).or(served),
        });
    }
    claims
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::{APIServiceBindingSpec, APIServiceBindingStatus};

    use super::*;
    use crate::claims::tests::claim;

    /// Rejected, in effect, offered, with a right.
    #[track_caller]
    fn check(rejected: bool, in_effect: bool, offered: bool, right: Option<bool>, expect: Option<State>) {
        let secrets = GroupResource::new("", "secrets");
        let one = |is: bool| is.then(|| claim("secrets", None)).into_iter().collect();
        let spec = APIServiceBindingSpec {
            rejected_permission_claims: rejected.then(|| secrets.clone()).into_iter().collect(),
            ..APIServiceBindingSpec::default()
        };
        let mut binding = APIServiceBinding::new("west", spec);
        binding.status = Some(APIServiceBindingStatus {
            permission_claims: one(in_effect),
            ..APIServiceBindingStatus::default()
        });
        let known = Known {
            rules: right.map(|right| right.then(|| manifests::claim_rule(&secrets)).into_iter().collect()),
            offered: Some(one(offered)),
        };
        let states = states(&binding, &known);
        assert_eq!(states.first().map(|claim| claim.state), expect);
        assert!(states.len() <= 1);
        if let Some(claim) = states.first() {
            assert_eq!(claim.said.is_some(), in_effect || offered);
        }
    }

    #[test]
    fn each_claim_has_one_state() {
        check(false, false, false, Some(true), None);
        check(false, true, true, Some(true), Some(State::InEffect));
        check(false, true, true, None, Some(State::InEffect));
        check(false, true, true, Some(false), Some(State::RightMissing));
        check(false, false, true, Some(true), Some(State::Accepted));
        check(false, false, true, Some(false), Some(State::RightMissing));
        check(true, true, true, Some(true), Some(State::Withdrawing));
        check(true, false, true, Some(true), Some(State::RightLeft));
        check(true, false, true, Some(false), Some(State::Rejected));
        check(true, false, false, None, Some(State::Rejected));
    }
}
