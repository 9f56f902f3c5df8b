//! Who writes roles and bindings grants only what it holds itself, unless it may `escalate` or `bind`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::AdmissionRequest;
use crate::{
    UserInfo,
    auth::{Attributes, RBAC, is_superuser, may, rules_of, rules_of_role},
    json::list,
    status::{About, StatusError},
    store::Objects,
};

/// One right: verb, API group, resource and name, or verb and path. A rule is many of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Right<'a> {
    group: Option<&'a str>,
    resource: Option<&'a str>,
    url: Option<&'a str>,
    name: Option<&'a str>,
    verb: &'a str,
}

/// Refuses a write that would grant more than its author holds.
pub(super) fn check(objects: &dyn Objects, request: &AdmissionRequest<'_>) -> Result<(), StatusError> {
    if request.kind.group != RBAC || is_superuser(request.user) {
        return Ok(());
    }
    let Some(object) = request.object else {
        return Ok(());
    };
    if request.old_object.is_some_and(|old| changes_owners_only(old, object)) {
        return Ok(());
    }
    match request.resource {
        "roles" | "clusterroles" => check_role(objects, request, object),
        "rolebindings" | "clusterrolebindings" => check_binding(objects, request, object),
        _ => Ok(()),
    }
}

fn check_role(objects: &dyn Objects, request: &AdmissionRequest<'_>, role: &Value) -> Result<(), StatusError> {
    let wants = Attributes {
        verb: "escalate",
        group: RBAC,
        resource: request.resource,
        namespace: request.namespace,
        // A request that creates has no name.
        name: if request.operation == "CREATE" {
            ""
        } else {
            request.name
        },
        ..Attributes::default()
    };
    if may(objects, request.user, &wants) {
        return Ok(());
    }
    confirm(objects, request, list(role, "rules"))?;
    let aggregates = |role: &Value| !list(&role["aggregationRule"], "clusterRoleSelectors").is_empty();
    if aggregates(role) || request.old_object.is_some_and(aggregates) {
        let all = [
            json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
            json!({"verbs": ["*"], "nonResourceURLs": ["*"]}),
        ];
        let message = "must have cluster-admin privileges to use the aggregationRule";
        confirm(objects, request, &all).map_err(|_| forbidden(request, message))?;
    }
    Ok(())
}

fn check_binding(objects: &dyn Objects, request: &AdmissionRequest<'_>, binding: &Value) -> Result<(), StatusError> {
    let reference = &binding["roleRef"];
    let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
    let wants = Attributes {
        verb: "bind",
        group: text("apiGroup"),
        resource: if text("kind") == "Role" {
            "roles"
        } else {
            "clusterroles"
        },
        namespace: request.namespace,
        name: text("name"),
        ..Attributes::default()
    };
    if matches!(text("kind"), "Role" | "ClusterRole") && may(objects, request.user, &wants) {
        return Ok(());
    }
    let rules = rules_of_role(objects, reference, request.namespace).map_err(|error| match error.code {
        // The error names the resource of the request.
        404 => StatusError::not_found(About {
            group: &request.kind.group,
            resource: request.resource,
            name: text("name"),
        }),
        _ => error,
    })?;
    confirm(objects, request, rules)
}

/// Refuses rules that the author does not hold.
fn confirm(objects: &dyn Objects, request: &AdmissionRequest<'_>, rules: &[Value]) -> Result<(), StatusError> {
    let (held, errors) = rules_of(objects, request.user, request.namespace);
    let rights = rules.iter().flat_map(rights);
    let missing: Vec<_> = rights
        .filter(|right| !held.iter().any(|rule| covers(rule, right)))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let UserInfo { name, groups, .. } = request.user;
    let groups = quoted(groups.iter().map(String::as_str));
    let mut message = format!(
        "user {name:?} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{}",
        described(&missing).join("\n")
    );
    match errors.as_slice() {
        [] => {}
        [one] => message.extend(["; resolution errors: [", one, "]"]),
        many => message.extend(["; resolution errors: [[", &many.join(", "), "]]"]),
    }
    Err(forbidden(request, &message))
}

