//! Which claims a bind accepts and rejects, and which rights follow.

use std::collections::BTreeSet;

use bindery_api::v1alpha2::{GroupResource, PermissionClaim};

use crate::{manifests, output::joined, plan::Installed};

/// Core resources that a provider may claim.
pub(crate) const CLAIMABLE: [&str; 3] = ["configmaps", "secrets", "serviceaccounts"];

/// What a bind makes of the claims of an offer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// What the binding says to reject.
    pub(crate) rejected: BTreeSet<GroupResource>,
    /// What is accepted of the offer.
    pub(crate) accepted: BTreeSet<GroupResource>,
    /// What is not accepted any more, and cannot be withdrawn without the right that the konnector has now.
    pub(crate) withdrawn: BTreeSet<GroupResource>,
}

/// A claim is to be rejected that nobody makes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is not claimed, so that there is nothing to {verb}; claimed: {}", .resource, joined(.claimed))]
pub(crate) struct Unclaimed {
    pub(crate) resource: GroupResource,
    pub(crate) verb: &'static str,
    pub(crate) claimed: BTreeSet<GroupResource>,
}

impl Decision {
    /// What the konnector has rights on.
    pub(crate) fn granted(&self) -> impl Iterator<Item = &GroupResource> {
        self.accepted.union(&self.withdrawn)
    }
}

/// A slip of the pen must not pass for a refusal. The core resources are right in any case: a rule such as "never Secrets"
/// holds also for a template that claims none today.
pub(crate) fn check_rejected<'a>(
    claims: &[PermissionClaim],
    rejected: impl IntoIterator<Item = &'a GroupResource>,
) -> Result<(), Unclaimed> {
    let claimed: BTreeSet<_> = claims.iter().map(|claim| claim.group_resource.clone()).collect();
    let is_known = |resource: &GroupResource| {
        claimed.contains(resource) || (resource.is_core() && CLAIMABLE.contains(&resource.resource.as_str()))
    };
    match rejected.into_iter().find(|resource| !is_known(resource)) {
        None => Ok(()),
        Some(resource) => Err(Unclaimed {
            resource: resource.clone(),
            verb: "reject",
            claimed,
        }),
    }
}

/// What a bind makes of the claims of an offer: accepted is what is not rejected now and was not before.
pub(crate) fn decide(claims: &[PermissionClaim], reject: &[GroupResource], seen: &Installed) -> Decision {
    let binding = seen.binding.as_ref();
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
    let rules = seen
        .cluster_role
        .iter()
        .flat_map(|role| role.rules.as_deref().unwrap_or_default());
    let rules: Vec<_> = rules.cloned().collect();
    let in_effect = binding
        .and_then(|binding| binding.status.as_ref())
        .map_or(&[][..], |status| &status.permission_claims);
    let withdrawn = in_effect
        .iter()
        .map(|claim| &claim.group_resource)
        .filter(|resource| !accepted.contains(resource) && manifests::holds_claim(&rules, resource))
        .cloned()
        .collect();
    Decision {
        rejected,
        accepted,
        withdrawn,
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::APIServiceBindingStatus;

    use super::*;
    use crate::{
        claims::tests::claim,
        manifests::{Kubeconfig, claim_rule, tests::manifests},
    };

    fn core(resources: &[&str]) -> Vec<GroupResource> {
        resources
            .iter()
            .map(|resource| GroupResource::new("", *resource))
            .collect()
    }

    /// A binding that rejects, with claims in effect and rights on others.
    fn seen(rejected: &[&str], in_effect: &[&str], rights: &[&str]) -> Installed {
        let mut manifests = manifests(Kubeconfig::Hidden("x"));
        manifests.binding.spec.rejected_permission_claims = core(rejected);
        manifests.binding.status = Some(APIServiceBindingStatus {
            permission_claims: in_effect.iter().map(|resource| claim(resource, None)).collect(),
            ..APIServiceBindingStatus::default()
        });
        manifests.cluster_role.rules = Some(core(rights).iter().map(claim_rule).collect());
        Installed {
            binding: Some(manifests.binding),
            cluster_role: Some(manifests.cluster_role),
            ..Installed::default()
        }
    }

    /// Offered, rejected by flags, seen; expected: rejected, accepted, withdrawn.
    #[track_caller]
    fn check(offered: &[&str], reject: &[&str], seen: &Installed, expect: [&[&str]; 3]) {
        let claims: Vec<_> = offered.iter().map(|resource| claim(resource, None)).collect();
        let decision = decide(&claims, &core(reject), seen);
        let [rejected, accepted, withdrawn] = expect.map(|resources| core(resources).into_iter().collect());
        assert_eq!(
            decision,
            Decision {
                rejected,
                accepted,
                withdrawn
            }
        );
    }

    #[test]
    fn what_is_not_rejected_is_accepted() {
        let new = Installed::default();
        check(&[], &[], &new, [&[], &[], &[]]);
        check(&["secrets"], &[], &new, [&[], &["secrets"], &[]]);
        check(&["secrets"], &["secrets"], &new, [&["secrets"], &[], &[]]);
        check(
            &["configmaps", "secrets"],
            &["secrets"],
            &new,
            [&["secrets"], &["configmaps"], &[]],
        );
        check(&[], &["secrets"], &new, [&["secrets"], &[], &[]]);
    }

    #[test]
    fn a_rejection_lasts_and_keeps_the_right_until_it_is_carried_out() {
        check(
            &["secrets"],
            &[],
            &seen(&["secrets"], &[], &[]),
            [&["secrets"], &[], &[]],
        );
        let used = seen(&[], &["secrets"], &["secrets"]);
        check(&["secrets"], &[], &used, [&[], &["secrets"], &[]]);
        check(&["secrets"], &["secrets"], &used, [&["secrets"], &[], &["secrets"]]);
        // The template claims it no more.
        check(&[], &[], &used, [&[], &[], &["secrets"]]);
        // Carried out, or never granted: no right is given for it.
        check(
            &["secrets"],
            &["secrets"],
            &seen(&[], &[], &["secrets"]),
            [&["secrets"], &[], &[]],
        );
        check(
            &["secrets"],
            &["secrets"],
            &seen(&[], &["secrets"], &[]),
            [&["secrets"], &[], &[]],
        );
    }

    #[test]
    fn only_what_can_be_claimed_is_rejected() {
        let claims = [claim("secrets", None)];
        assert_eq!(check_rejected(&claims, &core(&["secrets", "configmaps"])), Ok(()));
        let refusal = check_rejected(&claims, &core(&["secret"])).expect_err("a refusal");
        assert_eq!(
            refusal.to_string(),
            "secret is not claimed, so that there is nothing to reject; claimed: secrets"
        );
        assert!(check_rejected(&[], &[GroupResource::new("x.dev", "secrets")]).is_err());
    }
}
