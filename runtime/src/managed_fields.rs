//! Field ownership in `metadata.managedFields`: sets of fields, written as trees (`FieldsV1`).

use serde_json::{Map, Value, json};

/// Builds the entry of a manager that applied these fields.
pub fn applied(manager: &str, api_version: &str, fields: Map<String, Value>) -> Value {
    let mut entry = json!({
        "manager": manager, "operation": "Apply", "apiVersion": api_version, "fieldsType": "FieldsV1",
    });
    entry["fieldsV1"] = Value::Object(fields);
    entry
}

/// Whether an entry is for writes to the object itself, not to a subresource.
pub fn is_whole(entry: &Value) -> bool {
    entry["subresource"].as_str().is_none_or(str::is_empty)
}

/// Splits a set of fields into those that a value has and those that it does not have.
pub fn split(fields: Map<String, Value>, value: &Value) -> (Map<String, Value>, Map<String, Value>) {
    let (mut moved, mut left) = (Map::new(), Map::new());
    for (key, below) in fields {
        // `.` stands for the parent itself, which exists with any of its fields.
        if key == "." {
            continue;
        }
        match (child(value, &key), below) {
            (Some(value), Value::Object(below)) if !below.is_empty() => {
                let (up, stays) = split(below, value);
                put(&mut moved, &key, up);
                put(&mut left, &key, stays);
            }
            (Some(_), below) => drop(moved.insert(key, below)),
            (None, below) => drop(left.insert(key, below)),
        }
    }
    (moved, left)
}

/// Returns the part of a value at a path element of `FieldsV1`: a field (`f:`), or an item of a list by its keys (`k:`), value
/// (`v:`) or index (`i:`). A key that an item leaves out matches any value, since the API server fills in its default.
pub fn child<'a>(value: &'a Value, element: &str) -> Option<&'a Value> {
    let (kind, name) = element.split_once(':')?;
    if kind == "f" {
        return value.get(name);
    }
    let items = value.as_array()?;
    match kind {
        "k" => {
            let keys: Map<String, Value> = serde_json::from_str(name).ok()?;
            let has_all = |item: &&Value| keys.iter().all(|(key, value)| item.get(key) == Some(value));
            items
                .iter()
                .find(has_all)
                .or_else(|| items.iter().find(|item| may_be(item, &keys)))
        }
        "v" => {
            let value: Value = serde_json::from_str(name).ok()?;
            items.iter().find(|item| **item == value)
        }
        "i" => items.get(name.parse::<usize>().ok()?),
        _ => None,
    }
}

/// Whether an item has one of these keys, and no other value for any of them.
fn may_be(item: &Value, keys: &Map<String, Value>) -> bool {
    let mut has_one = false;
    keys.iter().all(|(key, value)| match item.get(key) {
        Some(known) => {
            has_one = true;
            known == value
        }
        None => true,
    }) && has_one
}

fn put(fields: &mut Map<String, Value>, key: &str, below: Map<String, Value>) {
    if !below.is_empty() {
        fields.insert(key.to_owned(), Value::Object(below));
    }
}

/// Adds one set of fields to another.
pub fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(value)) => merge(known, value),
            (Some(_), _) => {}
            (None, value) => drop(into.insert(key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(said: &Value, element: &str, expect: Option<&Value>) {
        assert_eq!(child(said, element), expect, "{element} of {said}");
    }

    #[test]
    fn items_are_found_by_what_names_them() {
        check(&json!({"a": 1}), "f:a", Some(&json!(1)));
        check(&json!({"a": 1}), "f:b", None);
        check(&json!(["x", "y"]), "v:\"y\"", Some(&json!("y")));
        check(&json!(["x", "y"]), "i:0", Some(&json!("x")));
        check(&json!(["x"]), "i:1", None);
        check(&json!({}), "k:{}", None);
        check(
            &json!([{"name": "x"}, {"name": "y", "z": 1}]),
            "k:{\"name\":\"y\"}",
            Some(&json!({"name": "y", "z": 1})),
        );
        check(&json!([]), "odd", None);
    }

    #[test]
    fn a_key_that_is_left_out_has_its_default() {
        let tcp = "k:{\"containerPort\":80,\"protocol\":\"TCP\"}";
        let bare = json!({"containerPort": 80});
        let udp = json!({"containerPort": 80, "protocol": "UDP"});
        let exact = json!({"containerPort": 80, "protocol": "TCP"});
        check(&json!([udp, bare]), tcp, Some(&bare));
        check(&json!([bare, exact]), tcp, Some(&exact));
        check(&json!([udp]), tcp, None);
        check(&json!([{"name": "x"}]), tcp, None);
    }

    #[test]
    fn a_source_splits_fields_into_what_it_says_and_the_rest() {
        let fields = json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}, "f:e": {"f:x": {}}});
        let said = json!({"a": {"b": 1}, "d": {"whole": 1}});
        let (moved, left) = split(fields.as_object().unwrap().clone(), &said);
        assert_eq!(Value::Object(moved.clone()), json!({"f:a": {"f:b": {}}, "f:d": {}}));
        assert_eq!(
            Value::Object(left.clone()),
            json!({"f:a": {"f:c": {}}, "f:e": {"f:x": {}}})
        );
        let mut all = moved;
        merge(&mut all, left);
        assert_eq!(
            Value::Object(all),
            json!({"f:a": {"f:b": {}, "f:c": {}}, "f:d": {}, "f:e": {"f:x": {}}})
        );
    }
}
