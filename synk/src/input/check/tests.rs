use proptest::{collection, prelude::*, sample};
use serde_json::json;

use super::*;
use crate::{
    kinds::Resource,
    object::{Gvk, ObjectRef},
};

fn kinds() -> Kinds {
    let kind = |api_version: &str, kind: &str, plural: &str, namespaced| Resource {
        gvk: Gvk::new(api_version, kind),
        plural: plural.to_owned(),
        namespaced,
    };
    Kinds::served([
        kind("v1", "ConfigMap", "configmaps", true),
        kind("v1", "Secret", "secrets", true),
        kind("v1", "Service", "services", true),
        kind("v1", "ServiceAccount", "serviceaccounts", true),
        kind("v1", "Namespace", "namespaces", false),
        kind("apps/v1", "Deployment", "deployments", true),
        kind("apps/v1beta1", "Deployment", "deployments", true),
        kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false),
    ])
}

fn manifests(bodies: &[Value]) -> Vec<Manifest> {
    let manifest = |(body, line): (&Value, u64)| Manifest {
        object: ObjectRef::of(body).unwrap(),
        body: body.as_object().unwrap().clone(),
        origin: Origin {
            file: "x.yaml".to_owned(),
            document: 1,
            line,
        },
    };
    bodies.iter().zip(1..).map(manifest).collect()
}

fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = value;
    object
}

fn config_map_in(namespace: &str) -> Value {
    with(object("v1", "ConfigMap", "a"), "/metadata/namespace", namespace.into())
}

#[track_caller]
fn check(bodies: &[Value], expect: &[Value]) {
    let resolved = resolve(&manifests(bodies), &kinds(), "shop", &["extra".to_owned()]).unwrap();
    for manifest in &resolved {
        assert_eq!(
            ObjectRef::of(&manifest.body.clone().into()).as_ref(),
            Some(&manifest.object)
        );
    }
    let bodies: Vec<_> = resolved
        .into_iter()
        .map(|manifest| Value::from(manifest.body))
        .collect();
    assert_eq!(bodies, expect);
}

/// An object that is as it is to be.
#[track_caller]
fn check_stays(body: &Value) {
    check(std::slice::from_ref(body), std::slice::from_ref(body));
}

#[track_caller]
fn check_errors(bodies: &[Value], expect: &[&str]) {
    let InputErrors(errors) = resolve(&manifests(bodies), &kinds(), "shop", &["extra".to_owned()]).unwrap_err();
    let errors: Vec<_> = errors
        .iter()
        .map(|error| format!("{}: {}", error.origin.line, error.problem))
        .collect();
    assert_eq!(errors, expect);
}

#[test]
fn namespaces_are_filled_in_by_scope() {
    check(&[object("v1", "ConfigMap", "a")], &[config_map_in("shop")]);
    check(&[config_map_in("")], &[config_map_in("shop")]);
    for namespace in ["shop", "kube-system", "extra"] {
        check(&[config_map_in(namespace)], &[config_map_in(namespace)]);
    }
    let role = object("rbac.authorization.k8s.io/v1", "ClusterRole", "a");
    check(&[with(role.clone(), "/metadata/namespace", "other".into())], &[role]);
    let unknown = object("example.com/v1", "Thing", "a");
    check_stays(&unknown);
    let placed = with(unknown, "/metadata/namespace", "shop".into());
    check_stays(&placed);
}

#[test]
fn other_namespaces_are_refused() {
    let problem = "is in neither shop, the namespace of the set, nor kube-system: move it, or say --allow-namespace";
    check_errors(
        &[
            config_map_in("other"),
            object("v1", "ConfigMap", "b"),
            config_map_in("default"),
        ],
        &[
            &format!("1: configmap/a in namespace other {problem} other"),
            &format!("3: configmap/a in namespace default {problem} default"),
        ],
    );
    let unknown = with(
        object("example.com/v1", "Thing", "a"),
        "/metadata/namespace",
        "other".into(),
    );
    check_errors(
        &[unknown],
        &[&format!("1: thing.example.com/a in namespace other {problem} other")],
    );
    check_errors(
        &[config_map_in("a/b")],
        &[
            "1: configmap/a in namespace a/b is in a namespace that cannot exist: at most 63 of a-z, 0-9 and '-'",
            &format!("1: configmap/a in namespace a/b {problem} a/b"),
        ],
    );
}

