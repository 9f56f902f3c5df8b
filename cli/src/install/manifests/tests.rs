use bindery_api::v1alpha2::{APIServiceBinding, GroupResource};
use bindery_sdk::manifests::ManifestOwner;
use serde_json::json;

use super::*;
use crate::{
    claims::{decide, rules::holds_claim},
    provider::offer::{judge, tests::answer},
};

/// The binding among the objects of one bind.
pub(crate) fn binding_of(manifests: Manifests) -> APIServiceBinding {
    match manifests.owner {
        ManifestOwner::Binding(binding) => *binding,
        ManifestOwner::Bundle(bundle) => panic!("{bundle:?}"),
    }
}

/// What is installed for the binding `west` of template `cowboys`, which claims `secrets`.
pub(crate) fn manifests(kubeconfig: Kubeconfig) -> Manifests {
    rejecting(&[], kubeconfig)
}

/// As [`manifests`], with claims rejected.
pub(crate) fn rejecting(reject: &[GroupResource], kubeconfig: Kubeconfig) -> Manifests {
    limited(reject, &[], &ClaimRights::default(), kubeconfig)
}

/// As [`rejecting`], for claims that concern these namespaces, with rights on claimed objects there.
pub(crate) fn limited(
    reject: &[GroupResource],
    claim_namespaces: &[String],
    claim_rights: &ClaimRights,
    kubeconfig: Kubeconfig,
) -> Manifests {
    let offer = judge(&answer(), "west").unwrap();
    let decision = decide(&offer.claims, reject, None, &[]);
    let install = BindingInstall {
        binding: "west",
        template: Some("cowboys"),
        offer: &offer,
        decision: &decision,
        secret: &secret_ref("west", "kube-bind"),
        konnector: ("kube-bind", "konnector"),
        with_namespace: true,
        claim_namespaces,
        claim_rights,
    };
    Manifests::of_binding(&install, kubeconfig)
}

#[test]
fn claims_of_listed_namespaces_give_rights_there_alone() {
    let secrets = GroupResource::new("", "secrets");
    let listed = ["west".to_owned()];
    let rights = |in_cluster, namespaces: &[&str]| ClaimRights {
        in_cluster,
        namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
    };
    let made = |rights: &ClaimRights| limited(&[], &listed, rights, Kubeconfig::Hidden("x"));
    let limited_to_one = made(&rights(false, &["west"]));
    assert_eq!(binding_of(limited_to_one.clone()).spec.claim_namespaces, listed);
    let rights_to_one = limited_to_one.rights.unwrap();
    let rules = rights_to_one.cluster_role.rules.unwrap();
    assert!(!holds_claim(&rules, &secrets));
    let own = rules.last().unwrap();
    assert_eq!(own.verbs, ["delete"]);
    assert!(own.resources.as_ref().unwrap().contains(&"roles".to_owned()));
    let [one] = &rights_to_one.in_namespaces[..] else {
        panic!("{:?}", rights_to_one.in_namespaces);
    };
    assert_eq!(one.role.metadata.namespace.as_deref(), Some("west"));
    assert_eq!(
        one.role.rules.as_deref().unwrap(),
        [bindery_api::consumer_rules::claim_rule(&secrets)]
    );
    assert_eq!(one.role_binding.role_ref.kind, "Role");
    assert!(is_ours(&one.role.metadata) && is_ours(&one.role_binding.metadata));
    // Until copies elsewhere are withdrawn, the konnector has rights there too.
    let leaving = made(&rights(true, &["east", "west"])).rights.unwrap();
    assert!(holds_claim(leaving.cluster_role.rules.as_deref().unwrap(), &secrets));
    assert_eq!(leaving.in_namespaces.len(), 2);
    // Where the claim is rejected, a Role waits for the day on which it is accepted.
    let rejected = limited(&[secrets], &listed, &rights(false, &["west"]), Kubeconfig::Hidden("x"));
    let [waiting] = &rejected.rights.as_ref().unwrap().in_namespaces[..] else {
        panic!("{:?}", rejected.rights);
    };
    assert_eq!(waiting.role.rules.as_deref(), Some(&[][..]));
}

#[test]
fn a_rejected_claim_gives_no_right_and_stands_on_the_binding() {
    let secrets = GroupResource::new("", "secrets");
    let rejecting = rejecting(std::slice::from_ref(&secrets), Kubeconfig::Hidden("x"));
    let rules = rejecting.rights.clone().unwrap().cluster_role.rules.unwrap();
    assert!(!holds_claim(&rules, &secrets));
    assert!(!serde_json::to_string(&rules).unwrap().contains("secrets"));
    let binding = serde_json::to_value(binding_of(rejecting)).unwrap();
    assert_eq!(
        binding["spec"]["rejectedPermissionClaims"],
        json!([{ "resource": "secrets" }])
    );
}

#[test]
fn what_it_makes_is_marked_as_its_own() {
    let manifests = manifests(Kubeconfig::Hidden("x"));
    let meta = manifests.rights.as_ref().unwrap().cluster_role.metadata.clone();
    for meta in [
        &manifests.secret().metadata.clone(),
        &meta,
        &binding_of(manifests).metadata,
    ] {
        assert!(is_ours(meta));
    }
    assert!(!is_ours(&ObjectMeta::default()));
}
