//! Objects as clients get them.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    built_in::events,
    endpoint::Endpoint,
    store::{Stored, fields_text},
};

/// Kind and `apiVersion` of what a client gets.
pub(crate) fn type_of(endpoint: &Endpoint, metadata_only: bool) -> (&str, String) {
    if metadata_only {
        ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned())
    } else {
        (&endpoint.info.kind, endpoint.info.api_version())
    }
}

/// An object as JSON.
pub(crate) fn text(stored: &Stored, endpoint: &Endpoint, metadata_only: bool) -> String {
    let (kind, version) = type_of(endpoint, metadata_only);
    let mut text = format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",");
    push_fields(&mut text, stored, endpoint, metadata_only);
    text
}

/// An item of a list as JSON. Items of built-in kinds have neither kind nor `apiVersion`.
pub(crate) fn item(text: &mut String, stored: &Stored, endpoint: &Endpoint, metadata_only: bool) {
    text.push('{');
    if metadata_only || endpoint.custom.is_some() {
        let (kind, version) = type_of(endpoint, metadata_only);
        text.push_str("\"kind\":\"");
        text.push_str(kind);
        text.push_str("\",\"apiVersion\":\"");
        text.push_str(&version);
        text.push_str("\",");
    }
    push_fields(text, stored, endpoint, metadata_only);
}

fn push_fields(text: &mut String, stored: &Stored, endpoint: &Endpoint, metadata_only: bool) {
    if metadata_only {
        text.push_str("\"metadata\":");
        let metadata = stored.value.get("metadata").unwrap_or(&Value::Null);
        text.push_str(&metadata.to_string());
        text.push('}');
        return;
    }
    match converted(stored, endpoint) {
        None => text.push_str(stored.text()),
        Some(value) => text.push_str(&fields_text(&value)),
    }
}

/// The object in the version of an endpoint, if it differs from what is stored in more than its `apiVersion`.
fn converted(stored: &Stored, endpoint: &Endpoint) -> Option<Value> {
    match &endpoint.custom {
        Some(custom) if custom.stamp != stored.schema => {
            let mut value = Value::clone(&stored.value);
            custom.schema.prune_and_default(&mut value);
            Some(value)
        }
        None if endpoint.storage_group != endpoint.info.group => Some(events::from_core(&stored.value)),
        _ => None,
    }
}

/// The object in the version of an endpoint, for clients to change it.
pub(crate) fn value(stored: &Stored, endpoint: &Endpoint) -> Arc<Value> {
    if let Some(value) = converted(stored, endpoint) {
        return Arc::new(with_version(value, endpoint));
    }
    let version = endpoint.info.api_version();
    if stored.value.get("apiVersion").and_then(Value::as_str) == Some(&version) {
        return Arc::clone(&stored.value);
    }
    Arc::new(with_version(Value::clone(&stored.value), endpoint))
}

fn with_version(mut value: Value, endpoint: &Endpoint) -> Value {
    value["apiVersion"] = endpoint.info.api_version().into();
    value
}

/// The object as it is stored.
pub(crate) fn to_store(mut value: Value, endpoint: &Endpoint) -> (Value, u64) {
    match &endpoint.custom {
        Some(custom) => {
            value["apiVersion"] = custom.storage_api_version.as_str().into();
            (value, custom.stamp)
        }
        None if endpoint.storage_group != endpoint.info.group => {
            events::to_core(&mut value);
            (value, 0)
        }
        None => (value, 0),
    }
}
