//! Rights, as an admin writes them.

use bindery_api::names;

/// A rule of a role, in one line of YAML.
pub fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> String {
    format!(
        "{{apiGroups: [\"{group}\"], resources: [{}], verbs: [{}]}}",
        resources.join(", "),
        verbs.join(", ")
    )
}

/// The ClusterRole for rights that a binding needs: its own, or the one of all bundles, for a binding of a bundle has none.
pub fn role(binding: &str, is_bundled: bool) -> String {
    if is_bundled {
        names::KONNECTOR_BUNDLES_ROLE.to_owned()
    } else {
        names::konnector_cluster_role(binding)
    }
}

/// What the konnector needs on a bound resource of the consumer, and in which role.
pub fn bound_resource(role: &str, group: &str, plural: &str) -> String {
    let status = format!("{plural}/status");
    format!(
        "the konnector needs these rules in ClusterRole {role}: {}, {}",
        rule(
            group,
            &[plural],
            &["get", "list", "watch", "create", "update", "patch", "delete"]
        ),
        rule(group, &[&status], &["get", "update", "patch"]),
    )
}

/// What the konnector needs on a claimed resource of the consumer, and in which role.
pub fn claimed_resource(role: &str, group: &str, plural: &str) -> String {
    format!(
        "the konnector needs this rule in ClusterRole {role}: {}",
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
        let text = bound_resource("kube-bind-konnector-west", "wildwest.dev", "cowboys");
        assert!(
            text.contains("kube-bind-konnector-west") && text.contains("cowboys/status"),
            "{text}"
        );
        assert_eq!(
            claimed_resource(&role("west", false), "", "secrets"),
            "the konnector needs this rule in ClusterRole kube-bind-konnector-west: {apiGroups: [\"\"], resources: \
             [secrets], verbs: [get, list, watch, create, update, patch, delete]}"
        );
        assert_eq!(role("west", true), "kube-bind-konnector-bundles");
    }
}
