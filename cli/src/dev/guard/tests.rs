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

fn contract(name: &str, of: &str, identity: Option<&str>, pretty: &str) -> Namespace {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    namespace
        .labels_mut()
        .insert(labels::CONTRACT.to_owned(), of.to_owned());
    let notes = namespace.annotations_mut();
    notes.insert(annotations::CLUSTER_PRETTY_NAME.to_owned(), pretty.to_owned());
    if let Some(identity) = identity {
        notes.insert(annotations::IDENTITY.to_owned(), identity.to_owned());
    }
    namespace
}

#[test]
fn contracts_of_other_clusters_are_named_with_the_command_that_ends_them() {
    let own = contract("kube-bind-x", "kube-bind-x", Some("us"), "any");
    let place = contract("kube-bind-x-west", "kube-bind-x", None, "any");
    let former = contract("kube-bind-y", "kube-bind-y", Some("them"), PRETTY_NAME);
    let foreign = contract("kube-bind-z", "kube-bind-z", Some("those"), "prod");
    let one = Ending {
        context: "p",
        identity: "us",
        all: false,
        end_all: "end --all",
    };
    let all = Ending { all: true, ..one };
    let ends = |of: &Ending<'_>, namespaces: &[&Namespace]| {
        let namespaces: Vec<_> = namespaces.iter().map(|&namespace| namespace.clone()).collect();
        let ending = ending(of, &namespaces).map_err(|conflict| conflict.to_string())?;
        Ok::<_, String>(ending.into_iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>())
    };
    assert_eq!(ends(&one, &[&own, &place]).unwrap(), ["kube-bind-x"]);
    assert_eq!(
        ends(&all, &[&own, &place, &former]).unwrap(),
        ["kube-bind-x", "kube-bind-y"]
    );
    let cases: [(&Ending<'_>, &[&Namespace], &[&str]); 3] = [
        (
            &one,
            &[&own, &former],
            &["contract kube-bind-y of cluster them", "`end --all`"],
        ),
        (
            &one,
            &[&former, &foreign],
            &[
                "cluster them",
                "cluster those",
                "`kubectl --context p delete namespace kube-bind-z`",
            ],
        ),
        (&all, &[&former, &foreign], &["delete namespace kube-bind-z`"]),
    ];
    for (of, namespaces, says) in cases {
        let refused = ends(of, namespaces).unwrap_err();
        for part in says {
            assert!(refused.contains(part), "{part}: {refused}");
        }
    }
}

#[test]
fn other_exports_of_a_contract_are_named() {
    let export = |name: &str| {
        let mut export = APIServiceExport::default();
        export.metadata.name = Some(name.to_owned());
        export.metadata.namespace = Some("kube-bind-x".to_owned());
        export
    };
    assert_eq!(refuse_exports("p", &[export(EXAMPLE)]), Ok(()));
    let refused = refuse_exports("p", &[export(EXAMPLE), export("sheriffs")]);
    let refused = refused.unwrap_err().to_string();
    for says in [
        "APIServiceExport kube-bind-x/sheriffs",
        "`kubectl --context p delete apiserviceexport sheriffs -n kube-bind-x`",
    ] {
        assert!(refused.contains(says), "{refused}");
    }
    assert!(!refused.contains("cowboys"), "{refused}");
}

#[test]
fn a_request_for_another_cluster_is_made_anew_and_one_of_others_is_refused() {
    let request = |identity: &str, by_dev: bool| {
        let mut request = BindableResourcesRequest::default();
        request.spec.cluster_identity.identity = identity.to_owned();
        request.metadata.name = Some(EXAMPLE.to_owned());
        if by_dev {
            request.labels_mut().insert(LABEL.to_owned(), LABELLED.to_owned());
        }
        request
    };
    assert_eq!(asked("p", "us", &request("us", true)), Ok(Asked::Same));
    assert_eq!(asked("p", "us", &request("them", true)), Ok(Asked::ForOther));
    for identity in ["us", "them"] {
        let refused = asked("p", "us", &request(identity, false)).unwrap_err().to_string();
        assert!(
            refused.contains("bindableresourcesrequest.kube-bind.io/cowboys"),
            "{refused}"
        );
    }
}

#[test]
fn what_others_made_in_a_namespace_is_named() {
    let cases = [
        ("", "configmaps", json!({"name": "kube-root-ca.crt"}), false),
        ("", "configmaps", json!({"name": "mine"}), true),
        ("", "serviceaccounts", json!({"name": "default"}), false),
        ("", "serviceaccounts", json!({"name": "mine"}), true),
        ("", "events", json!({"name": "mine"}), false),
        ("coordination.k8s.io", "leases", json!({"name": "mine"}), false),
        ("wildwest.dev", "cowboys", json!({"name": "mine"}), false),
        ("apps", "deployments", json!({"name": "mine"}), true),
        (
            "apps",
            "deployments",
            json!({"name": "made", "labels": {LABEL: LABELLED}}),
            false,
        ),
        (
            "",
            "pods",
            json!({"name": "mine", "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u"}]}),
            false,
        ),
        ("", "pods", json!({"name": "mine", "ownerReferences": []}), true),
        (
            "",
            "secrets",
            json!({"name": "mine", "annotations": {TOKEN_OF: "default"}}),
            false,
        ),
        ("", "secrets", json!({"name": "mine"}), true),
    ];
    for (group, resource, meta, expected) in cases {
        let resource = GroupResource::new(group, resource);
        let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
        assert_eq!(is_of_others(&resource, &meta), expected, "{resource} {meta:?}");
        let refused = refuse_inhabited("c", "wild-west", &[(resource.clone(), meta)]);
        let is_named = |conflict: &Conflict| conflict.to_string().contains(&format!("{resource}/mine in namespace"));
        assert_eq!(refused.as_ref().is_err_and(is_named), expected, "{refused:?}");
    }
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
