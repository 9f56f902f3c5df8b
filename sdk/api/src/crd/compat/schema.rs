//! Compares the structure of two schemas: fields, their types, and which are required.

use std::{borrow::Cow, collections::BTreeSet};

use serde_json::{Map, Value, json};

use super::{values, walk::Walk};

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// The keywords that do not affect whether objects are valid. A default that a required field loses is noticed in [`required`].
const TEXTS: [&str; 7] = [
    "$schema",
    "default",
    "description",
    "example",
    "externalDocs",
    "id",
    "title",
];

/// The keywords that this module compares; those of [`values::KEYWORDS`] are compared in `values`.
const KEYWORDS: [&str; 11] = [
    "type",
    "nullable",
    "properties",
    "additionalProperties",
    "items",
    "required",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    PRESERVE,
    INT_OR_STRING,
];

/// How a schema treats fields that it does not name.
#[derive(Clone, Copy)]
enum Others<'a> {
    Pruned,
    Kept,
    Like(&'a Value),
}

/// Compares schemas of whole objects.
pub(super) fn compare_root(old: &Value, new: &Value, walk: &mut Walk) {
    compare_objects(&with_implied(old), &with_implied(new), walk);
}

fn compare(old: &Value, new: &Value, walk: &mut Walk) {
    match (flag(old, EMBEDDED), flag(new, EMBEDDED)) {
        (true, true) => compare_root(old, new, walk),
        (false, false) => compare_objects(old, new, walk),
        (true, false) => walk.found("is no embedded object any more"),
        (false, true) => walk.found("must now be a whole object"),
    }
}

fn compare_objects(old: &Value, new: &Value, walk: &mut Walk) {
    if old == new {
        return;
    }
    if !old.is_object() || !new.is_object() {
        return walk.found("schema changed to or from none");
    }
    let (before, after) = (type_of(old), type_of(new));
    if before != after {
        return walk.found(format!("type changed from {before} to {after}"));
    }
    if flag(old, "nullable") && !flag(new, "nullable") {
        walk.found("null is no longer allowed");
    }
    if flag(old, PRESERVE) && !flag(new, PRESERVE) {
        walk.found("unknown fields are no longer kept");
    }
    values::compare(old, new, walk);
    fields(old, new, walk);
    required(old, new, walk);
    items(old, new, walk);
    merging(old, new, walk);
    unknown(old, new, walk);
}

fn fields(old: &Value, new: &Value, walk: &mut Walk) {
    let (before, after) = (others(old), others(new));
    match (before, after) {
        (Others::Like(old), Others::Like(new)) => walk.at("*", |walk| compare(old, new, walk)),
        (Others::Kept, Others::Like(new)) => walk.at("*", |walk| declared(new, walk)),
        // Said already if it is by the flag.
        (Others::Like(_) | Others::Kept, Others::Pruned) if !flag(old, PRESERVE) => {
            walk.found("fields of any name are no longer kept");
        }
        _ => {}
    }
    for (name, old) in properties(old) {
        walk.at(name, |walk| match (property(new, name), after) {
            (Some(new), _) | (None, Others::Like(new)) => compare(old, new, walk),
            (None, Others::Kept) => {}
            (None, Others::Pruned) => walk.found("field removed"),
        });
    }
    for (name, new) in properties(new) {
        if property(old, name).is_none() {
            walk.at(name, |walk| match before {
                Others::Pruned => {}
                Others::Kept => declared(new, walk),
                Others::Like(old) => compare(old, new, walk),
            });
        }
    }
}

/// Refuses new constraints on a field that could hold any value so far.
fn declared(new: &Value, walk: &mut Walk) {
    let takes_all = new.as_object().is_some_and(|new| {
        new.iter()
            .all(|(key, _)| key == PRESERVE || TEXTS.contains(&key.as_str()))
    });
    if !takes_all || type_of(new) != ANY {
        walk.found("is now declared where anything was allowed");
    }
}

