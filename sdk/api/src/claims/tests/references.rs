use std::borrow::Cow;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{claims::*, v1alpha2::ReferencePath};

fn parse(name: &str, namespace: Option<&str>) -> Option<ReferencePaths> {
    ReferencePaths::parse(&ReferencePath {
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
    })
}

/// What a cluster-scoped object refers to, with no namespace to fall back on.
fn evaluate(paths: &ReferencePaths, object: &Value) -> Vec<ReferencedObject> {
    paths.evaluate(&"".into(), None, |root| object.get(root).map(Cow::Borrowed))
}

fn sheriff() -> Value {
    let labels = [("badge", "gold")].into_iter();
    json!({
        "metadata": referrer_metadata(("west", "wyatt"), labels, [].into_iter()),
        "spec": {
            "secret": " colt ", "number": 7, "flag": true, "nothing": null, "empty": "", "long": "x".repeat(254),
            "names": ["a", "b", "a", {"name": "no"}, ["no"]],
            "refs": [
                {"name": "one", "namespace": "n1"},
                {"name": "two"},
                {"name": "three", "namespace": "n3", "keys": [{"name": "deep"}, {"name": "er"}]},
                "odd",
            ],
            "namespaces": ["n8", "n9"],
        },
        "status": {"issued": {"name": "permit"}},
    })
}

#[track_caller]
fn check_in(object: &Value, name: &str, namespace: Option<&str>, expect: &[(&str, Option<&str>)]) {
    let found = evaluate(&parse(name, namespace).unwrap(), object);
    let found: Vec<_> = found.iter().map(|one| (&*one.name, one.namespace.as_deref())).collect();
    assert_eq!(found, expect, "{name} {namespace:?}");
}

#[track_caller]
fn check(name: &str, namespace: Option<&str>, expect: &[(&str, Option<&str>)]) {
    check_in(&sheriff(), name, namespace, expect);
}

#[test]
fn scalars_and_lists_of_them_are_names() {
    check("spec.secret", None, &[("colt", None)]);
    check("spec.number", None, &[("7", None)]);
    check("spec.flag", None, &[("true", None)]);
    check("spec.names", None, &[("a", None), ("b", None)]);
    check("spec.names.#", None, &[("a", None), ("b", None), ("no", None)]);
    check("spec.names.1", None, &[("b", None)]);
    check("spec.refs.2.keys.0.name", None, &[("deep", None)]);
    check(
        "spec.refs.#.name",
        None,
        &[("one", None), ("three", None), ("two", None)],
    );
    check("spec.refs.#.keys.#.name", None, &[("deep", None), ("er", None)]);
    check("status.issued.name", None, &[("permit", None)]);
    check("metadata.name", None, &[("wyatt", None)]);
    check("metadata.labels.badge", None, &[("gold", None)]);
    for nothing in [
        "spec",
        "spec.nothing",
        "spec.empty",
        "spec.long",
        "spec.refs.name",
        "spec.secret.#",
        "data.x",
        "status.issued",
        "metadata",
        "spec.names.9",
        "metadata.uid",
    ] {
        check(nothing, None, &[]);
    }
}

#[test]
fn name_and_namespace_of_one_element_belong_together() {
    check(
        "spec.refs.#.name",
        Some("spec.refs.#.namespace"),
        &[("one", Some("n1")), ("three", Some("n3")), ("two", None)],
    );
    check(
        "spec.refs.#.keys.#.name",
        Some("spec.refs.#.namespace"),
        &[("deep", Some("n3")), ("er", Some("n3"))],
    );
    check(
        "spec.secret",
        Some("spec.namespaces"),
        &[("colt", Some("n8")), ("colt", Some("n9"))],
    );
    check("spec.secret", Some("metadata.namespace"), &[("colt", Some("west"))]);
    check("spec.secret", Some("spec.missing"), &[("colt", None)]);
    check("spec.secret", Some("status.missing"), &[("colt", None)]);
    check("spec.secret", Some(""), &[("colt", None)]);
}

#[test]
fn no_namespace_is_read_from_what_the_provider_writes() {
    let object = json!({
        "metadata": {"name": "wyatt", "namespace": "west"},
        "spec": {"secret": "colt", "statusNamespace": "n1"},
        "status": {"name": "permit", "namespace": "vault", "refs": [{"name": "one", "namespace": "vault"}]},
        "statuses": {"namespace": "n2"},
    });
    for (name, namespace, expect) in [
        ("spec.secret", "status.namespace", ("colt", None)),
        ("status.name", "status.namespace", ("permit", None)),
        ("status.refs.#.name", "status.refs.#.namespace", ("one", None)),
        ("spec.secret", "status", ("colt", None)),
        ("spec.secret", "spec.statusNamespace", ("colt", Some("n1"))),
        ("spec.secret", "statuses.namespace", ("colt", Some("n2"))),
        ("status.name", "metadata.namespace", ("permit", Some("west"))),
    ] {
        check_in(&object, name, Some(namespace), &[expect]);
    }
}

