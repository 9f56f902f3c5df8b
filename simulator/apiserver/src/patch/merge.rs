//! JSON merge patches.

use serde_json::{Map, Value};

use crate::status::StatusError;

/// Applies a JSON merge patch (RFC 7386).
pub(crate) fn merge(target: &Value, patch: &Value) -> Result<Value, StatusError> {
    let Value::Object(patch) = patch else {
        let shown = match patch {
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Bool(_) => "bool",
            _ => "number",
        };
        return Err(StatusError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {shown} into Go value of type map[string]interface {{}}"
        )));
    };
    let mut merged = target.clone();
    match &mut merged {
        Value::Object(target) => merge_maps(target, patch),
        other => *other = pruned(&Value::Object(patch.clone())),
    }
    Ok(merged)
}

fn merge_maps(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, value) in patch {
        match (target.get_mut(name), value) {
            (_, Value::Null) => {
                target.remove(name);
            }
            (Some(Value::Object(inner)), Value::Object(patch)) => merge_maps(inner, patch),
            // What replaces a map is taken as it is.
            (Some(Value::Object(_)), value) => {
                target.insert(name.clone(), value.clone());
            }
            (_, value) => {
                target.insert(name.clone(), pruned(value));
            }
        }
    }
}

/// The value without fields that are null, at any depth.
fn pruned(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            fields.map(|(name, value)| (name.clone(), pruned(value))).collect()
        }
        Value::Array(items) => items.iter().map(pruned).collect(),
        other => other.clone(),
    }
}
