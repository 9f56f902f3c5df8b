//! Brings objects of built-in kinds into the form that Go gives them: unknown fields and nulls are dropped, defaults filled in.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use crate::{
    endpoint::Endpoint,
    meta,
    strategy::{drop_field, is_empty},
};

/// The fields of a kind besides `apiVersion`, `kind` and `metadata`. Kinds that are not listed keep all fields.
fn fields(kind: &str) -> Option<&'static [&'static str]> {
    Some(match kind {
        "Secret" => &["data", "stringData", "type", "immutable"],
        "ConfigMap" => &["data", "binaryData", "immutable"],
        "ServiceAccount" => &["secrets", "imagePullSecrets", "automountServiceAccountToken"],
        "Namespace"
        | "Pod"
        | "Service"
        | "Deployment"
        | "StatefulSet"
        | "DaemonSet"
        | "ReplicaSet"
        | "Job"
        | "CustomResourceDefinition"
        | "ValidatingAdmissionPolicy" => &["spec", "status"],
        "ValidatingAdmissionPolicyBinding" | "Lease" => &["spec"],
        "Role" => &["rules"],
        "ClusterRole" => &["rules", "aggregationRule"],
        "RoleBinding" | "ClusterRoleBinding" => &["subjects", "roleRef"],
        _ => return None,
    })
}

/// Normalizes an object of a built-in kind.
pub(crate) fn normalize(endpoint: &Endpoint, object: &mut Value) {
    let info = &endpoint.info;
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), info.api_version().into());
        fields.insert("kind".to_owned(), info.kind.clone().into());
        if let Some(known) = self::fields(&info.kind) {
            let is_known = |field: &str| matches!(field, "apiVersion" | "kind" | "metadata") || known.contains(&field);
            fields.retain(|field, _| is_known(field));
        }
    }
    drop_nulls(object);
    match info.kind.as_str() {
        "Secret" => secret(object),
        "ConfigMap" => drop_empty(object, &["data", "binaryData"]),
        "ServiceAccount" => drop_empty(object, &["secrets", "imagePullSecrets"]),
        "Namespace" => namespace(object),
        "Lease" if object.get("spec").is_none() => object["spec"] = json!({}),
        "Role" => rules(object),
        "ClusterRole" => {
            rules(object);
            drop_empty(object, &["aggregationRule"]);
        }
        "RoleBinding" | "ClusterRoleBinding" => binding(object),
        "CustomResourceDefinition" => definition(object),
        "ValidatingAdmissionPolicy" => policy(object),
        "ValidatingAdmissionPolicyBinding" => policy_binding(object),
        _ => {}
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn drop_empty(object: &mut Value, fields: &[&str]) {
    for field in fields {
        if object.get(*field).is_some_and(is_empty) {
            drop_field(object, field);
        }
    }
}

/// `stringData` is written into `data`, and the type is `Opaque` if none is given.
fn secret(object: &mut Value) {
    let texts = object.get("stringData").and_then(Value::as_object).cloned();
    drop_field(object, "stringData");
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    if let Some(texts) = texts {
        let data = fields.entry("data").or_insert_with(|| Value::Object(Map::new()));
        if let Some(data) = data.as_object_mut() {
            for (key, text) in texts {
                data.insert(key, STANDARD.encode(text.as_str().unwrap_or_default()).into());
            }
        }
    }
    let kind = fields.entry("type").or_insert_with(|| "Opaque".into());
    if is_empty(kind) {
        *kind = "Opaque".into();
    }
    drop_empty(object, &["data"]);
}

/// The label with the namespace's own name.
pub(crate) const NAME_LABEL: &str = "kubernetes.io/metadata.name";

fn namespace(object: &mut Value) {
    let name = meta::name(object).to_owned();
    if !name.is_empty()
        && let Some(metadata) = meta::of_mut(object)
    {
        let labels = metadata.entry("labels").or_insert_with(|| Value::Object(Map::new()));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert(NAME_LABEL.to_owned(), name.into());
        }
    }
    for field in ["spec", "status"] {
        if object.get(field).is_none() {
            object[field] = json!({});
        }
    }
    drop_empty(&mut object["spec"], &["finalizers"]);
}

/// Rules have no `omitempty`: none are null.
fn rules(object: &mut Value) {
    if object.get("rules").is_none_or(is_empty) {
        object["rules"] = Value::Null;
    }
    for rule in object["rules"].as_array_mut().into_iter().flatten() {
        drop_empty(rule, &["apiGroups", "resources", "resourceNames", "nonResourceURLs"]);
    }
}

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

fn binding(object: &mut Value) {
    if let Some(reference) = object.get_mut("roleRef").and_then(Value::as_object_mut) {
        let group = reference.entry("apiGroup").or_insert_with(|| RBAC_GROUP.into());
        if is_empty(group) {
            *group = RBAC_GROUP.into();
        }
    }
    drop_empty(object, &["subjects"]);
    for subject in object
        .get_mut("subjects")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        drop_empty(subject, &["apiGroup", "namespace"]);
        if subject["kind"] != "ServiceAccount" && subject.get("apiGroup").is_none() {
            subject["apiGroup"] = RBAC_GROUP.into();
        }
    }
}

fn definition(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(false)) {
        spec.remove("preserveUnknownFields");
    }
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        if names.get("singular").is_none_or(is_empty) {
            names.insert("singular".to_owned(), kind.to_lowercase().into());
        }
        if names.get("listKind").is_none_or(is_empty) && !kind.is_empty() {
            names.insert("listKind".to_owned(), format!("{kind}List").into());
        }
    }
}

fn policy(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    spec.entry("failurePolicy").or_insert_with(|| "Fail".into());
    let constraints = spec.entry("matchConstraints").or_insert_with(|| json!({}));
    constraints_defaults(constraints);
}

fn policy_binding(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(constraints) = spec.get_mut("matchResources") {
        constraints_defaults(constraints);
    }
}

fn constraints_defaults(constraints: &mut Value) {
    let Some(fields) = constraints.as_object_mut() else {
        return;
    };
    fields.entry("matchPolicy").or_insert_with(|| "Equivalent".into());
    fields.entry("namespaceSelector").or_insert_with(|| json!({}));
    fields.entry("objectSelector").or_insert_with(|| json!({}));
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in fields.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(rule) = rule.as_object_mut() {
                rule.entry("scope").or_insert_with(|| "*".into());
            }
        }
    }
}
