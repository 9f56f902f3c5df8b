//! Decides which claims a bind accepts and rejects, and which rights follow.

use std::collections::BTreeSet;

use bindery_api::{
    claims::is_claimable_core,
    v1alpha2::{APIServiceBinding, GroupResource, PermissionClaim},
};
pub(crate) use bindery_sdk::manifests::Decision;
use k8s_openapi::api::rbac::v1::PolicyRule;

use super::rules::holds_claim;
use crate::text::joined;

/// A claim is to be accepted or rejected that the provider does not make.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is not claimed, so there is nothing to {verb}; claimed: {}", .resource, joined(.claimed))]
pub(crate) struct Unclaimed {
    pub(crate) resource: GroupResource,
    /// `accept` or `reject`.
    pub(crate) verb: &'static str,
    pub(crate) claimed: BTreeSet<GroupResource>,
}

/// Refuses a rejection of a resource that is not claimed: it may be a typing error. The claimable core resources are always
/// allowed, so that a rule such as "never Secrets" holds for templates that claim none today.
pub(crate) fn check_rejected<'a>(
    claims: &[PermissionClaim],
    rejected: impl IntoIterator<Item = &'a GroupResource>,
) -> Result<(), Unclaimed> {
    let claimed: BTreeSet<_> = claims.iter().map(|claim| claim.group_resource.clone()).collect();
    let is_known = |resource: &GroupResource| claimed.contains(resource) || is_claimable_core(resource);
    match rejected.into_iter().find(|resource| !is_known(resource)) {
        None => Ok(()),
        Some(resource) => Err(Unclaimed {
            resource: resource.clone(),
            verb: "reject",
            claimed,
        }),
    }
}

/// Decides about the claims of an offer. Accepted are those that are neither rejected now nor by the installed
/// binding, whose roles have these `rules`.
pub(crate) fn decide(
    claims: &[PermissionClaim],
    reject: &[GroupResource],
    binding: Option<&APIServiceBinding>,
    rules: &[PolicyRule],
) -> Decision {
    let rejected: BTreeSet<_> = binding
        .iter()
        .flat_map(|binding| &binding.spec.rejected_permission_claims)
        .chain(reject)
        .cloned()
        .collect();
    let accepted: BTreeSet<_> = claims
        .iter()
        .map(|claim| claim.group_resource.clone())
        .filter(|resource| !rejected.contains(resource))
        .collect();
    let in_effect = binding
        .and_then(|binding| binding.status.as_ref())
        .map_or(&[][..], |status| &status.permission_claims);
    let withdrawn = in_effect
        .iter()
        .map(|claim| &claim.group_resource)
        .filter(|resource| !accepted.contains(resource) && holds_claim(rules, resource))
        .cloned()
        .collect();
    Decision {
        rejected,
        accepted,
        withdrawn,
    }
}

#[cfg(test)]
mod tests;
