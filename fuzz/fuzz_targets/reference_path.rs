//! Reference paths of a claim, and the object that they are evaluated on: a line for the path to names, one for the path to
//! namespaces, and JSON. What is found is in the object, can be the name of an object, and is listed once.
#![no_main]

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use bindery_api::{
    claims::{REFERENCES_MAX, ReferencePaths, ReferencedObject, is_reference_path},
    names::NAME_LENGTH_MAX,
    v1alpha2::ReferencePath,
};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut lines = text.splitn(3, '\n');
    let [Some(name), Some(namespace), Some(json)] = [lines.next(), lines.next(), lines.next()] else {
        return;
    };
    let Some(paths) = parse(name, Some(namespace)) else {
        return;
    };
    let Ok(object) = serde_json::from_str::<Value>(json) else {
        return;
    };
    let found = evaluate(&paths, &object);
    check(&found, &object);
    let only_names = evaluate(&parse(name, None).expect("a path"), &object);
    check(&only_names, &object);
    check_names(&found, &only_names);
    if namespace.split('.').next() == Some("status") {
        assert_eq!(found, only_names, "the provider chose a namespace");
    }
});

/// Parses the paths, and checks that exactly paths are parsed.
fn parse(name: &str, namespace: Option<&str>) -> Option<ReferencePaths> {
    let paths = ReferencePath {
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
    };
    let parsed = ReferencePaths::parse(&paths);
    let is_namespace = namespace.is_none_or(|path| path.is_empty() || is_reference_path(path));
    assert_eq!(parsed.is_some(), is_reference_path(name) && is_namespace);
    assert!(!is_reference_path(name) || !name.starts_with('#') && name.split('.').all(|step| !step.is_empty()));
    parsed
}

fn evaluate(paths: &ReferencePaths, object: &Value) -> Vec<ReferencedObject> {
    let in_namespace = |own: &str| {
        let of_export = Arc::from("");
        paths.evaluate(&own.into(), Some(&of_export), |root| {
            object.get(root).map(Cow::Borrowed)
        })
    };
    // Only what has no namespace of its own gets that of the bound object.
    let found = in_namespace("");
    let with_own = in_namespace("west");
    assert!(with_own.iter().all(|one| one.namespace.is_some()));
    assert_eq!(found.len(), with_own.len());
    found
}

fn check(found: &[ReferencedObject], object: &Value) {
    assert!(found.len() <= REFERENCES_MAX);
    let mut there = HashSet::new();
    scalars(object, &mut there);
    for one in found {
        for name in [Some(&one.name), one.namespace.as_ref()].into_iter().flatten() {
            assert!(
                !name.is_empty() && name.len() <= NAME_LENGTH_MAX && name.trim() == &**name,
                "{one:?}"
            );
            assert!(there.contains(&**name), "{one:?} is not in the object");
        }
    }
    assert!(found.is_sorted_by(|one, other| { (&one.name, &one.namespace) < (&other.name, &other.namespace) }));
}

/// A path to namespaces adds no name, and takes one away only where there are too many references.
fn check_names(found: &[ReferencedObject], only_names: &[ReferencedObject]) {
    let names = |found: &[ReferencedObject]| found.iter().map(|one| one.name.clone()).collect::<HashSet<_>>();
    let (found, all) = (names(found), names(only_names));
    assert!(found.is_subset(&all));
}

fn scalars(value: &Value, there: &mut HashSet<String>) {
    match value {
        Value::Null => {}
        Value::String(text) => {
            there.insert(text.trim().to_owned());
        }
        Value::Array(items) => items.iter().for_each(|item| scalars(item, there)),
        Value::Object(fields) => fields.values().for_each(|field| scalars(field, there)),
        scalar => {
            there.insert(scalar.to_string());
        }
    }
}
