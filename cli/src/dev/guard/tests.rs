use bindery_synk::Gvk;
use serde_json::json;

use super::*;

fn made(name: &str, by_dev: bool) -> Value {
    let labels = if by_dev {
        json!({LABEL: LABELLED})
    } else {
        json!({"app": "x"})
    };
    json!({"metadata": {"name": name, "labels": labels}})
}

#[test]
fn what_was_there_before_is_named_and_not_touched() {
    let object = |name: &str| ObjectRef {
        gvk: Gvk::new("apps/v1", "Deployment"),
        namespace: Some("kube-bind".to_owned()),
        name: name.to_owned(),
    };
    let wanted = [object("a"), object("b"), object("c")];
    let live = [Some(made("a", true)), None, Some(made("c", false))];
    assert_eq!(refuse_foreign("p", &wanted[..2], &live[..2]), Ok(()));
    let refused = refuse_foreign("p", &wanted, &live).unwrap_err().to_string();
    assert!(
        refused.contains("deployment.apps/c") && !refused.contains("deployment.apps/a"),
        "{refused}"
    );
    let unlabelled = [Some(json!({"metadata": {"name": "a"}}))];
    assert!(refuse_foreign("p", &wanted[..1], &unlabelled).is_err());
}

#[test]
fn bindings_of_others_are_named() {
    let binding = |name: &str, by_dev: bool| {
        let mut binding = made(name, by_dev);
        binding["spec"] = json!({"kubeconfigSecretRef": {"name": "a", "namespace": "kube-bind", "key": "kubeconfig"}});
        serde_json::from_value::<APIServiceBinding>(binding).unwrap()
    };
    let bundle = |name: &str| {
        let mut bundle = made(name, false);
        bundle["spec"] = json!({"kubeconfigSecretRef": {"name": "a", "namespace": "kube-bind", "key": "kubeconfig"}});
        serde_json::from_value::<APIServiceBindingBundle>(bundle).unwrap()
    };
    assert_eq!(refuse_bound("c", &[binding("cowboys", true)], &[]), Ok(()));
    let refused = refuse_bound(
        "c",
        &[binding("cowboys", true), binding("mine", false)],
        &[bundle("all")],
    );
    let refused = refused.unwrap_err().to_string();
    for says in ["APIServiceBinding mine", "APIServiceBindingBundle all"] {
        assert!(refused.contains(says), "{refused}");
    }
    assert!(!refused.contains("cowboys"), "{refused}");
}

#[test]
fn contracts_of_other_clusters_are_named() {
    let namespace = |name: &str, contract: &str, identity: Option<&str>| {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        namespace
            .labels_mut()
            .insert(labels::CONTRACT.to_owned(), contract.to_owned());
        if let Some(identity) = identity {
            let annotations = namespace.annotations_mut();
            annotations.insert(bindery_api::annotations::IDENTITY.to_owned(), identity.to_owned());
        }
        namespace
    };
    let own = namespace("kube-bind-x", "kube-bind-x", Some("us"));
    let place = namespace("kube-bind-x-west", "kube-bind-x", None);
    let other = namespace("kube-bind-y", "kube-bind-y", Some("them"));
    let all = [own.clone(), place];
    assert_eq!(own_contracts("p", "us", &all).unwrap(), [&own]);
    let refused = own_contracts("p", "us", &[own, other]).unwrap_err().to_string();
    assert!(refused.contains("contract kube-bind-y of cluster them"), "{refused}");
}

#[test]
fn only_what_the_controller_of_aggregated_roles_wrote_alone_was_made_again() {
    let by = |managers: &[&str]| {
        let fields: Vec<_> = managers.iter().map(|manager| json!({"manager": manager})).collect();
        serde_json::from_value::<ObjectMeta>(json!({"managedFields": fields})).unwrap()
    };
    assert!(is_made_again(&by(&["clusterrole-aggregation-controller"])));
    assert!(!is_made_again(&by(&["helm", "clusterrole-aggregation-controller"])));
    assert!(!is_made_again(&by(&[])));
    assert!(!is_made_again(&ObjectMeta::default()));
}
