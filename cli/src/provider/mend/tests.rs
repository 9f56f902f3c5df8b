use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};

use super::*;

/// The two manifests as an admin would apply them.
fn manifests(principal: Option<&str>) -> (ClusterRole, ClusterRoleBinding) {
    let text = bind_role("cowboys", principal, &[]);
    let (_, yaml) = text.split_once("\n\n").unwrap();
    let (role, binding) = yaml.split_once("---\n").unwrap();
    (
        serde_saphyr::from_str(role).unwrap(),
        serde_saphyr::from_str(binding).unwrap(),
    )
}

#[test]
fn the_role_can_be_applied_as_it_is_printed() {
    let (role, binding) = manifests(Some("system:serviceaccount:tenants:west"));
    let granted = &role.rules.unwrap()[0];
    assert_eq!(granted.verbs, ["bind"]);
    assert_eq!(granted.resource_names.as_deref(), Some(&["cowboys".to_owned()][..]));
    assert_eq!(Some(&binding.role_ref.name), role.metadata.name.as_ref());
    let subject = &binding.subjects.unwrap()[0];
    assert_eq!(
        (subject.namespace.as_deref(), subject.name.as_str()),
        (Some("tenants"), "west")
    );
}

#[test]
fn people_are_users() {
    for (principal, name) in [
        (Some("https://id.example.com#42"), "https://id.example.com#42"),
        (None, "YOUR-NAME"),
    ] {
        let (_, binding) = manifests(principal);
        let subject = &binding.subjects.unwrap()[0];
        assert_eq!((subject.kind.as_str(), subject.name.as_str()), ("User", name));
    }
}

#[test]
fn a_group_can_get_the_right_instead() {
    let groups = ["team-a".to_owned(), "team-b".to_owned()];
    let text = bind_role("cowboys", Some("alice"), &groups);
    assert!(
        text.contains("one of your groups (team-a, team-b), write kind Group"),
        "{text}"
    );
}

#[test]
fn every_login_problem_names_the_audience() {
    for reason in [
        ErrorReason::TokenMissing,
        ErrorReason::TokenExpired,
        ErrorReason::TokenAudienceWrong,
    ] {
        let mend = by_reason(reason, None, (None, &[]), "https://bind.example.com").unwrap();
        assert!(mend.contains("--audience https://bind.example.com"), "{mend}");
    }
}
