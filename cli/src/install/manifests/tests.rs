use bindery_api::v1alpha2::{APIServiceBinding, GroupResource};
use bindery_sdk::manifests::Owner;
use serde_json::json;

use super::*;
use crate::{
    claims::{decide, rules::holds_claim},
    provider::offer::{judge, tests::answer},
};

/// The binding among the objects of one bind.
pub(crate) fn binding_of(manifests: Manifests) -> APIServiceBinding {
    match manifests.owner {
        Owner::Binding(binding) => *binding,
        Owner::Bundle(bundle) => panic!("{bundle:?}"),
    }
}

/// What is installed for the binding `west` of template `cowboys`, which claims `secrets`.
pub(crate) fn manifests(kubeconfig: Kubeconfig) -> Manifests {
    rejecting(&[], kubeconfig)
}

/// As [`manifests`], with claims rejected.
pub(crate) fn rejecting(reject: &[GroupResource], kubeconfig: Kubeconfig) -> Manifests {
    let offer = judge(&answer(), "west").unwrap();
    let decision = decide(&offer.claims, reject, None, None);
    let install = Install {
        binding: "west",
        template: Some("cowboys"),
        offer: &offer,
        decision: &decision,
        secret: &secret_ref("west", "kube-bind"),
        konnector: ("kube-bind", "konnector"),
        with_namespace: true,
    };
    Manifests::of_binding(&install, kubeconfig)
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
        &manifests.secret.metadata.clone(),
        &meta,
        &binding_of(manifests).metadata,
    ] {
        assert!(is_ours(meta));
    }
    assert!(!is_ours(&ObjectMeta::default()));
}
