//! The rules of RBAC that hold for a user.

use std::fmt;

use serde_json::{Value, json};

use super::{Attributes, RBAC};
use crate::{
    UserInfo,
    json::{list, text},
    status::StatusError,
    store::Objects,
};

/// Group whose members pass every check.
const SUPERUSERS: &str = "system:masters";
/// Begins the name of a user that is a ServiceAccount.
const ACCOUNT: &str = "system:serviceaccount:";

/// A binding that gives rules to a user.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    binding: &'a Value,
    subject: &'a Value,
    /// Namespace of the binding; empty for a ClusterRoleBinding.
    namespace: &'a str,
}

/// If the user passes every check.
pub(crate) fn is_superuser(user: &UserInfo) -> bool {
    user.groups.iter().any(|group| group == SUPERUSERS)
}

/// If RBAC allows the user what the attributes say. An error is the whole 403 with the message of Kubernetes.
pub(crate) fn authorize(objects: &dyn Objects, user: &UserInfo, wants: &Attributes<'_>) -> Result<(), StatusError> {
    decide(objects, user, wants)
        .map(drop)
        .map_err(|reason| forbidden(user, wants, &reason))
}

/// If RBAC allows the user what the attributes say.
pub(crate) fn may(objects: &dyn Objects, user: &UserInfo, wants: &Attributes<'_>) -> bool {
    decide(objects, user, wants).is_ok()
}

/// Why RBAC allows the user what the attributes say, or what kept it from doing so. Either may be empty.
pub(super) fn decide(objects: &dyn Objects, user: &UserInfo, wants: &Attributes<'_>) -> Result<String, String> {
    if is_superuser(user) {
        return Ok(String::new());
    }
    let mut reason = None;
    let errors = visit(objects, user, wants.namespace, &mut |source, rule| {
        let allows = rule_allows(rule, wants);
        if allows {
            reason = Some(format!("RBAC: allowed by {source}"));
        }
        !allows
    });
    match (reason, errors.as_slice()) {
        (Some(reason), _) => Ok(reason),
        (None, []) => Err(String::new()),
        (None, [one]) => Err(format!("RBAC: {one}")),
        (None, many) => Err(format!("RBAC: [{}]", many.join(", "))),
    }
}

/// All rules that hold for the user in a namespace, or in none; and which roles of its bindings do not exist.
pub(crate) fn rules_of<'a>(
    objects: &'a dyn Objects,
    user: &UserInfo,
    namespace: &str,
) -> (Vec<&'a Value>, Vec<String>) {
    let mut rules = Vec::new();
    let errors = visit(objects, user, namespace, &mut |_, rule| {
        rules.push(rule);
        true
    });
    (rules, errors)
}

/// Visits the rules for a user until the visitor has enough; the errors say which roles do not exist.
fn visit<'a>(
    objects: &'a dyn Objects,
    user: &UserInfo,
    namespace: &str,
    visitor: &mut dyn FnMut(Source<'a>, &'a Value) -> bool,
) -> Vec<String> {
    let mut errors = Vec::new();
    let cluster = objects.objects_of(RBAC, "clusterrolebindings", None);
    let local = if namespace.is_empty() {
        None
    } else {
        Some(objects.objects_of(RBAC, "rolebindings", Some(namespace)))
    };
    let cluster = cluster.map(|binding| (binding, false));
    let local = local.into_iter().flatten().map(|binding| (binding, true));
    for (binding, is_local) in cluster.chain(local) {
        let here = if is_local { namespace } else { "" };
        let subjects = list(binding, "subjects");
        let Some(subject) = subjects.iter().find(|subject| is_of(user, subject, here)) else {
            continue;
        };
        let source = Source {
            binding,
            subject,
            namespace: if is_local {
                text(&binding["metadata"], "namespace")
            } else {
                ""
            },
        };
        match role(objects, &binding["roleRef"], here) {
            Ok(role) => {
                for rule in list(role, "rules") {
                    if !visitor(source, rule) {
                        return errors;
                    }
                }
            }
            Err(error) if errors.contains(&error) => {}
            Err(error) => errors.push(error),
        }
    }
    errors
}

/// The rules of a role, by the reference in a binding of a namespace, or of none. An error is the whole 404.
pub(crate) fn rules_of_role<'a>(
    objects: &'a dyn Objects,
    reference: &Value,
    namespace: &str,
) -> Result<&'a [Value], StatusError> {
    let found = role(objects, reference, namespace).map(|role| list(role, "rules"));
    found.map_err(|_| {
        StatusError::not_found(crate::status::About {
            group: RBAC,
            resource: if text(reference, "kind") == "Role" {
                "roles"
            } else {
                "clusterroles"
            },
            name: text(reference, "name"),
        })
    })
}

