//! Lists the differences between two states of an object, field by field, for people.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{FieldChange, desired::strip};
use crate::object::Gvk;

/// Fields that may identify the items of a list, best first. Items of other lists are compared by index.
const KEYS: &[&[&str]] = &[
    &["name"],
    &["uid"],
    &["containerPort", "protocol"],
    &["containerPort"],
    &["port", "protocol"],
    &["port"],
    &["mountPath"],
    &["devicePath"],
    &["key"],
    &["type"],
    &["ip"],
    &["topologyKey", "whenUnsatisfiable"],
    &["topologyKey"],
];

/// Lists the differences between two states of an object of this kind, without fields that servers or synk write for
/// themselves. Values of a Secret are not shown.
pub fn changes_between(from: &Value, to: &Value, gvk: &Gvk) -> Vec<FieldChange> {
    shown(differences(from, to), gvk)
}

/// Lists the fields of an object that is to be created, without values of a Secret.
pub(super) fn of_creation(wanted: &Value, gvk: &Gvk) -> Vec<FieldChange> {
    if gvk.is_secret() {
        return Vec::new();
    }
    let metadata = &wanted["metadata"];
    let named = json!({
        "apiVersion": wanted["apiVersion"], "kind": wanted["kind"],
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
    });
    differences(&named, wanted)
}

/// Lists the differences with all values, also those of a Secret.
pub(super) fn differences(from: &Value, to: &Value) -> Vec<FieldChange> {
    let (mut from, mut to) = (from.clone(), to.clone());
    strip(&mut from);
    strip(&mut to);
    let mut changes = Vec::new();
    compare("", &from, &to, &mut changes);
    changes
}

/// Hides the values of a Secret in a list of changes, also those in its annotations, which may repeat its data.
pub(super) fn shown(changes: Vec<FieldChange>, gvk: &Gvk) -> Vec<FieldChange> {
    if !gvk.is_secret() {
        return changes;
    }
    let hide = |change: FieldChange| {
        let is_open = change.path == "type" || change.path == "immutable" || change.path.starts_with("metadata.labels");
        if is_open {
            return change;
        }
        FieldChange {
            path: change.path,
            from: None,
            to: None,
            hidden: true,
        }
    };
    changes.into_iter().map(hide).collect()
}

fn compare(path: &str, from: &Value, to: &Value, changes: &mut Vec<FieldChange>) {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => compare_fields(path, from, to, changes),
        (Value::Array(before), Value::Array(after)) if before != after => {
            if let Some(names) = names(before, after) {
                compare_named(path, before, after, names, changes);
            } else if before.len() == after.len()
                && before
                    .iter()
                    .chain(after)
                    .all(|item| item.is_object() || item.is_array())
            {
                for (index, (from, to)) in before.iter().zip(after).enumerate() {
                    compare(&format!("{path}[{index}]"), from, to, changes);
                }
            } else {
                changes.push(change(path, Some(from), Some(to)));
            }
        }
        (Value::Number(before), Value::Number(after)) if before.as_f64() == after.as_f64() => {}
        _ if from == to => {}
        _ => changes.push(change(path, Some(from), Some(to))),
    }
}

fn compare_fields(path: &str, from: &Map<String, Value>, to: &Map<String, Value>, changes: &mut Vec<FieldChange>) {
    let names: BTreeSet<_> = from.keys().chain(to.keys()).collect();
    for name in names {
        let path = below(path, name);
        match (from.get(name), to.get(name)) {
            (Some(from), Some(to)) => compare(&path, from, to, changes),
            (None | Some(Value::Null), None | Some(Value::Null)) => {}
            (from, to) => changes.push(change(&path, from, to)),
        }
    }
}

fn compare_named(path: &str, before: &[Value], after: &[Value], names: &[&str], changes: &mut Vec<FieldChange>) {
    let find = |items: &[Value], name: &str| items.iter().position(|item| label(item, names) == name);
    for item in before {
        let name = label(item, names);
        let path = format!("{path}[{name}]");
        match find(after, &name) {
            Some(place) => compare(&path, item, &after[place], changes),
            None => changes.push(change(&path, Some(item), None)),
        }
    }
    for item in after {
        let name = label(item, names);
        if find(before, &name).is_none() {
            changes.push(change(&format!("{path}[{name}]"), None, Some(item)));
        }
    }
    let common = |items: &[Value], others: &[Value]| -> Vec<String> {
        let all = items.iter().map(|item| label(item, names));
        all.filter(|name| find(others, name).is_some()).collect()
    };
    let (from, to) = (common(before, after), common(after, before));
    if from != to {
        changes.push(change(path, Some(&json!(from)), Some(&json!(to))));
    }
}

/// Returns the fields that identify every item of both lists.
fn names(before: &[Value], after: &[Value]) -> Option<&'static [&'static str]> {
    let tells = |items: &[Value], names: &[&str]| {
        let has_all = |item: &Value| {
            names
                .iter()
                .all(|name| matches!(&item[*name], Value::String(_) | Value::Number(_)))
        };
        let labels: BTreeSet<_> = items.iter().map(|item| label(item, names)).collect();
        items.iter().all(has_all) && labels.len() == items.len()
    };
    if before.is_empty() && after.is_empty() {
        return None;
    }
    KEYS.iter()
        .copied()
        .find(|names| tells(before, names) && tells(after, names))
}

