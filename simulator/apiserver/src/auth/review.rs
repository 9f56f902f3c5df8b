//! Reviews of access: SelfSubjectAccessReview, SubjectAccessReview and their kin, which answer what a user may do.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    Attributes,
    rules::{decide, rules_of},
};
use crate::{
    UserInfo,
    json::{list, text},
    status::{About, Cause, StatusError},
    store::Objects,
};

const GROUP: &str = "authorization.k8s.io";

/// Answers a SelfSubjectAccessReview, SubjectAccessReview, LocalSubjectAccessReview, SelfSubjectRulesReview or
/// SelfSubjectReview, which `kind` tells: the review with its status.
pub(crate) fn review(
    objects: &dyn Objects,
    user: &UserInfo,
    kind: &str,
    namespace: &str,
    review: &Value,
) -> Result<Value, StatusError> {
    let spec = &review["spec"];
    let status = match kind {
        "SelfSubjectReview" => json!({"userInfo": user_json(user)}),
        "SelfSubjectRulesReview" => rules_review(objects, user, text(spec, "namespace"))?,
        "SelfSubjectAccessReview" => {
            check(kind, "", spec, None)?;
            access(objects, user, spec)
        }
        _ => {
            let local = (kind == "LocalSubjectAccessReview").then_some(namespace);
            check(kind, local.unwrap_or_default(), spec, Some(spec))?;
            access(objects, &subject(spec), spec)
        }
    };
    let mut answer = review.clone();
    answer["status"] = status;
    Ok(answer)
}

fn subject(spec: &Value) -> UserInfo {
    let strings = |value: &Value| -> Vec<String> {
        let values = value.as_array().into_iter().flatten();
        values.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra = spec["extra"].as_object().into_iter().flatten();
    let extra: BTreeMap<_, _> = extra.map(|(key, values)| (key.clone(), strings(values))).collect();
    UserInfo {
        name: text(spec, "user").to_owned(),
        uid: text(spec, "uid").to_owned(),
        groups: strings(&spec["groups"]),
        extra,
    }
}

fn access(objects: &dyn Objects, user: &UserInfo, spec: &Value) -> Value {
    let attributes = match (&spec["resourceAttributes"], &spec["nonResourceAttributes"]) {
        (Value::Null, path) => Attributes {
            verb: text(path, "verb"),
            path: text(path, "path"),
            ..Attributes::default()
        },
        (resource, _) => Attributes {
            verb: text(resource, "verb"),
            group: text(resource, "group"),
            resource: text(resource, "resource"),
            subresource: text(resource, "subresource"),
            namespace: text(resource, "namespace"),
            name: text(resource, "name"),
            path: "",
        },
    };
    let (is_allowed, reason) = match decide(objects, user, &attributes) {
        Ok(reason) => (true, reason),
        Err(reason) => (false, reason),
    };
    let mut status = Map::new();
    status.insert("allowed".to_owned(), json!(is_allowed));
    if !reason.is_empty() {
        status.insert("reason".to_owned(), json!(reason));
    }
    Value::Object(status)
}

/// Refuses a review without attributes, with attributes of both kinds, or without a user or group.
fn check(kind: &str, local: &str, spec: &Value, subject: Option<&Value>) -> Result<(), StatusError> {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let mut causes = Vec::new();
    let mut invalid = |field: &str, value: &str, detail: &str| {
        causes.push(Cause {
            field: format!("spec.{field}"),
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {value}: {detail}"),
        });
    };
    if !resource.is_null() && !path.is_null() {
        let detail = "cannot be specified in combination with resourceAttributes";
        invalid("nonResourceAttributes", &shown(path), detail);
    }
    if resource.is_null() && path.is_null() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        invalid("resourceAttributes", "null", detail);
    }
    if let Some(subject) = subject
        && text(subject, "user").is_empty()
        && list(subject, "groups").is_empty()
    {
        invalid("user", "\"\"", "at least one of user or group must be specified");
    }
    if kind == "LocalSubjectAccessReview" {
        let namespace = text(resource, "namespace");
        if !resource.is_null() && namespace != local {
            invalid(
                "resourceAttributes.namespace",
                &format!("{namespace:?}"),
                "must match metadata.namespace",
            );
        }
        if !path.is_null() {
            invalid(
                "nonResourceAttributes",
                &shown(path),
                "disallowed on this kind of request",
            );
        }
    }
    if causes.is_empty() {
        return Ok(());
    }
    // The API server forgets the kind here.
    let about = About {
        group: GROUP,
        resource: "",
        name: "",
    };
    Err(StatusError::invalid(about, &causes))
}

/// Attributes as Go's internal type has them.
fn shown(path: &Value) -> String {
    format!(
        "{{\"Path\":{:?},\"Verb\":{:?}}}",
        text(path, "path"),
        text(path, "verb")
    )
}

fn rules_review(objects: &dyn Objects, user: &UserInfo, namespace: &str) -> Result<Value, StatusError> {
    if namespace.is_empty() {
        return Err(StatusError::bad_request("no namespace on request"));
    }
    let (rules, _) = rules_of(objects, user, namespace);
    let of = |fields: [&str; 4], needed: &str| -> Vec<Value> {
        let rules = rules.iter().filter(|rule| !list(rule, needed).is_empty());
        let rules = rules.map(|rule| {
            let present = fields.iter().filter(|field| !list(rule, field).is_empty());
            present
                .map(|field| ((*field).to_owned(), rule[*field].clone()))
                .collect()
        });
        rules.collect()
    };
    Ok(json!({
        "resourceRules": of(["verbs", "apiGroups", "resources", "resourceNames"], "resources"),
        "nonResourceRules": of(["verbs", "nonResourceURLs", "", ""], "nonResourceURLs"),
        "incomplete": false,
    }))
}

/// A user as reviews and policies show it.
pub(crate) fn user_json(user: &UserInfo) -> Value {
    let mut json = Map::new();
    let mut put = |field: &str, value: Value| json.insert(field.to_owned(), value);
    if !user.name.is_empty() {
        put("username", json!(user.name));
    }
    if !user.uid.is_empty() {
        put("uid", json!(user.uid));
    }
    if !user.groups.is_empty() {
        put("groups", json!(user.groups));
    }
    if !user.extra.is_empty() {
        put("extra", json!(user.extra));
    }
    Value::Object(json)
}