#[test]
fn an_object_is_given_once() {
    let deployment = |version: &str| object(&format!("apps/{version}"), "Deployment", "web");
    let bodies = [
        deployment("v1"),
        with(deployment("v1beta1"), "/metadata/namespace", "shop".into()),
    ];
    check_errors(
        &bodies,
        &["2: deployment.apps/web in namespace shop is given twice, first in x.yaml, document 1, line 1"],
    );
    check(
        &[config_map_in("kube-system"), config_map_in("shop")],
        &[config_map_in("kube-system"), config_map_in("shop")],
    );
}

#[test]
fn names_fit_where_they_go() {
    let long = |length: usize| "a".repeat(length);
    check(
        &[with(config_map_in("shop"), "/metadata/name", long(253).into())],
        &[with(config_map_in("shop"), "/metadata/name", long(253).into())],
    );
    for (kind, length, limit) in [("ConfigMap", 254, 253), ("Service", 64, 63), ("Namespace", 64, 63)] {
        let InputErrors(errors) =
            resolve(&manifests(&[object("v1", kind, &long(length))]), &kinds(), "shop", &[]).unwrap_err();
        let expect = format!("has a name of {length} characters: at most {limit} are allowed");
        assert!(errors[0].problem.ends_with(&expect), "{}", errors[0]);
    }
    for name in ["a/b", "..", ".", "a%2Fb"] {
        let problem = "has a name that cannot be part of a path: `/`, `%`, `.` and `..` are not allowed";
        check_errors(
            &[object("v1", "ConfigMap", name)],
            &[&format!("1: configmap/{name} in namespace shop {problem}")],
        );
    }
    let role = object("rbac.authorization.k8s.io/v1", "ClusterRole", "system:a");
    check_stays(&role);
}

#[test]
fn what_only_an_api_server_writes_is_left_out() {
    let owner =
        |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "name": "a", "uid": "u"});
    let exported = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "1", "generation": 2, "creationTimestamp": null,
            "managedFields": [], "selfLink": "/x", "labels": null, "deletionTimestamp": "x", "finalizers": ["f"],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
            "ownerReferences": [owner("apps.cloudrobotics.com/v1alpha1", "ResourceSet"), owner("apps/v1", "ReplicaSet")],
        },
        "data": {"a": null}, "status": {"x": 1},
    });
    let left = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "a", "namespace": "shop", "finalizers": ["f"], "ownerReferences": [owner("apps/v1", "ReplicaSet")],
        },
        "data": {"a": null},
    });
    check(&[exported], &[left]);
    let kept = with(config_map_in("shop"), "/metadata/annotations", json!({}));
    check_stays(&kept);
    let annotated = with(
        config_map_in("shop"),
        "/metadata/annotations",
        json!({LAST: "{}", "b": "c"}),
    );
    let of_a_set = with(
        annotated,
        "/metadata/ownerReferences",
        json!([owner("apps.cloudrobotics.com/v1", "ResourceSet")]),
    );
    check(&[of_a_set], &[with(kept, "/metadata/annotations", json!({"b": "c"}))]);
}

const LAST: &str = crate::wire::LAST_APPLIED;

