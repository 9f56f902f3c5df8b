use bindery_api::{Accepted, v1alpha2::GroupResource};
use serde_json::json;

use super::*;
use crate::{
    claims::{decide, rules::holds_claim},
    provider::offer::tests::answer,
};

impl Manifests {
    pub(crate) fn into_binding(self) -> APIServiceBinding {
        match self.owner {
            CredentialOwner::Binding(binding) => *binding,
            CredentialOwner::Bundle(bundle) => panic!("{bundle:?}"),
        }
    }
}

/// What is installed for the binding `west` of template `cowboys`, which claims `secrets`.
pub(crate) fn manifests(kubeconfig: Kubeconfig) -> Manifests {
    rejecting(&[], kubeconfig)
}

/// As [`manifests`], with claims rejected.
pub(crate) fn rejecting(reject: &[GroupResource], kubeconfig: Kubeconfig) -> Manifests {
    let offer = offer::judge(&answer(), "west").unwrap();
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
fn the_binding_records_what_was_accepted_when_it_was_bound() {
    let claims = offer::judge(&answer(), "west").unwrap().claims;
    let secrets = GroupResource::new("", "secrets");
    assert_eq!(claims[0].group_resource, secrets);
    for (reject, expect) in [(&[][..], &claims[..]), (&[secrets], &[])] {
        let binding = rejecting(reject, Kubeconfig::Hidden("x")).into_binding();
        assert_eq!(Accepted::of(&binding), Accepted::Claims(expect.to_vec()));
    }
}

#[test]
fn documents_are_whole_and_in_order() {
    let documents = manifests(Kubeconfig::Document(b"x".to_vec())).documents().unwrap();
    let heads: Vec<_> = documents
        .iter()
        .map(|document| {
            format!(
                "{} {}",
                document["kind"].as_str().unwrap(),
                document["metadata"]["name"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        heads,
        [
            "Namespace kube-bind",
            "ClusterRole kube-bind-konnector-west",
            "ClusterRoleBinding kube-bind-konnector-west",
            "Secret kubeconfig-west",
            "APIServiceBinding west",
        ]
    );
    assert!(documents.iter().all(|document| document["apiVersion"].is_string()));
    assert_eq!(documents[3]["data"], json!({ "kubeconfig": "eA==" }));
    assert_eq!(documents[3]["metadata"]["namespace"], "kube-bind");
    assert_eq!(
        documents[4]["spec"],
        json!({ "kubeconfigSecretRef": { "namespace": "kube-bind", "name": "kubeconfig-west", "key": "kubeconfig" } })
    );
    assert_eq!(
        documents[4]["metadata"]["annotations"]["kube-bind.io/template"],
        "cowboys"
    );
}

#[test]
fn the_role_holds_what_is_bound_and_claimed_and_its_own_end() {
    let role = serde_json::to_value(manifests(Kubeconfig::Hidden("x")).rights.unwrap().cluster_role).unwrap();
    assert_eq!(
        role["rules"],
        json!([
            { "apiGroups": ["wildwest.dev"], "resources": ["cowboys"],
              "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"] },
            { "apiGroups": ["wildwest.dev"], "resources": ["cowboys/status"], "verbs": ["get", "patch", "update"] },
            { "apiGroups": [""], "resources": ["secrets"],
              "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"] },
            { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "clusterrolebindings"],
              "resourceNames": ["kube-bind-konnector-west"], "verbs": ["delete"] },
        ])
    );
}

#[test]
fn a_rejected_claim_gives_no_right_and_stands_on_the_binding() {
    let secrets = GroupResource::new("", "secrets");
    let rejecting = rejecting(std::slice::from_ref(&secrets), Kubeconfig::Hidden("x"));
    let rules = rejecting.rights.clone().unwrap().cluster_role.rules.unwrap();
    assert!(!holds_claim(&rules, &secrets));
    assert!(!serde_json::to_string(&rules).unwrap().contains("secrets"));
    let binding = serde_json::to_value(rejecting.into_binding()).unwrap();
    assert_eq!(
        binding["spec"]["rejectedPermissionClaims"],
        json!([{ "resource": "secrets" }])
    );
}

#[test]
fn the_role_goes_to_the_konnector_alone() {
    let binding = manifests(Kubeconfig::Hidden("x")).rights.unwrap().cluster_role_binding;
    let subjects = serde_json::to_value(binding.subjects).unwrap();
    assert_eq!(
        subjects,
        json!([{ "kind": "ServiceAccount", "name": "konnector", "namespace": "kube-bind" }])
    );
    assert_eq!(binding.role_ref.name, "kube-bind-konnector-west");
}

#[test]
fn hidden_is_hidden() {
    let documents = manifests(Kubeconfig::Hidden("<hidden>")).documents().unwrap();
    assert_eq!(documents[3]["stringData"], json!({ "kubeconfig": "<hidden>" }));
    assert!(documents[3].get("data").is_none());
}

#[test]
fn what_it_makes_is_marked_as_its_own() {
    let manifests = manifests(Kubeconfig::Hidden("x"));
    for meta in [
        &manifests.secret.metadata,
        &manifests.rights.as_ref().unwrap().cluster_role.metadata,
        manifests.owner.meta(),
    ] {
        assert!(is_ours(meta));
    }
    assert!(!is_ours(&ObjectMeta::default()));
}
