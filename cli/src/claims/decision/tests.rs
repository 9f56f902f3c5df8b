use bindery_api::consumer_rules::claim_rule;
use bindery_api::v1alpha2::APIServiceBindingStatus;

use super::*;
use crate::{
    claims::tests::claim,
    install::{
        manifests::{
            Kubeconfig,
            tests::{binding_of, manifests},
        },
        plan::Installed,
    },
};

fn core(resources: &[&str]) -> Vec<GroupResource> {
    resources
        .iter()
        .map(|resource| GroupResource::new("", *resource))
        .collect()
}

/// A binding that rejects, with claims in effect and rights on others.
fn seen(rejected: &[&str], in_effect: &[&str], rights: &[&str]) -> Installed {
    let manifests = manifests(Kubeconfig::Hidden("x"));
    let mut role = manifests.rights.clone().unwrap().cluster_role;
    let mut binding = binding_of(manifests);
    binding.spec.rejected_permission_claims = core(rejected);
    binding.status = Some(APIServiceBindingStatus {
        permission_claims: in_effect.iter().map(|resource| claim(resource, None)).collect(),
        ..APIServiceBindingStatus::default()
    });
    role.rules = Some(core(rights).iter().map(claim_rule).collect());
    Installed {
        owner: Some(binding.into()),
        cluster_role: Some(role),
        ..Installed::default()
    }
}

/// Offered, rejected by flags, seen; expected: rejected, accepted, withdrawn.
#[track_caller]
fn check(offered: &[&str], reject: &[&str], seen: &Installed, expect: [&[&str]; 3]) {
    let claims: Vec<_> = offered.iter().map(|resource| claim(resource, None)).collect();
    let decision = decide(&claims, &core(reject), seen.binding(), &seen.rules());
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
        "secret is not claimed, so there is nothing to reject; claimed: secrets"
    );
    assert!(check_rejected(&[], &[GroupResource::new("x.dev", "secrets")]).is_err());
}