#[test]
fn data_of_secrets_is_encoded() {
    let secret = |more: Value| {
        let mut body = with(object("v1", "Secret", "a"), "/metadata/namespace", "shop".into());
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    check(
        &[secret(
            json!({"data": {"a": "YQ==", "b": "Yg==\n"}, "stringData": {"a": "hello", "c": ""}}),
        )],
        &[secret(json!({"data": {"a": "aGVsbG8=", "b": "Yg==", "c": ""}}))],
    );
    check(
        &[secret(json!({"stringData": null, "type": "Opaque"}))],
        &[secret(json!({"type": "Opaque"}))],
    );
    let at = "1: secret/a in namespace shop has";
    check_errors(
        &[secret(
            json!({"data": {"a": 1234, "b": "hunter2!"}, "stringData": {"c": 1234, "d": ["hunter2"]}}),
        )],
        &[
            &format!("{at} data.a that is not text in base64: encode it, or use stringData"),
            &format!("{at} data.b that is not text in base64: encode it, or use stringData"),
            &format!("{at} stringData.c that is not text: put it in quotes"),
            &format!("{at} stringData.d that is not text: put it in quotes"),
        ],
    );
    check_errors(
        &[secret(json!({"data": "hunter2"}))],
        &[&format!("{at} data that is not a mapping")],
    );
    let other = with(config_map_in("shop"), "/stringData", json!({"a": "b"}));
    check_stays(&other);
}

#[test]
fn objects_come_in_the_order_in_which_they_are_applied() {
    let bodies = [
        object("v1", "ConfigMap", "b"),
        object("v1", "Secret", "a"),
        object("apps/v1", "Deployment", "a"),
        object("v1", "ConfigMap", "a"),
        object("v1", "ServiceAccount", "a"),
        object("v1", "Namespace", "shop"),
        object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "z"),
    ];
    let resolved = resolve(&manifests(&bodies), &kinds(), "shop", &[]).unwrap();
    let order: Vec<_> = resolved.iter().map(|manifest| manifest.object.short()).collect();
    assert_eq!(
        order,
        [
            "customresourcedefinition.apiextensions.k8s.io/z",
            "namespace/shop",
            "serviceaccount/a",
            "secret/a",
            "configmap/a",
            "configmap/b",
            "deployment.apps/a",
        ]
    );
}

fn any_object() -> impl Strategy<Value = Value> {
    let kinds = vec![
        ("v1", "ConfigMap"),
        ("v1", "Secret"),
        ("v1", "Namespace"),
        ("apps/v1", "Deployment"),
        ("example.com/v1", "Thing"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ];
    let namespaces = vec![None, Some("shop"), Some("kube-system"), Some("")];
    let text = collection::btree_map("[a-c]", ".{0,5}", 0..3);
    let annotations = collection::btree_map(prop_oneof![Just(LAST.to_owned()), "[a-c]"], ".{0,5}", 0..3);
    (
        sample::select(kinds),
        "[a-d]{1,2}",
        sample::select(namespaces),
        text,
        annotations,
        any::<bool>(),
    )
        .prop_map(|((api_version, kind), name, namespace, text, annotations, exported)| {
            let mut body = object(api_version, kind, &name);
            body["metadata"]["annotations"] = json!(annotations);
            if let Some(namespace) = namespace {
                body["metadata"]["namespace"] = namespace.into();
            }
            if exported {
                body["metadata"]["uid"] = "u".into();
                body["metadata"]["labels"] = Value::Null;
                body["status"] = json!({"a": 1});
            }
            body["stringData"] = json!(text);
            body
        })
}

proptest! {
    #[test]
    fn what_is_resolved_stays_as_it_is(bodies in collection::vec(any_object(), 0..12)) {
        let mut seen = std::collections::BTreeSet::new();
        let mut given = manifests(&bodies);
        given.retain(|manifest| seen.insert((manifest.object.gvk.clone(), manifest.object.name.clone())));
        let once = resolve(&given, &kinds(), "shop", &[]).unwrap();
        prop_assert_eq!(once.len(), given.len());
        prop_assert_eq!(&resolve(&once, &kinds(), "shop", &[]).unwrap(), &once);
        given.reverse();
        prop_assert_eq!(resolve(&given, &kinds(), "shop", &[]).unwrap(), once);
    }
}
