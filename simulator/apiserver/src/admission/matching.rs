//! Which requests a policy, or a binding of it, is about.

use serde_json::Value;

use super::AdmissionRequest;
use crate::{json::list, selector::selects};

/// If `matchConstraints` or `matchResources` match the request. `namespace` is the Namespace of the object, if it is in one.
pub(super) fn matches(constraints: &Value, request: &AdmissionRequest<'_>, namespace: Option<&Value>) -> bool {
    let rules = list(constraints, "resourceRules");
    let is_exact = constraints["matchPolicy"] == "Exact";
    let any = |rules: &[Value]| rules.iter().any(|rule| rule_matches(rule, request, is_exact));
    namespace_matches(&constraints["namespaceSelector"], request, namespace)
        && objects_match(&constraints["objectSelector"], request)
        && !any(list(constraints, "excludeResourceRules"))
        && (rules.is_empty() || any(rules))
}

fn rule_matches(rule: &Value, request: &AdmissionRequest<'_>, is_exact: bool) -> bool {
    let has = |field: &str, value: &str| list(rule, field).iter().any(|it| it == "*" || it == value);
    let kind = request.kind;
    let is_cluster_scoped = request.namespace.is_empty() || (kind.group.is_empty() && request.resource == "namespaces");
    let scope = match rule["scope"].as_str() {
        Some("Namespaced") => !is_cluster_scoped,
        Some("Cluster") => is_cluster_scoped,
        _ => true,
    };
    let names = list(rule, "resourceNames");
    scope
        && has("operations", request.operation)
        && has("apiGroups", &kind.group)
        && (!is_exact || has("apiVersions", &kind.version))
        && list(rule, "resources")
            .iter()
            .filter_map(Value::as_str)
            .any(|resource| {
                let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
                (resource == "*" || resource == request.resource) && (sub == "*" || sub == request.subresource)
            })
        && (names.is_empty() || names.iter().any(|name| name == request.name))
}

fn namespace_matches(selector: &Value, request: &AdmissionRequest<'_>, namespace: Option<&Value>) -> bool {
    if selects_all(selector) {
        return true;
    }
    if request.kind.group.is_empty() && request.resource == "namespaces" {
        let object = request.object.or(request.old_object);
        return object.is_none_or(|object| selects(selector, object));
    }
    namespace.is_none_or(|namespace| selects(selector, namespace))
}

fn objects_match(selector: &Value, request: &AdmissionRequest<'_>) -> bool {
    let mut objects = [request.object, request.old_object].into_iter().flatten();
    selects_all(selector) || objects.any(|object| selects(selector, object))
}

fn selects_all(selector: &Value) -> bool {
    let labels = selector["matchLabels"].as_object();
    labels.is_none_or(serde_json::Map::is_empty) && list(selector, "matchExpressions").is_empty()
}
