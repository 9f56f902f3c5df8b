//! Texts about missing rights, as rules that an admin can paste into a role.

use bindery_runtime::errors;

const SYNCED_VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

/// Returns a rule of a role, in one line of YAML.
pub fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> String {
    format!(
        "{{apiGroups: [\"{group}\"], resources: [{}], verbs: [{}]}}",
        resources.join(", "),
        verbs.join(", ")
    )
}

/// Returns a sentence about a write that the API server refused, with the rule that is missing where a right is.
pub fn refused(error: &kube::Error, object: &str, group: &str, resource: &str, verb: &str) -> String {
    let message = format!("cannot {verb} {object}: {}", errors::explain(error));
    if errors::is_forbidden(error) {
        let rule = rule(group, &[resource], &[verb]);
        format!("{message}; the konnector needs {rule}")
    } else {
        message
    }
}

/// Returns the rules that the konnector needs on a bound resource of the consumer, and the role they belong in.
pub fn bound_resource(role: &str, group: &str, plural: &str) -> String {
    let status = format!("{plural}/status");
    format!(
        "the konnector needs these rules in ClusterRole {role}: {}, {}",
        rule(group, &[plural], &SYNCED_VERBS),
        rule(group, &[&status], &["get", "update", "patch"]),
    )
}

/// Returns the rule that the konnector needs on a claimed resource of the consumer, and the role it belongs in.
pub fn claimed_resource(role: &str, group: &str, plural: &str) -> String {
    format!(
        "the konnector needs this rule in ClusterRole {role}: {}",
        rule(group, &[plural], &SYNCED_VERBS),
    )
}

/// Returns the rule that the konnector needs on a claimed resource in one namespace of the consumer, and the role it belongs in.
pub fn claimed_resource_in(role: &str, namespace: &str, group: &str, plural: &str) -> String {
    format!(
        "the konnector needs this rule in Role {role} of namespace {namespace}, and a RoleBinding of that name: {}; the next `kubectl bind` \
         writes both for a namespace that the binding lists",
        rule(group, &[plural], &SYNCED_VERBS),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_can_be_pasted() {
        assert_eq!(
            rule("wildwest.dev", &["cowboys", "sheriffs"], &["get", "list"]),
            "{apiGroups: [\"wildwest.dev\"], resources: [cowboys, sheriffs], verbs: [get, list]}"
        );
        let text = bound_resource("kube-bind-konnector-west", "wildwest.dev", "cowboys");
        assert!(
            text.contains("kube-bind-konnector-west") && text.contains("cowboys/status"),
            "{text}"
        );
        let text = claimed_resource_in("kube-bind-konnector-west", "ranch", "", "secrets");
        assert!(
            text.contains("Role kube-bind-konnector-west of namespace ranch"),
            "{text}"
        );
        assert_eq!(
            claimed_resource("kube-bind-konnector-west", "", "secrets"),
            "the konnector needs this rule in ClusterRole kube-bind-konnector-west: {apiGroups: [\"\"], resources: \
             [secrets], verbs: [get, list, watch, create, update, patch, delete]}"
        );
    }
}
