//! Access to the metadata of objects.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// Finalizer of a deletion that waits for its dependents.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of a deletion that leaves its dependents.
pub(crate) const ORPHAN: &str = "orphan";

/// The metadata of an object, or nothing if it has none.
pub(crate) fn of(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata")?.as_object()
}

/// The metadata of an object, made if absent.
pub(crate) fn of_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let object = object.as_object_mut()?;
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut()
}

/// A field of the metadata.
pub(crate) fn get<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    of(object)?.get(field)
}

/// A text of the metadata, empty if absent.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    get(object, field).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn set(object: &mut Value, field: &str, value: Value) {
    if let Some(metadata) = of_mut(object) {
        metadata.insert(field.to_owned(), value);
    }
}

pub(crate) fn remove(object: &mut Value, field: &str) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove(field);
    }
}

/// Sets a field of the metadata to what another object has there, or removes it.
pub(crate) fn copy(object: &mut Value, from: &Value, field: &str) {
    match get(from, field) {
        Some(value) => set(object, field, value.clone()),
        None => remove(object, field),
    }
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "uid")
}

pub(crate) fn generation(object: &Value) -> i64 {
    get(object, "generation").and_then(Value::as_i64).unwrap_or(0)
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    get(object, "deletionTimestamp").is_some_and(|time| !time.is_null())
}

/// The texts of a list of the metadata, such as finalizers.
pub(crate) fn texts<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let list = get(object, field).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

pub(crate) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    texts(object, "finalizers").any(|other| other == finalizer)
}

pub(crate) fn has_finalizers(object: &Value) -> bool {
    texts(object, "finalizers").next().is_some()
}

/// Sets the finalizers; an empty list removes the field.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    if finalizers.is_empty() {
        remove(object, "finalizers");
    } else {
        set(object, "finalizers", finalizers.into());
    }
}

/// Removes one finalizer.
pub(crate) fn without_finalizer(object: &mut Value, finalizer: &str) {
    let others = texts(object, "finalizers").filter(|other| *other != finalizer);
    let others = others.map(ToOwned::to_owned).collect();
    set_finalizers(object, others);
}

pub(crate) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    get(object, "labels")?.get(key)?.as_str()
}

pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    get(object, "annotations")?.get(key)?.as_str()
}

/// References to owners.
pub(crate) fn owners(object: &Value) -> &[Value] {
    let list = get(object, "ownerReferences").and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

/// A time as Kubernetes writes it in metadata.
pub(crate) fn time(now: Timestamp) -> Value {
    Value::String(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}
