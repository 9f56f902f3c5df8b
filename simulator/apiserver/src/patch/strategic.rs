//! Strategic merge patches, which merge lists by the keys that the kind's schema names. Directives on the order of items are
//! ignored.

use serde_json::{Map, Value};

use crate::{fields::resolve, kind::KindInfo, status::StatusError};

/// The field of a map or an item that says how it is merged: replaced, deleted or merged.
const DIRECTIVE: &str = "$patch";
/// Begins the name of a field that says which scalars go from a list.
const DELETE_SCALARS: &str = "$deleteFromPrimitiveList/";
/// Names the fields that a map keeps.
const RETAIN: &str = "$retainKeys";

/// Applies a strategic merge patch to an object of a built-in kind.
pub(crate) fn strategic(target: &Value, patch: &Value, kind: &KindInfo) -> Result<Value, StatusError> {
    let (Value::Object(target), Value::Object(patch)) = (target, patch) else {
        return Err(StatusError::bad_request("Invalid JSON Patch"));
    };
    let merged = maps(target, patch, kind.schema.as_deref().map(resolve))?;
    Ok(Value::Object(merged))
}

/// Removes directives that are left in a patched object. Kubernetes reads it into the type of its kind, which has no such fields.
pub(crate) fn drop_directives(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove(DIRECTIVE);
            fields.values_mut().for_each(drop_directives);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_directives),
        _ => {}
    }
}

fn maps(
    target: &Map<String, Value>,
    patch: &Map<String, Value>,
    schema: Option<&Value>,
) -> Result<Map<String, Value>, StatusError> {
    match directive(patch)? {
        Some("replace") => return Ok(cleaned(patch)),
        Some("delete") => return Ok(Map::new()),
        _ => {}
    }
    let mut merged = target.clone();
    if let Some(Value::Array(kept)) = patch.get(RETAIN) {
        merged.retain(|name, _| kept.iter().any(|kept| kept == name));
    }
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(DELETE_SCALARS) {
            let gone = value.as_array().map_or(&[][..], Vec::as_slice);
            if let Some(Value::Array(items)) = merged.get_mut(list) {
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if name.starts_with('$') {
            continue;
        }
        let field = field(schema, name);
        match (merged.get(name), value) {
            (_, Value::Null) => {
                merged.remove(name);
            }
            (Some(Value::Object(before)), Value::Object(patch)) => {
                let value = maps(before, patch, field.map(resolve))?;
                merged.insert(name.clone(), Value::Object(value));
            }
            (before, Value::Array(patch)) => {
                let before = before.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                let items = lists(before, patch, field)?;
                merged.insert(name.clone(), Value::Array(items));
            }
            (_, Value::Object(patch)) => {
                let value = maps(&Map::new(), patch, field.map(resolve))?;
                merged.insert(name.clone(), Value::Object(value));
            }
            (_, value) => {
                merged.insert(name.clone(), value.clone());
            }
        }
    }
    Ok(merged)
}

fn lists(before: &[Value], patch: &[Value], field: Option<&Value>) -> Result<Vec<Value>, StatusError> {
    let text = |key: &str| {
        field
            .and_then(|field| field.get(key))
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let merges = text("x-kubernetes-patch-strategy")
        .split(',')
        .any(|strategy| strategy == "merge");
    if !merges {
        // A list that replaces another keeps the directives of its items, which are unknown fields then.
        if !before.is_empty() {
            return Ok(patch.to_vec());
        }
        let kept = patch
            .iter()
            .filter(|item| item.get(DIRECTIVE).is_none_or(|it| it != "delete"));
        return Ok(kept.map(plain).collect());
    }
    let key = text("x-kubernetes-patch-merge-key");
    let mut items = before.to_vec();
    if key.is_empty() {
        return Ok(ordered(before, patch, |item| {
            before.iter().position(|other| other == item)
        }));
    }
    let of_items = field.and_then(|field| field.get("items")).map(resolve);
    for item in patch {
        let Value::Object(item) = item else {
            return Err(StatusError::bad_request("Invalid JSON Patch"));
        };
        let directive = directive(item)?;
        let Some(name) = item.get(key) else {
            if directive == Some("replace") {
                let others = patch.iter().filter(|item| item.get(DIRECTIVE).is_none());
                return Ok(others.map(plain).collect());
            }
            let message = format!(
                "map: {} does not contain declared merge key: {key}",
                Value::Object(item.clone())
            );
            return Err(StatusError::plain(500, "", message));
        };
        let place = items.iter().position(|item| item.get(key) == Some(name));
        match (directive, place) {
            (Some("delete"), place) => {
                if let Some(place) = place {
                    items.remove(place);
                }
            }
            (_, Some(place)) => {
                let before = items[place].as_object().cloned().unwrap_or_default();
                items[place] = Value::Object(maps(&before, item, of_items)?);
            }
            (_, None) => items.push(Value::Object(maps(&Map::new(), item, of_items)?)),
        }
    }
    Ok(items)
}

/// The items of the patch, and the others of the list before, in an order that keeps to both where they agree. `place` is that
/// of an item in the list before.
fn ordered(before: &[Value], patch: &[Value], place: impl Fn(&Value) -> Option<usize>) -> Vec<Value> {
    let mut patched = patch.iter().peekable();
    let mut others = before.iter().filter(|item| !patch.contains(item)).peekable();
    let mut items = Vec::new();
    while let Some(item) = patched.peek() {
        match others.peek() {
            Some(other) if place(item).is_some_and(|at| place(other) < Some(at)) => {
                items.extend(others.next().cloned());
            }
            _ => items.extend(patched.next().cloned()),
        }
    }
    items.extend(others.cloned());
    items
}

fn directive(patch: &Map<String, Value>) -> Result<Option<&str>, StatusError> {
    match patch.get(DIRECTIVE).map(Value::as_str) {
        None => Ok(None),
        Some(Some(known @ ("replace" | "delete" | "merge"))) => Ok(Some(known)),
        Some(other) => {
            let other = other.unwrap_or_default();
            Err(StatusError::plain(500, "", format!("unknown patch type: {other}")))
        }
    }
}

/// The schema of a field, before its reference is followed: the strategy stands beside that.
fn field<'a>(schema: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    let schema = schema?;
    let declared = schema.get("properties").and_then(|fields| fields.get(name));
    declared.or_else(|| schema.get("additionalProperties").filter(|schema| schema.is_object()))
}

/// A value without what only directs the merge.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(cleaned(fields)),
        other => other.clone(),
    }
}

fn cleaned(fields: &Map<String, Value>) -> Map<String, Value> {
    let fields = fields
        .iter()
        .filter(|(name, value)| !name.starts_with('$') && !value.is_null());
    fields.map(|(name, value)| (name.clone(), plain(value))).collect()
}
