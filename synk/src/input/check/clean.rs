//! Removes what only an API server writes from manifests.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use crate::{
    input::Manifest,
    wire::{LAST_APPLIED, SERVER_WRITTEN, is_resource_set},
};

/// Removes fields that an export of a live object contains and a manifest should not have.
pub(super) fn strip(body: &mut Map<String, Value>) {
    body.remove("status");
    let Some(Value::Object(metadata)) = body.get_mut("metadata") else {
        return;
    };
    metadata.retain(|key, value| !SERVER_WRITTEN.contains(&key.as_str()) && !value.is_null());
    let is_emptied = match metadata.get_mut("annotations") {
        Some(Value::Object(annotations)) => annotations.remove(LAST_APPLIED).is_some() && annotations.is_empty(),
        _ => false,
    };
    if is_emptied {
        metadata.remove("annotations");
    }
    let is_emptied = match metadata.get_mut("ownerReferences") {
        Some(Value::Array(owners)) => {
            let before = owners.len();
            owners.retain(|owner| !is_resource_set(owner));
            owners.is_empty() && before > 0
        }
        _ => false,
    };
    if is_emptied {
        metadata.remove("ownerReferences");
    }
}

/// Moves `stringData` of a Secret to `data`, as the API server does for all writes but an apply. It reports values that
/// are not text without repeating them; the API server's error would repeat them.
pub(super) fn secret(manifest: &mut Manifest) -> Vec<String> {
    if !manifest.object.gvk.is_secret() {
        return Vec::new();
    }
    let mut problems = Vec::new();
    let plain = entries(manifest.body.remove("stringData"), "stringData", &mut problems);
    let encoded = entries(manifest.body.remove("data"), "data", &mut problems);
    let mut data = Map::new();
    for (key, value) in encoded {
        match value.as_str().map(|text| text.replace(['\r', '\n'], "")) {
            Some(text) if STANDARD.decode(&text).is_ok() => drop(data.insert(key, text.into())),
            None if value.is_null() => drop(data.insert(key, value)),
            _ => problems.push(format!(
                "has data.{key} that is not text in base64: encode it, or use stringData"
            )),
        }
    }
    for (key, value) in plain {
        match value {
            Value::String(text) => drop(data.insert(key, STANDARD.encode(text).into())),
            Value::Null => drop(data.insert(key, "".into())),
            _ => problems.push(format!("has stringData.{key} that is not text: put it in quotes")),
        }
    }
    if !data.is_empty() {
        manifest.body.insert("data".to_owned(), data.into());
    }
    problems
}

fn entries(value: Option<Value>, field: &str, problems: &mut Vec<String>) -> Map<String, Value> {
    match value {
        Some(Value::Object(entries)) => entries,
        None | Some(Value::Null) => Map::new(),
        Some(_) => {
            problems.push(format!("has {field} that is not a mapping"));
            Map::new()
        }
    }
}
