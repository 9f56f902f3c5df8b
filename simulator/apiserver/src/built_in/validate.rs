//! Rules of built-in kinds that the simulated programs can meet.

use serde_json::Value;

use crate::{endpoint::Endpoint, meta, status::Cause};

const DATA_BYTES_MAX: usize = 1 << 20;
const IMMUTABLE: &str = "field is immutable when `immutable` is set";

/// Validates an object of a built-in kind.
pub(crate) fn check(
    endpoint: &Endpoint,
    subresource: &str,
    object: &Value,
    old: Option<&Value>,
    causes: &mut Vec<Cause>,
) {
    match endpoint.info.kind.as_str() {
        "Secret" => secret(object, old, causes),
        "ConfigMap" => config_map(object, old, causes),
        "RoleBinding" | "ClusterRoleBinding" => binding(object, old, causes),
        "Role" | "ClusterRole" => role(endpoint, object, causes),
        "Lease" => lease(object, causes),
        "CustomResourceDefinition" if subresource.is_empty() => definition(object, old, causes),
        _ => {}
    }
}

fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.get(field).and_then(Value::as_object).into_iter().flatten()
}

/// Keys of Secrets and ConfigMaps.
fn check_keys(object: &Value, field: &str, causes: &mut Vec<Cause>) -> usize {
    const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  \
                       or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    let mut bytes = 0;
    for (key, value) in entries(object, field) {
        let path = format!("{field}[{key}]");
        if key.is_empty()
            || !key
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        {
            causes.push(Cause::invalid(&path, &key.as_str().into(), KEY));
        }
        bytes += value.as_str().map_or(0, str::len);
    }
    bytes
}

fn is_immutable(object: &Value) -> bool {
    object.get("immutable") == Some(&Value::Bool(true))
}

fn check_immutable(object: &Value, old: Option<&Value>, fields: &[&str], causes: &mut Vec<Cause>) {
    let Some(old) = old.filter(|old| is_immutable(old)) else {
        return;
    };
    if !is_immutable(object) {
        causes.push(Cause::forbidden("immutable", IMMUTABLE));
    }
    for field in fields {
        if object.get(*field) != old.get(*field) {
            causes.push(Cause::forbidden(field, IMMUTABLE));
        }
    }
}

fn secret(object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    if let Some(old) = old {
        if object.get("type") != old.get("type") {
            let kind = object.get("type").unwrap_or(&Value::Null);
            causes.push(Cause::invalid("type", kind, "field is immutable"));
        }
        check_immutable(object, Some(old), &["data"], causes);
    }
    // The limit counts decoded bytes.
    if check_keys(object, "data", causes) / 4 * 3 > DATA_BYTES_MAX {
        causes.push(Cause::too_long("data", DATA_BYTES_MAX as u64));
    }
    let has = |key: &str| object.get("data").is_some_and(|data| data.get(key).is_some());
    let mut needs = |key: &str| {
        if !has(key) {
            causes.push(Cause::required(&format!("data[{key}]"), ""));
        }
    };
    match object["type"].as_str().unwrap_or_default() {
        "kubernetes.io/tls" => {
            needs("tls.crt");
            needs("tls.key");
        }
        "kubernetes.io/dockerconfigjson" => needs(".dockerconfigjson"),
        "kubernetes.io/dockercfg" => needs(".dockercfg"),
        "kubernetes.io/ssh-auth" => needs("ssh-privatekey"),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            needs("username");
            needs("password");
        }
        "kubernetes.io/service-account-token" => {
            const ACCOUNT: &str = "kubernetes.io/service-account.name";
            if meta::annotation(object, ACCOUNT).is_none_or(str::is_empty) {
                causes.push(Cause::required(&format!("metadata.annotations[{ACCOUNT}]"), ""));
            }
        }
        _ => {}
    }
}

fn config_map(object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    check_immutable(object, old, &["data", "binaryData"], causes);
    let bytes = check_keys(object, "data", causes) + check_keys(object, "binaryData", causes) / 4 * 3;
    for (key, _) in entries(object, "data") {
        if object.get("binaryData").is_some_and(|data| data.get(key).is_some()) {
            let detail = "duplicate of key present in binaryData";
            causes.push(Cause::invalid(&format!("data[{key}]"), &key.as_str().into(), detail));
        }
    }
    if bytes > DATA_BYTES_MAX {
        causes.push(Cause::too_long("", DATA_BYTES_MAX as u64));
    }
}

fn binding(object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let text = |field: &str| object["roleRef"][field].as_str().unwrap_or_default();
    let is_wide = object["kind"] == "ClusterRoleBinding";
    if text("kind") != "ClusterRole" && (is_wide || text("kind") != "Role") {
        let all = ["Role".into(), "ClusterRole".into()];
        let allowed = if is_wide { &all[1..] } else { &all[..] };
        causes.push(Cause::not_supported("roleRef.kind", &text("kind").into(), allowed));
    }
    if text("name").is_empty() {
        causes.push(Cause::required("roleRef.name", ""));
    }
    if let Some(old) = old
        && object.get("roleRef") != old.get("roleRef")
    {
        let shown = format!(
            "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
            object["roleRef"]["apiGroup"], object["roleRef"]["kind"], object["roleRef"]["name"]
        );
        causes.push(Cause::invalid_shown("roleRef", &shown, "cannot change roleRef"));
    }
    for (index, subject) in object["subjects"].as_array().into_iter().flatten().enumerate() {
        let text = |field: &str| subject[field].as_str().unwrap_or_default();
        let path = |field: &str| format!("subjects[{index}].{field}");
        if text("name").is_empty() {
            causes.push(Cause::required(&path("name"), ""));
        }
        match text("kind") {
            "ServiceAccount" if is_wide && text("namespace").is_empty() => {
                causes.push(Cause::required(&path("namespace"), ""));
            }
            "ServiceAccount" | "User" | "Group" => {}
            kind => {
                let allowed = ["ServiceAccount".into(), "User".into(), "Group".into()];
                causes.push(Cause::not_supported(&path("kind"), &kind.into(), &allowed));
            }
        }
    }
}

