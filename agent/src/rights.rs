//! Rights, as an admin writes them.

/// A rule of a role, in one line of YAML.
pub fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> String {
    format!(
        "{{apiGroups: [\"{group}\"], resources: [{}], verbs: [{}]}}",
        resources.join(", "),
        verbs.join(", ")
    )
}

/// What the konnector needs on a bound resource of the consumer, and where to put it.
pub fn bound_resource(binding: &str, group: &str, plural: &str) -> String {
    let status = format!("{plural}/status");
    format!(
        "the konnector needs these rules in ClusterRole kube-bind-konnector-{binding}: {}, {}",
        rule(
            group,
            &[plural],
            &["get", "list", "watch", "create", "update", "patch", "delete"]
        ),
        rule(group, &[&status], &["get", "update", "patch"]),
    )
}

/// What the konnector needs on a claimed resource of the consumer, and where to put it.
pub fn claimed_resource(binding: &str, group: &str, plural: &str) -> String {
    format!(
        "the konnector needs this rule in ClusterRole kube-bind-konnector-{binding}: {}",
        rule(
            group,
            &[plural],
            &["get", "list", "watch", "create", "update", "patch", "delete"]
        ),
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
        let text = bound_resource("west", "wildwest.dev", "cowboys");
        assert!(
            text.contains("kube-bind-konnector-west") && text.contains("cowboys/status"),
            "{text}"
        );
        assert_eq!(
            claimed_resource("west", "", "secrets"),
            "the konnector needs this rule in ClusterRole kube-bind-konnector-west: {apiGroups: [\"\"], resources: \
             [secrets], verbs: [get, list, watch, create, update, patch, delete]}"
        );
    }
}