#[test]
fn a_reference_without_a_namespace_means_that_of_its_referrer_or_of_the_export() {
    let meant = |own: &str, of_export: Option<&str>| {
        let object = json!({"spec": {"refs": [{"name": "colt"}, {"name": "badge", "namespace": "n1"}]}});
        let paths = parse("spec.refs.#.name", Some("spec.refs.#.namespace")).unwrap();
        let of_export = of_export.map(Into::into);
        let found = paths.evaluate(&own.into(), of_export.as_ref(), |root| {
            object.get(root).map(Cow::Borrowed)
        });
        assert!(found[0].is("n1", "badge") && !found[0].is("west", "badge"));
        found[1].namespace.as_deref().map(str::to_owned)
    };
    assert_eq!(meant("west", None).as_deref(), Some("west"));
    assert_eq!(meant("west", Some("east")).as_deref(), Some("west"));
    assert_eq!(meant("", Some("east")).as_deref(), Some("east"));
    assert_eq!(meant("", Some("")), None);
    assert_eq!(meant("", None), None);
}

#[test]
fn only_names_dots_and_hashes_are_a_path() {
    for bad in [
        "",
        ".",
        "spec.",
        ".spec",
        "spec..name",
        "#",
        "#.name",
        "spec.refs[0]",
        "spec.*",
        "spec.a b",
        "spec.refs.##",
        "$.spec",
        "spec.refs.#(x==y)",
        "spec|name",
    ] {
        assert!(!is_reference_path(bad), "{bad}");
        assert_eq!(parse(bad, None), None, "{bad}");
    }
    assert_eq!(parse("spec.name", Some("[")), None);
}

#[test]
fn what_one_object_refers_to_is_bounded() {
    let names: Vec<_> = (0..100).map(|at| format!("n{at}")).collect();
    let many = json!({"spec": {"names": names, "more": names}});
    let paths = parse("spec.names", Some("spec.more")).unwrap();
    assert_eq!(evaluate(&paths, &many).len(), REFERENCES_MAX);
    // As many names as there are namespaces mean millions of pairs, of which only the first are made.
    let all: Vec<_> = (0..REFERENCES_MAX).collect();
    let many = json!({"spec": {"names": all, "more": all}});
    let found = evaluate(&paths, &many);
    assert_eq!(found.len(), REFERENCES_MAX);
    assert!(found.iter().all(|one| &*one.name == "0" && one.namespace.is_some()));
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-c ]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[ab]", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #[test]
    fn a_namespace_path_only_narrows(spec in any_value(), name in "spec(\\.(a|b|#|0)){0,4}",
            namespace in "spec(\\.(a|b|#|0)){0,4}") {
        let object = json!({"spec": spec});
        let of = |name: &str, namespace: Option<&str>| evaluate(&parse(name, namespace).unwrap(), &object);
        let joined = of(&name, Some(&namespace));
        let names = of(&name, None);
        let namespaces = of(&namespace, None);
        for found in &joined {
            prop_assert!(names.iter().any(|one| one.name == found.name));
            let said = found.namespace.as_ref();
            prop_assert!(said.is_none_or(|said| namespaces.iter().any(|one| one.name == *said)));
            prop_assert_eq!(found.name.trim(), &*found.name);
        }
        let mut kept: Vec<_> = joined.iter().map(|found| &found.name).collect();
        kept.dedup();
        prop_assert_eq!(kept.len(), names.len(), "no name is lost by a namespace path");
    }

    /// Any text is either refused, or a path of which each step is a name or `#`; then it finds no more than there is.
    #[test]
    fn a_text_is_refused_or_leads_to_names(text in "(spec)?[a-z0-9.#/_ -]{0,20}|.{0,40}") {
        let Some(paths) = parse(&text, None) else {
            return Ok(());
        };
        let is_name = |step: &str| step.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_/".contains(&byte));
        prop_assert!(text.split('.').all(|step| step == "#" || (!step.is_empty() && is_name(step))), "{}", text);
        prop_assert!(!text.starts_with('#'));
        for found in evaluate(&paths, &sheriff()) {
            let whole = sheriff().to_string();
            prop_assert!(whole.contains(&*found.name) && !found.name.is_empty());
        }
    }
}
