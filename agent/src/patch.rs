//! Merge patches that the API server refuses if the object changed since it was read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

/// Returns a patch that changes nothing, and that the API server refuses with 409 if the object was changed or replaced
/// since it was read with this metadata. Callers add their changes.
pub fn unchanged(meta: &ObjectMeta) -> Value {
    json!({"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}})
}

/// Returns a patch of annotations, on the condition of [`unchanged`].
pub fn annotations(meta: &ObjectMeta, annotations: impl Into<Map<String, Value>>) -> Value {
    let mut patch = unchanged(meta);
    patch["metadata"]["annotations"] = Value::Object(annotations.into());
    patch
}

/// Returns a patch of the status, on the condition of [`unchanged`].
pub fn status(meta: &ObjectMeta, status: Value) -> Value {
    let mut patch = unchanged(meta);
    patch["status"] = status;
    patch
}