fn forbidden(request: &AdmissionRequest<'_>, message: &str) -> StatusError {
    let about = About {
        group: &request.kind.group,
        resource: request.resource,
        name: request.name,
    };
    StatusError::forbidden(about, message)
}

/// If nothing differs that the garbage collector does not change.
fn changes_owners_only(old: &Value, new: &Value) -> bool {
    let bare = |object: &Value| {
        let mut object = object.clone();
        if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
                meta.remove(field);
            }
        }
        object
    };
    bare(old) == bare(new)
}

fn texts<'a>(rule: &'a Value, field: &str) -> impl Iterator<Item = &'a str> + Clone {
    list(rule, field).iter().filter_map(Value::as_str)
}

/// The single rights of a rule.
fn rights(rule: &Value) -> Vec<Right<'_>> {
    let mut rights = Vec::new();
    let names: Vec<_> = match list(rule, "resourceNames") {
        [] => vec![None],
        _ => texts(rule, "resourceNames").map(Some).collect(),
    };
    for group in texts(rule, "apiGroups") {
        for resource in texts(rule, "resources") {
            for verb in texts(rule, "verbs") {
                rights.extend(names.iter().map(|&name| Right {
                    group: Some(group),
                    resource: Some(resource),
                    name,
                    verb,
                    url: None,
                }));
            }
        }
    }
    for url in texts(rule, "nonResourceURLs") {
        rights.extend(texts(rule, "verbs").map(|verb| Right {
            url: Some(url),
            verb,
            ..Right::default()
        }));
    }
    rights
}

fn covers(rule: &Value, right: &Right<'_>) -> bool {
    let has = |field: &str, value: &str| texts(rule, field).any(|text| text == value);
    let has_or_all = |field: &str, value: &str| has(field, "*") || has(field, value);
    if !has_or_all("verbs", right.verb) {
        return false;
    }
    if let Some(url) = right.url {
        return has("nonResourceURLs", url)
            || texts(rule, "nonResourceURLs").any(|own| own.strip_suffix('*').is_some_and(|own| url.starts_with(own)));
    }
    let names_cover =
        list(rule, "resourceNames").is_empty() || right.name.is_some_and(|name| has("resourceNames", name));
    let sub = right.resource.and_then(|resource| resource.split_once('/'));
    names_cover
        && right.group.is_some_and(|group| has_or_all("apiGroups", group))
        && right.resource.is_some_and(|resource| has_or_all("resources", resource))
            | sub.is_some_and(|(_, sub)| has("resources", &format!("*/{sub}")))
}

/// Rights as Kubernetes prints them: those that differ in their verbs only in one line, lines in order.
fn described(missing: &[Right<'_>]) -> Vec<String> {
    let mut verbs: BTreeMap<Right<'_>, Vec<&str>> = BTreeMap::new();
    let mut lines = BTreeSet::new();
    for right in missing {
        if right.url.is_some() {
            lines.insert(line(right, &[right.verb]));
            continue;
        }
        let key = Right {
            verb: "",
            ..right.clone()
        };
        verbs.entry(key).or_default().push(right.verb);
    }
    lines.extend(verbs.iter().map(|(right, verbs)| line(right, verbs)));
    lines.into_iter().collect()
}

fn line(right: &Right<'_>, verbs: &[&str]) -> String {
    let parts = [
        ("APIGroups", right.group),
        ("Resources", right.resource),
        ("NonResourceURLs", right.url),
        ("ResourceNames", right.name),
    ];
    let parts = parts
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}:{}", quoted(std::iter::once((*value)?)))));
    let verbs = format!("Verbs:{}", quoted(verbs.iter().copied()));
    let parts: Vec<_> = parts.chain([verbs]).collect();
    format!("{{{}}}", parts.join(", "))
}

/// A list of texts as Go prints it with `%q`.
fn quoted<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let texts: Vec<_> = texts.map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}
