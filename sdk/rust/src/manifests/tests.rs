use bindery_api::Accepted;
use serde_json::json;

use super::offer::tests::answer;
use super::*;

/// What is made for the binding `west` of template `cowboys`, which claims `secrets`.
fn manifests(options: Options) -> Manifests {
    let mut answer = answer();
    answer.kubeconfig = Some(bindery_proto::v1alpha2::Kubeconfig {
        kubeconfig: bytes::Bytes::from_static(b"hunter2"),
        ..bindery_proto::v1alpha2::Kubeconfig::default()
    });
    let options = Options {
        template: Some("cowboys".to_owned()),
        with_namespace: true,
        ..options
    };
    Manifests::of_response(&answer, &options).unwrap()
}

#[test]
fn the_binding_records_what_was_accepted_when_it_was_bound() {
    let claims = offer::judge(&answer(), "west").unwrap().claims;
    let secrets = GroupResource::new("", "secrets");
    assert_eq!(claims[0].group_resource, secrets);
    for (reject, expect) in [(vec![], &claims[..]), (vec![secrets], &[])] {
        let made = manifests(Options {
            reject: reject.into_iter().collect(),
            ..Options::default()
        });
        let Owner::Binding(binding) = made.owner else {
            panic!("{made:?}");
        };
        assert_eq!(Accepted::of(&binding), Accepted::Claims(expect.to_vec()));
    }
}

#[test]
fn documents_are_whole_and_in_order() {
    let documents = manifests(Options::default()).documents().unwrap();
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
    assert_eq!(documents[3]["data"], json!({ "kubeconfig": "aHVudGVyMg==" }));
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
    let role = serde_json::to_value(manifests(Options::default()).rights.unwrap().cluster_role).unwrap();
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
fn the_role_goes_to_the_konnector_alone() {
    let binding = manifests(Options::default()).rights.unwrap().cluster_role_binding;
    let subjects = serde_json::to_value(binding.subjects).unwrap();
    assert_eq!(
        subjects,
        json!([{ "kind": "ServiceAccount", "name": "konnector", "namespace": "kube-bind" }])
    );
    assert_eq!(binding.role_ref.name, "kube-bind-konnector-west");
}

#[test]
fn hidden_is_hidden() {
    let secret = serde_json::to_value(secret(&secret_ref("west", "x"), Kubeconfig::Hidden("<hidden>"))).unwrap();
    assert_eq!(secret["stringData"], json!({ "kubeconfig": "<hidden>" }));
    assert!(secret.get("data").is_none());
    let shown = format!("{:?}", manifests(Options::default()));
    assert!(
        !shown.contains("hunter2") && shown.contains("kubeconfig-west"),
        "{shown}"
    );
}