fn role(endpoint: &Endpoint, object: &Value, causes: &mut Vec<Cause>) {
    for (index, rule) in object["rules"].as_array().into_iter().flatten().enumerate() {
        let is_empty = |field: &str| rule.get(field).is_none_or(crate::strategy::is_empty);
        let path = |field: &str| format!("rules[{index}].{field}");
        if is_empty("verbs") {
            causes.push(Cause::required(&path("verbs"), "verbs must contain at least one value"));
        }
        if !is_empty("nonResourceURLs") {
            if endpoint.namespaced {
                let detail = "namespaced rules cannot apply to non-resource URLs";
                causes.push(Cause::invalid(
                    &path("nonResourceURLs"),
                    &rule["nonResourceURLs"],
                    detail,
                ));
            }
            continue;
        }
        if is_empty("apiGroups") {
            let detail = "resource rules must supply at least one api group";
            causes.push(Cause::required(&path("apiGroups"), detail));
        }
        if is_empty("resources") {
            let detail = "resource rules must supply at least one resource";
            causes.push(Cause::required(&path("resources"), detail));
        }
    }
}

fn lease(object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|seconds| *seconds <= 0) {
        causes.push(Cause::invalid(
            "spec.leaseDurationSeconds",
            &seconds.into(),
            "must be greater than 0",
        ));
    }
    if let Some(count) = spec["leaseTransitions"].as_i64().filter(|count| *count < 0) {
        let detail = "must be greater than or equal to 0";
        causes.push(Cause::invalid("spec.leaseTransitions", &count.into(), detail));
    }
}

fn definition(object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let name = meta::name(object);
    if old.is_none() && name != format!("{plural}.{group}") {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &name.into(), detail));
    }
    if !matches!(spec["scope"].as_str(), Some("Cluster" | "Namespaced")) {
        let allowed = ["Cluster".into(), "Namespaced".into()];
        causes.push(Cause::not_supported("spec.scope", &spec["scope"], &allowed));
    }
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|own| group == *own || group.ends_with(&format!(".{own}")));
    if old.is_none() && is_protected && meta::annotation(object, "api-approved.kubernetes.io").is_none() {
        let detail = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
                      https://github.com/kubernetes/enhancements/pull/1111";
        causes.push(Cause::required(
            "metadata.annotations[api-approved.kubernetes.io]",
            detail,
        ));
    }
    for name in ["plural", "singular", "kind", "listKind"] {
        if text(&spec["names"][name]).is_empty() {
            causes.push(Cause::required(&format!("spec.names.{name}"), ""));
        }
    }
    if group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    }
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &spec["versions"], detail));
    }
    let path = match versions {
        [_] => "spec.validation.openAPIV3Schema".to_owned(),
        _ => "spec.versions[0].schema.openAPIV3Schema".to_owned(),
    };
    if let Some(schema) = versions
        .first()
        .and_then(|version| version.pointer("/schema/openAPIV3Schema"))
    {
        untyped(schema, &path, causes);
    }
    for (index, version) in versions.iter().enumerate() {
        if version.pointer("/schema/openAPIV3Schema").is_none() {
            let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
            causes.push(Cause::required(&path, ""));
        }
    }
    if let Some(old) = old {
        let is_established = crate::definition::is_true(old, "Established");
        let fixed = [("scope", "/spec/scope"), ("names.kind", "/spec/names/kind")];
        for (field, path) in fixed {
            let (new, before) = (object.pointer(path), old.pointer(path));
            if is_established && new != before {
                let new = new.unwrap_or(&Value::Null);
                causes.push(Cause::invalid(&format!("spec.{field}"), new, "field is immutable"));
            }
        }
        for (field, path) in [("group", "/spec/group"), ("names.plural", "/spec/names/plural")] {
            let (new, before) = (object.pointer(path), old.pointer(path));
            if new != before {
                let new = new.unwrap_or(&Value::Null);
                causes.push(Cause::invalid(&format!("spec.{field}"), new, "field is immutable"));
            }
        }
    }
}

/// Finds fields of a schema that have no type.
fn untyped(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let is_free =
        schema["x-kubernetes-int-or-string"] == true || schema["x-kubernetes-preserve-unknown-fields"] == true;
    if schema["type"].as_str().unwrap_or_default().is_empty() && !is_free {
        let detail = if path.ends_with("openAPIV3Schema") {
            "must not be empty at the root"
        } else {
            "must not be empty for specified object fields"
        };
        causes.push(Cause::required(&format!("{path}.type"), detail));
    }
    for (name, property) in entries(schema, "properties") {
        untyped(property, &format!("{path}.properties[{name}]"), causes);
    }
    if schema["items"].is_object() {
        untyped(&schema["items"], &format!("{path}.items"), causes);
    }
    if schema["additionalProperties"].is_object() {
        untyped(
            &schema["additionalProperties"],
            &format!("{path}.additionalProperties"),
            causes,
        );
    }
}
