use std::collections::BTreeMap;

use bindery_synk::report::{Outcome as Became, Problem};
use bindery_synk::wire::ResourceSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, OwnerReference};
use serde_json::json;

use super::*;
use crate::render::{
    applied::Report as Lines,
    output::{Format, Printer},
};

fn object(kind: &str, name: &str) -> ObjectRef {
    ObjectRef::of(&json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name } })).unwrap()
}

fn became(name: &str, action: Action, error: Option<Problem>) -> Became {
    Became {
        object: object("Secret", name),
        action,
        uid: None,
        generation: None,
        error,
    }
}

#[test]
fn what_was_done_is_told_in_kubectls_words() {
    let report = Report {
        version: None,
        changed: true,
        objects: vec![
            became("a", Action::Create, None),
            became("b", Action::Update, None),
            became("c", Action::Replace, None),
            became("d", Action::None, None),
            became("e", Action::Ignored, None),
            became("f", Action::None, Some(Problem::lasting("no"))),
        ],
        pruned: vec![object("ConfigMap", "g")],
    };
    let mut out = Vec::new();
    let mut printer = Printer::new(Format::Table, &mut out);
    let mut lines = Lines::new(&mut printer);
    told(&report)
        .into_iter()
        .try_for_each(|applied| lines.tell(applied))
        .unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "secret/a created\nsecret/b configured\nsecret/c configured\nsecret/d unchanged\nsecret/e unchanged\n\
             configmap/g deleted\n"
    );
}

#[test]
fn manifests_are_taken_as_they_are() {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "a" } });
    let manifests = set(vec![namespace.clone(), namespace.clone()]).unwrap();
    assert_eq!(Value::Object(manifests[1].body.clone()), namespace);
    assert_eq!(
        (manifests[1].object.clone(), manifests[1].origin.document),
        (object("Namespace", "a"), 2)
    );
    assert!(set(vec![json!({ "kind": "Namespace" })]).is_err());
}

/// A set of the konnector's name, which lists a Deployment.
fn versions(number: u64, namespace: Option<&str>, deployment: (&str, &str)) -> Versions {
    let name = format!("{KONNECTOR}.v{number}");
    let annotations: BTreeMap<_, _> = namespace
        .map(|namespace| (wire::NAMESPACE, namespace))
        .into_iter()
        .collect();
    let set: ResourceSet = serde_json::from_value(json!({
        "apiVersion": wire::API_VERSION, "kind": wire::KIND,
        "metadata": { "name": name, "uid": name, "labels": { "name": KONNECTOR }, "annotations": annotations },
        "spec": { "resources": [{ "group": "apps", "version": "v1", "kind": "Deployment",
            "items": [{ "namespace": deployment.0, "name": deployment.1 }] }] },
        "status": { "phase": "Settled" },
    }))
    .unwrap();
    let versions = Versions::of(&KONNECTOR.parse().unwrap(), [set]);
    assert_eq!(versions.len(), 1);
    versions
}

#[test]
fn a_set_that_somebody_else_gave_the_name_is_not_ours() {
    let check = |namespace: Option<&str>, deployment: (&str, &str), expect: &str| {
        let refused = check_set(&versions(3, namespace, deployment)).err();
        let refused = refused.map(|conflict| conflict.to_string()).unwrap_or_default();
        assert_eq!(refused.is_empty(), expect.is_empty(), "{refused}");
        assert!(refused.contains(expect), "{expect} is missing in {refused}");
        assert!(expect.is_empty() || refused.contains("konnector.v3"), "{refused}");
    };
    let ours = (KUBE_BIND_NAMESPACE, KONNECTOR);
    assert!(check_set(&Versions::default()).is_ok());
    check(Some(KUBE_BIND_NAMESPACE), ours, "");
    check(Some("team"), ours, "it has namespace team");
    check(None, ours, "it says no namespace");
    for other in [(KUBE_BIND_NAMESPACE, "web"), ("team", KONNECTOR)] {
        check(
            Some(KUBE_BIND_NAMESPACE),
            other,
            "does not list deployment.apps/konnector",
        );
    }
}

#[test]
fn what_somebody_took_out_of_the_set_stays() {
    let versions = versions(3, Some(KUBE_BIND_NAMESPACE), (KUBE_BIND_NAMESPACE, KONNECTOR));
    assert_eq!(listed(&versions), versions.newest().unwrap().objects);
    let objects: Vec<_> = ["a", "b", "c"].map(|name| object("Secret", name)).into();
    let owned_by = |uid: &str| Some(json!({ "metadata": { "ownerReferences": [{ "uid": uid }] } }));
    let live = [owned_by("konnector.v3"), owned_by("konnector.v2"), None];
    assert_eq!(
        going(&versions, objects, &live),
        (vec![object("Secret", "a")], vec![object("Secret", "b")])
    );
}

#[test]
fn what_a_former_release_applied_is_known_by_its_manager() {
    let meta = |manager: &str| ObjectMeta {
        managed_fields: Some(vec![ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            ..ManagedFieldsEntry::default()
        }]),
        ..ObjectMeta::default()
    };
    assert!(was_deployed(&meta("kubectl-bind-deploy")));
    assert!(!was_deployed(&meta("kubectl")) && !was_deployed(&ObjectMeta::default()));
}

#[test]
fn what_is_in_the_set_is_told_from_what_is_in_others() {
    let check = |kind: &str, name: &str, expect: bool| {
        let meta = ObjectMeta {
            owner_references: Some(vec![OwnerReference {
                api_version: wire::API_VERSION.to_owned(),
                kind: kind.to_owned(),
                name: name.to_owned(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        };
        assert_eq!(is_in_set(&meta), expect, "{kind} {name}");
    };
    check(wire::KIND, "konnector.v3", true);
    check(wire::KIND, "other.v3", false);
    check(wire::KIND, "konnector", false);
    check("Node", "konnector.v3", false);
    assert!(!is_in_set(&ObjectMeta::default()));
}