/// Compares the required fields. One with a default counts as optional.
fn required(old: &Value, new: &Value, walk: &mut Walk) {
    let needs = |schema: &Value, name: &str| {
        names(schema, "required").contains(name)
            && property(schema, name).is_none_or(|field| field.get("default").is_none())
    };
    for name in names(new, "required") {
        if needs(new, name) && !needs(old, name) {
            walk.at(name, |walk| walk.found("is now required, without a default"));
        }
    }
}

fn items(old: &Value, new: &Value, walk: &mut Walk) {
    match (old.get("items"), new.get("items")) {
        (Some(old), Some(new)) => walk.at("[]", |walk| compare(old, new, walk)),
        (None, None) => {}
        (Some(_), None) => walk.at("[]", |walk| walk.found("is no longer declared")),
        (None, Some(new)) => walk.at("[]", |walk| declared(new, walk)),
    }
}

/// Compares how writers share a list or an object.
fn merging(old: &Value, new: &Value, walk: &mut Walk) {
    for (key, default) in [
        ("x-kubernetes-list-type", "atomic"),
        ("x-kubernetes-map-type", "granular"),
    ] {
        let of = |schema: &Value| schema.get(key).and_then(Value::as_str).unwrap_or(default).to_owned();
        let (before, after) = (of(old), of(new));
        if before != after {
            walk.found(format!("{key} changed from {before} to {after}"));
        }
    }
    let keys = |schema| names(schema, "x-kubernetes-list-map-keys");
    let (before, after) = (keys(old), keys(new));
    if before != after {
        walk.found(format!(
            "x-kubernetes-list-map-keys changed from {before:?} to {after:?}"
        ));
    }
}

/// Refuses any change of keywords that this module does not know.
fn unknown(old: &Value, new: &Value, walk: &mut Walk) {
    let keys = |schema: &Value| -> BTreeSet<String> {
        let keys = schema.as_object().into_iter().flat_map(Map::keys);
        keys.filter(|key| {
            let key = key.as_str();
            key != EMBEDDED && !TEXTS.contains(&key) && !KEYWORDS.contains(&key) && !values::KEYWORDS.contains(&key)
        })
        .cloned()
        .collect()
    };
    for key in keys(old).union(&keys(new)) {
        if !values::is_same(old.get(key), new.get(key)) {
            walk.found(format!("{key} changed"));
        }
    }
}

// Every object has these, and keeps them, whether its schema names them or not.
fn with_implied(schema: &Value) -> Cow<'_, Value> {
    let Some(fields) = schema.as_object() else {
        return Cow::Borrowed(schema);
    };
    let text = || json!({ "type": "string" });
    let mut fields = fields.clone();
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.entry("apiVersion").or_insert_with(text);
        properties.entry("kind").or_insert_with(text);
        let metadata = properties
            .entry("metadata")
            .or_insert_with(|| json!({ "type": "object" }));
        if let Some(metadata) = metadata.as_object_mut() {
            let metadata = metadata.entry("properties").or_insert_with(|| json!({}));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.entry("generateName").or_insert_with(text);
                metadata.entry("name").or_insert_with(text);
            }
        }
    }
    if let Some(required) = fields.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !["apiVersion", "kind", "metadata"].iter().any(|implied| name == implied));
    }
    Cow::Owned(Value::Object(fields))
}

const ANY: &str = "any";

fn type_of(schema: &Value) -> &str {
    match schema.get("type").and_then(Value::as_str) {
        _ if flag(schema, INT_OR_STRING) => "integer or string",
        Some(name) => name,
        None => ANY,
    }
}

fn others(schema: &Value) -> Others<'_> {
    match schema.get("additionalProperties") {
        Some(Value::Bool(true)) => Others::Kept,
        Some(like @ Value::Object(_)) => Others::Like(like),
        _ if flag(schema, PRESERVE) => Others::Kept,
        _ => Others::Pruned,
    }
}

fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool) == Some(true)
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten()
}

fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema.get("properties")?.get(name)
}

fn names<'a>(schema: &'a Value, key: &str) -> BTreeSet<&'a str> {
    let names = schema.get(key).and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}
