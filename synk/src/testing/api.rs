//! How the API server in memory answers PATCH and discovery requests, as far as the tests need it.

use http::Method;
use serde_json::{Map, Value, json};

use super::{Answer, State, refusal};

/// The served kinds: group, version, plural, kind, and whether objects have namespaces.
const SERVED: [(&str, &str, &str, &str, bool); 6] = [
    ("", "v1", "configmaps", "ConfigMap", true),
    ("", "v1", "secrets", "Secret", true),
    ("", "v1", "namespaces", "Namespace", false),
    ("coordination.k8s.io", "v1", "leases", "Lease", true),
    (
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        false,
    ),
    (
        "apps.cloudrobotics.com",
        "v1alpha1",
        "resourcesets",
        "ResourceSet",
        false,
    ),
];

/// The answer of `/api` or `/apis`.
pub(super) fn discovery(path: &str) -> Option<Answer> {
    let is_core = match path {
        "/api" => true,
        "/apis" => false,
        _ => return None,
    };
    let groups = SERVED.iter().filter(|(group, ..)| group.is_empty() == is_core);
    let items: Vec<_> = groups
        .map(|(group, version, plural, kind, namespaced)| {
            let scope = if *namespaced { "Namespaced" } else { "Cluster" };
            let resource = json!({
                "resource": plural, "scope": scope, "verbs": ["get"],
                "responseKind": {"group": group, "version": version, "kind": kind},
            });
            let version = json!({"version": version, "freshness": "Current", "resources": [resource]});
            json!({"metadata": {"name": group}, "versions": [version]})
        })
        .collect();
    Some((200, json!({"kind": "APIGroupDiscoveryList", "items": items})))
}

/// Whether a path is that of a collection.
pub(super) fn is_collection(path: &str) -> bool {
    let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
    let root = if parts[0] == "api" { 2 } else { 3 };
    matches!(parts.get(root..), Some([_] | ["namespaces", _, _]))
}

// === impl State ===

impl State {
    /// Answers a PATCH. It stores the changed object with a new resourceVersion.
    pub(super) fn patch(&mut self, path: &str, query: &str, body: Value) -> Answer {
        if query.contains("force=true") {
            return self.apply(path, body, query.contains("dryRun=All"));
        }
        let Some(known) = self.objects.get(path).cloned() else {
            return refusal(404, "NotFound", path);
        };
        let wanted = &body["metadata"];
        for field in ["uid", "resourceVersion"] {
            if !wanted[field].is_null() && wanted[field] != known["metadata"][field] {
                return refusal(409, "Conflict", path);
            }
        }
        let mut object = known;
        if let Value::Array(operations) = &body {
            for operation in operations {
                let pointer = operation["path"].as_str().unwrap_or_default();
                let found = object.pointer(pointer).cloned();
                match operation["op"].as_str() {
                    Some("test") if found.as_ref() != Some(&operation["value"]) => {
                        return refusal(422, "Invalid", path);
                    }
                    Some("test") => {}
                    _ => set(&mut object, pointer, operation["value"].clone()),
                }
            }
        } else {
            merge(&mut object, &body);
        }
        (200, self.store(path, object))
    }

    fn apply(&mut self, path: &str, mut body: Value, dry: bool) -> Answer {
        let known = self.objects.get(path).map(|known| known["metadata"].clone());
        let wanted = &body["metadata"];
        let (uid, version) = (&wanted["uid"], &wanted["resourceVersion"]);
        let conflicts = match &known {
            Some(known) => {
                (!uid.is_null() && *uid != known["uid"]) || (!version.is_null() && *version != known["resourceVersion"])
            }
            None => !uid.is_null(),
        };
        if conflicts {
            return refusal(409, "Conflict", path);
        }
        let namespace = path
            .split_once("/namespaces/")
            .and_then(|(_, rest)| rest.split_once('/'));
        if let Some((namespace, _)) = namespace
            && self.missing.iter().any(|missing| missing == namespace)
        {
            return refusal(404, "NotFound", &format!("/api/v1/namespaces/{namespace}"));
        }
        if self.refused.iter().any(|refused| refused == path) {
            return refusal(422, "Invalid", path);
        }
        for field in ["uid", "resourceVersion"] {
            if let Some(metadata) = body["metadata"].as_object_mut() {
                metadata.remove(field);
            }
        }
        let entry = json!({
            "manager": "synk", "operation": "Apply", "apiVersion": body["apiVersion"],
            "fieldsType": "FieldsV1", "fieldsV1": owned(&body),
        });
        body["metadata"]["managedFields"] = json!([entry]);
        if dry {
            return (200, body);
        }
        // A namespace exists once it is applied.
        if let Some(namespace) = path.strip_prefix("/api/v1/namespaces/") {
            self.missing.retain(|missing| missing != namespace);
        }
        (200, self.store(path, body))
    }
}

/// The `fieldsV1` of the manager that applied this object. A list is one value, except the list of owner references.
fn owned(value: &Value) -> Value {
    let mut fields = Map::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        if matches!(
            key.as_str(),
            "apiVersion" | "kind" | "name" | "namespace" | "managedFields"
        ) {
            continue;
        }
        let inside = match value {
            Value::Array(owners) if key == "ownerReferences" => owners
                .iter()
                .map(|owner| (format!("k:{{\"uid\":{}}}", owner["uid"]), json!({".": {}})))
                .collect(),
            Value::Object(_) => owned(value).as_object().cloned().unwrap_or_default(),
            _ => Map::new(),
        };
        fields.insert(format!("f:{key}"), Value::Object(inside));
    }
    Value::Object(fields)
}

fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            object.as_object_mut().map(|fields| fields.remove(key));
        } else {
            merge(&mut object[key], value);
        }
    }
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, name) = pointer.rsplit_once('/').unwrap_or(("", pointer));
    if let Some(parent) = object.pointer_mut(parent) {
        parent[name] = value;
    }
}

/// Whether a request changes objects, as no GET and no dry run does. The server records such requests, and a test can
/// have them fail.
pub(super) fn is_write(method: &Method, query: &str) -> bool {
    *method != Method::GET && !query.contains("dryRun")
}
