use bindery_api::v1alpha2::{APIServiceBindingBundleSpec, APIServiceBindingSpec};
use kube::{Resource as _, core::GroupVersionKind};

use super::*;

fn bundle(name: &str) -> APIServiceBindingBundle {
    let mut bundle = APIServiceBindingBundle::new(name, APIServiceBindingBundleSpec::default());
    bundle.metadata.uid = Some(name.to_owned());
    bundle
}

fn binding(name: &str, of: Option<&str>) -> APIServiceBinding {
    let mut binding = APIServiceBinding::new(name, APIServiceBindingSpec::default());
    let owner = of.and_then(|of| bundle(of).controller_owner_ref(&()));
    binding.metadata.owner_references = owner.map(|owner| vec![owner]);
    binding
}

#[test]
fn whatever_only_the_konnector_can_end_is_named_with_what_ends_it() {
    let check = |bindings: &[APIServiceBinding], bundles: &[APIServiceBindingBundle], says: &[&str]| {
        let refused = nothing_bound(bindings, bundles)
            .err()
            .map(|conflict| conflict.to_string());
        let refused = refused.unwrap_or_default();
        assert_eq!(refused.is_empty(), says.is_empty(), "{refused}");
        for words in says {
            assert!(refused.contains(words), "{words:?}: {refused}");
        }
        refused
    };
    check(&[], &[], &[]);
    check(
        &[binding("a", None), binding("b", None)],
        &[],
        &["APIServiceBinding a,b", "unbind a\n", "unbind b"],
    );
    let both = check(
        &[binding("a", None), binding("b", Some("acme"))],
        &[bundle("acme")],
        &[
            "APIServiceBinding a and APIServiceBindingBundle acme",
            "kubectl delete apiservicebindingbundle acme",
        ],
    );
    assert!(!both.contains("unbind b"), "{both}");
    // Its bundle is gone.
    check(&[binding("b", Some("acme"))], &[], &["unbind b"]);
}

fn object(api_version: &str, kind: &str, name: &str, more: &Value) -> (ApiResource, DynamicObject) {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let api = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let mut value = json!({ "metadata": { "name": name, "namespace": "kube-bind", "uid": format!("{kind}-{name}") } });
    for (key, more) in more.as_object().unwrap() {
        match key.as_str() {
            "type" => value["type"] = more.clone(),
            key => value["metadata"][key] = more.clone(),
        }
    }
    (api, serde_json::from_value(value).unwrap())
}

fn made_for(kind: &str, name: &str) -> Value {
    json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": kind, "name": name, "uid": format!("{kind}-{name}") }] })
}

#[test]
fn nothing_of_others_is_taken_for_ours() {
    let going = [ObjectRef {
        gvk: Gvk::new("apps/v1", "Deployment"),
        namespace: Some("kube-bind".to_owned()),
        name: "konnector".to_owned(),
    }];
    let history = |set: &str| json!({ "type": wire::HISTORY_TYPE, "labels": { wire::LABEL_SET: set } });
    let label = |manager: &str| json!({ "labels": { labels::MANAGED_BY: manager } });
    let held =
        json!({ "annotations": { "holder.kube-bind.io/a": "{}", "holder.kube-bind.io/b": "{}", "example.com/c": "" } });
    let found = [
        object("apps/v1", "Deployment", "konnector", &json!({})),
        object(
            "apps/v1",
            "ReplicaSet",
            "konnector-1",
            &made_for("Deployment", "konnector"),
        ),
        object("v1", "Pod", "konnector-1-x", &made_for("ReplicaSet", "konnector-1")),
        object("v1", "ServiceAccount", "default", &json!({})),
        object("v1", "ConfigMap", "kube-root-ca.crt", &json!({})),
        object("coordination.k8s.io/v1", "Lease", "kube-bind", &held),
        object("coordination.k8s.io/v1", "Lease", "synk-konnector", &json!({})),
        object("v1", "Secret", "kubeconfig-a", &label("kubectl-bind")),
        object("v1", "Secret", "kubeconfig-renewed-a", &label("konnector")),
        object("v1", "Secret", "synk-konnector.v1-0", &history(KONNECTOR)),
        object("v1", "Secret", "synk-web.v1-0", &history("web")),
        object("v1", "Secret", "west", &json!({ "type": "Opaque" })),
        object("coordination.k8s.io/v1", "Lease", "bindery-server", &json!({})),
        object("apps/v1", "Deployment", "bindery-server", &json!({})),
        object(
            "apps/v1",
            "ReplicaSet",
            "bindery-server-1",
            &made_for("Deployment", "bindery-server"),
        ),
        object("v1", "ConfigMap", "c", &made_for("Node", "elsewhere")),
    ];
    let contents = contents(&found, &going);
    assert_eq!(
        contents.others,
        [
            "secret/synk-web.v1-0",
            "secret/west",
            "lease.coordination.k8s.io/bindery-server",
            "deployment.apps/bindery-server",
            "configmap/c"
        ]
    );
    assert_eq!(contents.held, 2);
    assert_eq!(
        contents.ours,
        [
            "lease.coordination.k8s.io/kube-bind",
            "secret/kubeconfig-a",
            "secret/kubeconfig-renewed-a"
        ]
    );
}

#[test]
fn a_namespace_is_taken_out_of_its_set_alone() {
    let owner = |kind: &str, api_version: &str| OwnerReference {
        kind: kind.to_owned(),
        api_version: api_version.to_owned(),
        ..OwnerReference::default()
    };
    let meta = |owners: Vec<OwnerReference>| ObjectMeta {
        owner_references: Some(owners),
        ..ObjectMeta::default()
    };
    let ours = owner(wire::KIND, wire::API_VERSION);
    let other = owner("Team", "example.com/v1");
    assert_eq!(without_set(&ObjectMeta::default()), None);
    assert_eq!(without_set(&meta(vec![other.clone()])), None);
    let patch = without_set(&meta(vec![ours, other])).unwrap();
    assert_eq!(patch["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    assert_eq!(patch["metadata"]["ownerReferences"][0]["kind"], "Team");
}
