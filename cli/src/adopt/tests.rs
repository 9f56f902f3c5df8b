use serde_json::{Value, json};

use super::*;
use Fate::{Adopt, Conflict, Link, Nothing};

fn facts(value: &Value) -> ObjectFacts {
    ObjectFacts::of(serde_json::from_value(value.clone()).unwrap())
}

/// A cowboy of the provider with these annotations.
fn object(notes: &[(&str, &str)]) -> Value {
    let notes: serde_json::Map<_, _> = notes
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect();
    json!({ "apiVersion": "wildwest.dev/v1alpha1", "kind": "Cowboy", "spec": { "intent": "ride" }, "metadata": {
        "name": "billy", "namespace": "c-west", "uid": "u", "annotations": notes, "labels": { "app": "cowboy" } } })
}

/// An object, and what stands here; expected: under opt-in, under all, and a part of why.
#[track_caller]
fn check(object: &Value, here: Option<&Value>, shared: bool, expect: (Fate, Fate, &str)) {
    let resource = GroupResource::new("wildwest.dev", "cowboys");
    let scope = AdoptionScope {
        binding: "cowboys",
        contract: "c",
        resource: &resource,
        konnector_namespace: "kube-bind",
        names_are_shared: shared,
    };
    let key = ("west".to_owned(), "billy".to_owned());
    let here = here.map(facts);
    let item = item(&scope, key, &facts(object), here.as_ref(), false);
    assert_eq!((item.opt_in, item.all), (expect.0, expect.1), "{}", item.why);
    assert!(item.why.contains(expect.2), "{}", item.why);
    assert_eq!(item.makes_namespace, expect.1 == Adopt);
    assert_eq!(item.cells(Timestamp::UNIX_EPOCH).len(), AdoptionItem::HEADINGS.len());
}

const OPTED_IN: (&str, &str) = (annotations::AUTOADOPT, "true");

#[test]
fn what_never_had_a_counterpart_is_adopted_as_the_setting_says() {
    check(&object(&[]), None, false, (Nothing, Adopt, "not opted it in"));
    check(
        &object(&[OPTED_IN]),
        None,
        false,
        (Adopt, Adopt, "never had a counterpart"),
    );
}

#[test]
fn marks_keep_it_from_being_adopted() {
    check(
        &object(&[(annotations::BOUND, "true"), OPTED_IN]),
        None,
        false,
        (Nothing, Nothing, "has or had"),
    );
    check(
        &object(&[(annotations::CONSUMER_UID, "x")]),
        None,
        false,
        (Nothing, Nothing, "has or had"),
    );
    for shared in [true, false] {
        let anothers = object(&[(annotations::CLUSTER_NAMESPACE, "d"), OPTED_IN]);
        check(&anothers, None, shared, (Nothing, Nothing, "contract d"));
    }
    check(
        &object(&[OPTED_IN]),
        None,
        true,
        (Nothing, Nothing, "whose the object is"),
    );
    let ours = object(&[(annotations::CLUSTER_NAMESPACE, "c"), OPTED_IN]);
    check(&ours, None, true, (Adopt, Adopt, ""));
    let mut going = object(&[OPTED_IN]);
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    check(&going, None, false, (Nothing, Nothing, "being deleted"));
}

#[test]
fn what_is_here_already_is_one_with_it_or_in_its_way() {
    let mut here = object(&[]);
    here["metadata"]["uid"] = json!("v");
    here["status"] = json!({ "result": "x" });
    check(&object(&[OPTED_IN]), Some(&here), false, (Link, Link, "says the same"));
    check(&object(&[]), Some(&here), false, (Conflict, Link, ""));
    let with = |path: &str, value: Value| {
        let mut changed = here.clone();
        *changed.pointer_mut(path).unwrap() = value;
        changed
    };
    for (path, value, field) in [
        ("/spec/intent", json!("shoot"), "spec.intent"),
        ("/spec", json!({ "intent": "ride", "more": 1 }), "spec.more"),
        ("/metadata/labels", json!({}), "metadata.labels[app]"),
        (
            "/metadata/labels",
            json!({ "app": "cowboy", "b": "c" }),
            "metadata.labels[b]",
        ),
    ] {
        check(
            &object(&[OPTED_IN]),
            Some(&with(path, value)),
            false,
            (Conflict, Conflict, field),
        );
    }
    let note = |key: &str, value: &str| with("/metadata/annotations", json!({ key: value }));
    let paused = note(annotations::PAUSED, "true");
    check(&object(&[OPTED_IN]), Some(&paused), false, (Nothing, Nothing, "paused"));
    let adopted = note(annotations::ADOPTED, "u");
    check(
        &object(&[OPTED_IN]),
        Some(&adopted),
        false,
        (Nothing, Nothing, "adopted already"),
    );
}

#[test]
fn programs_read_the_fate_by_name() {
    let resource = GroupResource::new("wildwest.dev", "cowboys");
    let scope = AdoptionScope {
        binding: "west",
        contract: "c",
        resource: &resource,
        konnector_namespace: "kube-bind",
        names_are_shared: false,
    };
    let key = ("west".to_owned(), "billy".to_owned());
    let item = json!(item(&scope, key, &facts(&object(&[])), None, true));
    assert_eq!(item["all"], "Adopt");
    assert_eq!(item["optIn"], "Nothing");
    assert_eq!(
        (&item["group"], &item["resource"]),
        (&json!("wildwest.dev"), &json!("cowboys"))
    );
    assert_eq!(
        item["provider"],
        json!({ "namespace": "c-west", "name": "billy", "uid": "u" })
    );
    assert_eq!(item["makesNamespace"], false);
}

#[test]
fn nothing_is_created_in_a_protected_namespace() {
    let resource = GroupResource::new("wildwest.dev", "cowboys");
    let scope = AdoptionScope {
        binding: "cowboys",
        contract: "c",
        resource: &resource,
        konnector_namespace: "kube-bind",
        names_are_shared: false,
    };
    for (namespace, expect) in [("west", Adopt), ("kube-system", Nothing), ("kube-bind", Nothing)] {
        let key = (namespace.to_owned(), "billy".to_owned());
        let item = item(&scope, key, &facts(&object(&[OPTED_IN])), None, true);
        assert_eq!((item.opt_in, item.all), (expect, expect), "{namespace}");
    }
}
