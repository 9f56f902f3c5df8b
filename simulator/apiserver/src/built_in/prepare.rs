//! What clients may not set on objects of built-in kinds.

use serde_json::{Value, json};

use crate::{
    endpoint::Endpoint,
    strategy::{drop_field, put_field},
};

/// Prepares an object for its creation.
pub(crate) fn create(endpoint: &Endpoint, object: &mut Value) {
    match endpoint.info.kind.as_str() {
        "Namespace" => {
            object["status"] = json!({"phase": "Active"});
            let mut finalizers = namespace_finalizers(object);
            if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
                finalizers.push("kubernetes".to_owned());
            }
            object["spec"] = json!({ "finalizers": finalizers });
        }
        "CustomResourceDefinition" => {
            let stored = storage_version(object);
            object["status"] = json!({
                "acceptedNames": {"kind": "", "plural": ""},
                "conditions": null,
                "storedVersions": stored.map(|version| vec![version]),
            });
        }
        "Pod" => object["status"] = json!({"phase": "Pending"}),
        "ValidatingAdmissionPolicy" => object["status"] = json!({}),
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "Job" | "Service" => {
            drop_field(object, "status");
            object["status"] = json!({});
        }
        _ => {}
    }
}

/// `spec.finalizers` of a namespace.
pub(crate) fn namespace_finalizers(namespace: &Value) -> Vec<String> {
    let list = namespace.pointer("/spec/finalizers").and_then(Value::as_array);
    let texts = list.into_iter().flatten().filter_map(Value::as_str);
    texts.map(ToOwned::to_owned).collect()
}

/// Name of the version in which a CRD stores its objects.
fn storage_version(definition: &Value) -> Option<String> {
    let versions = definition.pointer("/spec/versions")?.as_array()?;
    let stored = versions.iter().find(|version| version["storage"] == true)?;
    Some(stored["name"].as_str()?.to_owned())
}

/// Prepares an object for an update of itself or of a subresource.
pub(crate) fn update(endpoint: &Endpoint, subresource: &str, object: &mut Value, old: &Value) {
    let kind = endpoint.info.kind.as_str();
    match (kind, subresource) {
        ("Namespace", "finalize") => put_field(object, "status", old.get("status").cloned()),
        (_, "status") => put_field(object, "spec", old.get("spec").cloned()),
        ("Namespace", _) => {
            let finalizers = old.pointer("/spec/finalizers").cloned();
            let mut spec = json!({});
            put_field(&mut spec, "finalizers", finalizers);
            object["spec"] = spec;
            put_field(object, "status", old.get("status").cloned());
        }
        ("CustomResourceDefinition", _) => {
            put_field(object, "status", old.get("status").cloned());
            if let Some(version) = storage_version(object)
                && let Some(status) = object.get_mut("status").and_then(Value::as_object_mut)
            {
                let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
                if stored.is_null() {
                    *stored = json!([]);
                }
                if let Some(stored) = stored.as_array_mut()
                    && !stored.iter().any(|other| *other == version.as_str())
                {
                    stored.push(version.into());
                }
            }
        }
        ("Secret", _) if object.get("type").is_none() => {
            put_field(object, "type", old.get("type").cloned());
        }
        _ if endpoint.info.status => put_field(object, "status", old.get("status").cloned()),
        _ => {}
    }
    if kind == "Namespace" && subresource == "status" {
        // Clients of the status may send no phase.
        let phase = old.pointer("/status/phase").cloned();
        if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut)
            && let Some(phase) = phase
        {
            status.entry("phase").or_insert(phase);
        }
    }
}
