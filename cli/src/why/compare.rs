//! Compares an object with its copy. Only names of fields are shown, never their values.

use std::collections::BTreeMap;

use bindery_api::annotations;
use bindery_runtime::json;
use serde_json::{Map, Value};

use super::ObjectFacts;

/// As [`difference`], for the copy of a provider's object: its labels and annotations come down only as far as an allow-list goes, so a
/// missing one is no difference.
pub(crate) fn difference_of_content(
    source: &ObjectFacts,
    copy: &ObjectFacts,
    is_local: impl Fn(&str) -> bool,
) -> Option<String> {
    let mut wanted = source.content.iter().filter(|(key, _)| !is_local(key));
    wanted.find_map(|(key, wanted)| field(copy.content.get(key), wanted, key))
}

/// Returns the path of the first field that a copy does not hold as its source does; `None` if it holds all. `is_local`
/// returns true for the top-level fields that are not copied.
pub(crate) fn difference(source: &ObjectFacts, copy: &ObjectFacts, is_local: impl Fn(&str) -> bool) -> Option<String> {
    difference_of_content(source, copy, is_local)
        .or_else(|| pairs(&source.labels, &copy.labels, "labels"))
        .or_else(|| pairs(&source.annotations, &copy.annotations, "annotations"))
}

fn field(actual: Option<&Value>, wanted: &Value, path: &str) -> Option<String> {
    let nothing = match wanted {
        Value::Object(_) => Value::Object(Map::new()),
        _ => Value::Null,
    };
    let actual = actual.unwrap_or(&nothing);
    if json::contains(actual, wanted) {
        return None;
    }
    if let (Value::Object(actual), Value::Object(wanted)) = (actual, wanted) {
        let mut below = wanted
            .iter()
            .filter_map(|(key, wanted)| field(actual.get(key), wanted, &format!("{path}.{key}")));
        if let Some(below) = below.next() {
            return Some(below);
        }
    }
    Some(path.to_owned())
}

fn pairs(wanted: &BTreeMap<String, String>, actual: &BTreeMap<String, String>, what: &str) -> Option<String> {
    let mut carried = wanted.iter().filter(|(key, _)| annotations::is_copied(key));
    let missing = carried.find(|(key, value)| actual.get(*key) != Some(*value));
    missing.map(|(key, _)| format!("metadata.{what}[{key}]"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts(value: &Value) -> ObjectFacts {
        ObjectFacts::of(serde_json::from_value(value.clone()).unwrap())
    }

    #[track_caller]
    fn check(source: &Value, copy: &Value, expect: Option<&str>) {
        assert_eq!(
            difference(&facts(source), &facts(copy), |field| field == "secrets").as_deref(),
            expect
        );
    }

    #[test]
    fn the_first_field_that_differs_is_named() {
        let source = json!({ "metadata": { "labels": { "app": "a", "kubernetes.io/x": "y" },
                "annotations": { "kube-bind.io/provider-uid": "u" } },
            "spec": { "a": { "b": 1, "c": [1, 2] } }, "secrets": [{ "name": "t" }] });
        let copy = json!({ "metadata": { "labels": { "app": "a", "more": "m" } },
            "spec": { "a": { "b": 1, "c": [1, 2], "d": 1 } }, "more": 1 });
        check(&source, &copy, None);
        let with = |path: &str, value: Value| {
            let mut changed = copy.clone();
            *changed.pointer_mut(path).unwrap() = value;
            changed
        };
        check(&source, &with("/spec/a/b", json!(2)), Some("spec.a.b"));
        check(&source, &with("/spec/a/c", json!([1])), Some("spec.a.c"));
        check(&source, &with("/spec", json!({})), Some("spec.a.b"));
        check(
            &source,
            &with("/metadata/labels", json!({})),
            Some("metadata.labels[app]"),
        );
        check(
            &json!({ "metadata": {}, "data": { "password": "hunter2" } }),
            &json!({ "metadata": {} }),
            Some("data.password"),
        );
    }
}
