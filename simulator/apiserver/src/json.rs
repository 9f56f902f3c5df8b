//! Reads fields of JSON objects that may be absent.

use serde_json::Value;

/// The items of a list in an object, none if the list is absent.
pub(crate) fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A text in an object, empty if absent.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}
