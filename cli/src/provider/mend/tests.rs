use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};

use super::*;

/// The two manifests as an admin would apply them.
fn manifests(principal: Option<&str>) -> (ClusterRole, ClusterRoleBinding) {
    let caller = Caller {
        principal: principal.map(str::to_owned),
        groups: vec!["ranchers".to_owned()],
    };
    let text = bind_role("cowboys", &caller);
    assert!(text.contains("verb bind") && text.contains("\"ranchers\""), "{text}");
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
fn groups_with_commas_stay_whole() {
    let in_ldap = "cn=ranchers,ou=groups,dc=example,dc=com";
    assert_eq!(groups_of(&format!("[{in_ldap:?},\"sheriffs\"]")), [in_ldap, "sheriffs"]);
    assert_eq!(groups_of("ranchers,sheriffs"), ["ranchers", "sheriffs"]);
    assert!(groups_of("[]").is_empty());
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
fn every_login_problem_names_the_audience() {
    for reason in [
        ErrorReason::TokenMissing,
        ErrorReason::TokenExpired,
        ErrorReason::TokenAudienceWrong,
    ] {
        let mend = by_reason(reason, None, &Caller::default(), "https://bind.example.com").unwrap();
        assert!(mend.contains("--audience https://bind.example.com"), "{mend}");
    }
}
