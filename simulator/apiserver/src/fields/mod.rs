//! Field managers: server-side apply and the tracking of other writes.

mod apply;
mod compare;
mod conflict;
mod element;
mod ignored;
mod managed;
mod merge;
mod set;
mod types;
mod update;
mod validate;
mod walk;

use serde_json::{Value, json};

pub(crate) use self::{apply::apply, types::resolve, update::track_update};

/// Name of the manager that owns what was in an object before its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The schema of a built-in kind, for [`crate::kind::KindInfo::schema`].
pub(crate) fn built_in_schema(group: &str, version: &str, kind: &str) -> Option<Value> {
    types::definition(group, version, kind).map(|name| json!({ "$ref": name }))
}

/// Takes `managedFields` out of an object.
fn take_managed_fields(object: &mut Value) -> Option<Value> {
    let meta = object.get_mut("metadata").and_then(Value::as_object_mut);
    meta.and_then(|meta| meta.remove("managedFields"))
}

fn managed_fields(object: &Value) -> Option<&Value> {
    object.get("metadata").and_then(|meta| meta.get("managedFields"))
}

fn put_managed_fields(object: &mut Value, fields: Option<Value>) {
    let Some(fields) = fields else { return };
    if let Some(object) = object.as_object_mut() {
        let meta = object.entry("metadata").or_insert_with(|| json!({}));
        if let Some(meta) = meta.as_object_mut() {
            meta.insert("managedFields".to_owned(), fields);
        }
    }
}

/// If two objects are the same but for their `managedFields`.
fn same_but_managers(one: &Value, two: &Value) -> bool {
    let (Some(one), Some(two)) = (one.as_object(), two.as_object()) else {
        return false;
    };
    one.len() == two.len()
        && one.iter().all(|(key, value)| match (key.as_str(), two.get(key)) {
            (_, None) => false,
            ("metadata", Some(other)) => same_meta(value, other),
            (_, Some(other)) => value == other,
        })
}

fn same_meta(one: &Value, two: &Value) -> bool {
    let (Some(one), Some(two)) = (one.as_object(), two.as_object()) else {
        return one == two;
    };
    let named = |meta: &serde_json::Map<String, Value>| meta.len() - usize::from(meta.contains_key("managedFields"));
    named(one) == named(two)
        && one
            .iter()
            .all(|(key, value)| key == "managedFields" || two.get(key) == Some(value))
}

#[cfg(test)]
mod tests;
