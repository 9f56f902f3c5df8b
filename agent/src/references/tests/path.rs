use proptest::prelude::*;
use serde_json::json;

use super::*;

fn object(value: &Value) -> Object {
    serde_json::from_str(&value.to_string()).unwrap()
}

fn sheriff() -> Object {
    object(&json!({
        "metadata": {"name": "wyatt", "namespace": "west", "resourceVersion": "1", "labels": {"badge": "gold"}},
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
    }))
}

#[track_caller]
fn check(name: &str, namespace: Option<&str>, expect: &[(&str, Option<&str>)]) {
    let reference = Reference::parse(name, namespace).unwrap();
    let found = reference.evaluate(&sheriff());
    let found: Vec<_> = found
        .iter()
        .map(|found| (&*found.name, found.namespace.as_deref()))
        .collect();
    assert_eq!(found, expect, "{name}");
}

#[test]
fn scalars_and_lists_of_them_are_names() {
    check("spec.secret", None, &[("colt", None)]);
    check("spec.number", None, &[("7", None)]);
    check("spec.flag", None, &[("true", None)]);
    check("spec.names", None, &[("a", None), ("b", None)]);
    check("spec.names.#", None, &[("a", None), ("b", None), ("no", None)]);
    check("spec.names.1", None, &[("b", None)]);
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
    #[track_caller]
    fn check(name: &str, namespace: &str, expect: &[(&str, Option<&str>)]) {
        let refers = object(&json!({
            "metadata": {"name": "wyatt", "namespace": "west", "resourceVersion": "1"},
            "spec": {"secret": "colt", "statusNamespace": "n1"},
            "status": {"name": "permit", "namespace": "vault", "refs": [{"name": "one", "namespace": "vault"}]},
            "statuses": {"namespace": "n2"},
        }));
        let found = Reference::parse(name, Some(namespace)).unwrap().evaluate(&refers);
        let found: Vec<_> = found
            .iter()
            .map(|found| (&*found.name, found.namespace.as_deref()))
            .collect();
        assert_eq!(found, expect, "{name} {namespace}");
    }
    check("spec.secret", "status.namespace", &[("colt", None)]);
    check("status.name", "status.namespace", &[("permit", None)]);
    check("status.refs.#.name", "status.refs.#.namespace", &[("one", None)]);
    check("spec.secret", "status", &[("colt", None)]);
    check("spec.secret", "spec.statusNamespace", &[("colt", Some("n1"))]);
    check("spec.secret", "statuses.namespace", &[("colt", Some("n2"))]);
    check("status.name", "metadata.namespace", &[("permit", Some("west"))]);
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
        assert_eq!(Path::parse(bad), None, "{bad}");
    }
    assert_eq!(Reference::parse("spec.name", Some("[")), None);
}

#[test]
fn what_one_object_refers_to_is_bounded() {
    let names: Vec<_> = (0..100).map(|at| format!("n{at}")).collect();
    let many = object(&json!({"metadata": {"resourceVersion": "1"}, "spec": {"names": names, "more": names}}));
    let reference = Reference::parse("spec.names", Some("spec.more")).unwrap();
    assert_eq!(reference.evaluate(&many).len(), FOUND_MAX);
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
    fn a_common_beginning_only_narrows(spec in any_value(), name in "spec(\\.(a|b|#|0)){0,4}",
            namespace in "spec(\\.(a|b|#|0)){0,4}") {
        let object = object(&json!({"metadata": {"resourceVersion": "1"}, "spec": spec}));
        let joined = Reference::parse(&name, Some(&namespace)).unwrap().evaluate(&object);
        let names = Reference::parse(&name, None).unwrap().evaluate(&object);
        let namespaces = Reference::parse(&namespace, None).unwrap().evaluate(&object);
        for found in &joined {
            prop_assert!(names.iter().any(|one| one.name == found.name));
            let said = found.namespace.as_ref();
            prop_assert!(said.is_none_or(|said| namespaces.iter().any(|one| one.name == *said)));
            prop_assert_eq!(found.name.trim(), &*found.name);
        }
        let mut left: Vec<_> = joined.iter().map(|found| &found.name).collect();
        left.dedup();
        prop_assert_eq!(left.len(), names.len(), "no name is lost by a namespace path");
    }

    #[test]
    fn no_text_makes_it_panic(text in ".{0,40}") {
        if let Some(path) = Path::parse(&text) {
            let _ = Reference { name: path, namespace: None }.evaluate(&sheriff());
        }
    }
}