fn role<'a>(objects: &'a dyn Objects, reference: &Value, namespace: &str) -> Result<&'a Value, String> {
    let (kind, name) = (text(reference, "kind"), text(reference, "name"));
    let (role, word) = match kind {
        "Role" => (objects.object(RBAC, "roles", namespace, name), "role"),
        "ClusterRole" => (objects.object(RBAC, "clusterroles", "", name), "clusterrole"),
        _ => return Err(format!("unsupported role reference kind: {kind:?}")),
    };
    let role = role.map(|role| &**role);
    role.ok_or_else(|| format!("{word}.{RBAC} {name:?} not found"))
}

/// If a subject of a binding in a namespace, or in none, is the user.
fn is_of(user: &UserInfo, subject: &Value, namespace: &str) -> bool {
    let name = text(subject, "name");
    match text(subject, "kind") {
        "User" => user.name == name,
        "Group" => user.groups.iter().any(|group| group == name),
        "ServiceAccount" => {
            let namespace = match text(subject, "namespace") {
                "" => namespace,
                own => own,
            };
            let rest = user
                .name
                .strip_prefix(ACCOUNT)
                .and_then(|rest| rest.strip_prefix(namespace));
            !namespace.is_empty() && rest.and_then(|rest| rest.strip_prefix(':')) == Some(name)
        }
        _ => false,
    }
}

/// If a rule allows what the attributes say.
pub(crate) fn rule_allows(rule: &Value, wants: &Attributes<'_>) -> bool {
    if !has(rule, "verbs", |verb| verb == "*" || verb == wants.verb) {
        return false;
    }
    if wants.resource.is_empty() {
        return has(rule, "nonResourceURLs", |url| {
            url == "*" || url == wants.path || (url.ends_with('*') && wants.path.starts_with(url.trim_end_matches('*')))
        });
    }
    let sub = wants.subresource;
    has(rule, "apiGroups", |group| group == "*" || group == wants.group)
        && has(rule, "resources", |resource| {
            let named = resource.strip_prefix(wants.resource);
            resource == "*"
                || (sub.is_empty() && resource == wants.resource)
                || (!sub.is_empty()
                    && (resource.strip_prefix("*/") == Some(sub)
                        || named.and_then(|rest| rest.strip_prefix('/')) == Some(sub)))
        })
        && (list(rule, "resourceNames").is_empty() || has(rule, "resourceNames", |name| name == wants.name))
}

fn has(rule: &Value, field: &str, is_it: impl Fn(&str) -> bool) -> bool {
    list(rule, field).iter().filter_map(Value::as_str).any(is_it)
}

fn forbidden(user: &UserInfo, wants: &Attributes<'_>, reason: &str) -> StatusError {
    let (name, verb) = (&user.name, wants.verb);
    let mut cannot = if wants.resource.is_empty() {
        format!("User {name:?} cannot {verb} path {:?}", wants.path)
    } else {
        let slash = if wants.subresource.is_empty() { "" } else { "/" };
        let place = match wants.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        format!(
            "User {name:?} cannot {verb} resource \"{}{slash}{}\" in API group {:?} {place}",
            wants.resource, wants.subresource, wants.group
        )
    };
    cannot = cannot.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if !reason.is_empty() {
        cannot = format!("{cannot}: {reason}");
    }
    if wants.resource.is_empty() {
        return StatusError {
            details: json!({}),
            ..StatusError::plain(403, "Forbidden", format!("forbidden: {cannot}"))
        };
    }
    let about = crate::status::About {
        group: wants.group,
        resource: wants.resource,
        name: wants.name,
    };
    StatusError::forbidden(about, &cannot)
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binding = text(&self.binding["metadata"], "name");
        let (kind, name) = match self.namespace {
            "" => ("ClusterRoleBinding", binding.to_owned()),
            namespace => ("RoleBinding", format!("{binding}/{namespace}")),
        };
        let role = &self.binding["roleRef"];
        let (role_kind, role_name) = (text(role, "kind"), text(role, "name"));
        let (subject_kind, subject_name) = (text(self.subject, "kind"), text(self.subject, "name"));
        write!(f, "{kind} {name:?} of {role_kind} {role_name:?} to {subject_kind} ")?;
        match (subject_kind, text(self.subject, "namespace")) {
            ("ServiceAccount", "") => write!(f, "\"{subject_name}/{}\"", self.namespace),
            ("ServiceAccount", namespace) => write!(f, "\"{subject_name}/{namespace}\""),
            _ => write!(f, "{subject_name:?}"),
        }
    }
}