fn label(item: &Value, names: &[&str]) -> String {
    let parts: Vec<_> = names
        .iter()
        .map(|name| format!("{name}={}", plain(&item[*name])))
        .collect();
    parts.join(",")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the path of a field below `path`: after a dot if the name is a plain word, else in brackets.
fn below(path: &str, name: &str) -> String {
    let is_word = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    match (is_word, path.is_empty()) {
        (true, true) => name.to_owned(),
        (true, false) => format!("{path}.{name}"),
        (false, _) => format!("{path}[{name:?}]"),
    }
}

fn change(path: &str, from: Option<&Value>, to: Option<&Value>) -> FieldChange {
    FieldChange {
        path: path.to_owned(),
        from: from.cloned(),
        to: to.cloned(),
        hidden: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: &Value, to: &Value, expect: &[(&str, Option<Value>, Option<Value>)]) {
        let changes = changes_between(from, to, &Gvk::new("v1", "ConfigMap"));
        let got: Vec<_> = changes
            .into_iter()
            .map(|change| (change.path, change.from, change.to))
            .collect();
        let expect: Vec<_> = expect
            .iter()
            .map(|(path, from, to)| ((*path).to_owned(), from.clone(), to.clone()))
            .collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn a_change_is_named_by_the_path_of_its_field() {
        check(
            &json!({"spec": {"containers": [{"name": "web", "image": "a"}, {"name": "log", "image": "x"}]}}),
            &json!({"spec": {"containers": [{"name": "web", "image": "b"}, {"name": "sip", "image": "y"}]}}),
            &[
                ("spec.containers[name=web].image", Some(json!("a")), Some(json!("b"))),
                (
                    "spec.containers[name=log]",
                    Some(json!({"name": "log", "image": "x"})),
                    None,
                ),
                (
                    "spec.containers[name=sip]",
                    None,
                    Some(json!({"name": "sip", "image": "y"})),
                ),
            ],
        );
        check(
            &json!({"data": {"a.conf": "1", "b": "2"}, "status": {"x": 1}, "metadata": {"generation": 1}}),
            &json!({"data": {"a.conf": "2", "c": "2"}, "status": {"x": 2}, "metadata": {"generation": 2}}),
            &[
                ("data[\"a.conf\"]", Some(json!("1")), Some(json!("2"))),
                ("data.b", Some(json!("2")), None),
                ("data.c", None, Some(json!("2"))),
            ],
        );
        check(
            &json!({"ports": [{"port": 1, "protocol": "TCP"}, {"port": 1, "protocol": "UDP", "x": 1}]}),
            &json!({"ports": [{"port": 1, "protocol": "TCP"}, {"port": 1, "protocol": "UDP", "x": 2}]}),
            &[("ports[port=1,protocol=UDP].x", Some(json!(1)), Some(json!(2)))],
        );
    }

    #[test]
    fn lists_without_names_are_compared_by_place_or_whole() {
        check(
            &json!({"rules": [{"verbs": ["get"]}, {"verbs": ["list"]}], "args": ["a"]}),
            &json!({"rules": [{"verbs": ["get"]}, {"verbs": ["watch"]}], "args": ["b"]}),
            &[
                ("args", Some(json!(["a"])), Some(json!(["b"]))),
                ("rules[1].verbs", Some(json!(["list"])), Some(json!(["watch"]))),
            ],
        );
        check(
            &json!({"a": [1]}),
            &json!({"a": [1, 2]}),
            &[("a", Some(json!([1])), Some(json!([1, 2])))],
        );
        check(
            &json!({"env": [{"name": "a"}, {"name": "b"}]}),
            &json!({"env": [{"name": "b"}, {"name": "a"}]}),
            &[(
                "env",
                Some(json!(["name=a", "name=b"])),
                Some(json!(["name=b", "name=a"])),
            )],
        );
        check(&json!({"a": 1, "b": null}), &json!({"a": 1.0}), &[]);
    }

    #[test]
    fn nothing_that_a_secret_holds_is_shown() {
        let secret = |value: &str| {
            json!({
                "apiVersion": "v1", "kind": "Secret", "data": {"password": value}, "type": value,
                "metadata": {"name": "a", "labels": {"app": value}, "annotations": {"copy": value}},
            })
        };
        let gvk = Gvk::new("v1", "Secret");
        let changes = changes_between(&secret("old"), &secret("new"), &gvk);
        let shown: Vec<_> = changes
            .iter()
            .map(|change| (change.path.as_str(), change.hidden, change.from.is_some()))
            .collect();
        let expect = [
            ("data.password", true, false),
            ("metadata.annotations.copy", true, false),
            ("metadata.labels.app", false, true),
            ("type", false, true),
        ];
        assert_eq!(shown, expect);
        assert_eq!(of_creation(&secret("new"), &gvk), []);
        let made = of_creation(
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}),
            &gvk_of_config_map(),
        );
        assert_eq!(made.len(), 1);
        assert_eq!(
            (made[0].path.as_str(), made[0].to.clone()),
            ("data", Some(json!({"x": "1"})))
        );
    }

    fn gvk_of_config_map() -> Gvk {
        Gvk::new("v1", "ConfigMap")
    }
}
