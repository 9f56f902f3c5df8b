use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};

use super::*;

/// The two manifests as an admin would apply them, and the words of the command.
fn printed(template: &str, principal: Option<&str>) -> (ClusterRole, ClusterRoleBinding, Vec<String>) {
    let caller = Caller {
        principal: principal.map(str::to_owned),
        groups: vec!["ranchers".to_owned()],
    };
    let text = bind_role(template, &caller);
    assert!(text.contains("verb bind"), "{text}");
    assert!(text.ends_with("#   kind: Group\n#   name: \"ranchers\""), "{text}");
    let (told, yaml) = text.split_once("apiVersion:").unwrap();
    let (role, binding) = yaml.split_once("---\n").unwrap();
    let command = told.lines().find(|line| line.starts_with("kubectl")).unwrap();
    (
        serde_saphyr::from_str(&format!("apiVersion:{role}")).unwrap(),
        serde_saphyr::from_str(binding).unwrap(),
        shlex::split(command).unwrap(),
    )
}

#[test]
fn the_role_can_be_applied_as_it_is_printed() {
    let (role, binding, command) = printed("cowboys", Some("system:serviceaccount:tenants:west"));
    let granted = &role.rules.unwrap()[0];
    assert_eq!(granted.verbs, ["bind"]);
    assert_eq!(granted.resource_names.as_deref(), Some(&["cowboys".to_owned()][..]));
    assert_eq!(Some(&binding.role_ref.name), role.metadata.name.as_ref());
    let subject = &binding.subjects.unwrap()[0];
    assert_eq!(
        (subject.namespace.as_deref(), subject.name.as_str()),
        (Some("tenants"), "west")
    );
    let expect = "kubectl bind provider grant cowboys --service-account tenants:west --provider-context CONTEXT";
    assert_eq!(command.join(" "), expect);
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
        // YAML and shell take both as they are: a combining character, and what a shell would run without quotes.
        (Some("jose\u{301} \"$(reboot)\""), "jose\u{301} \"$(reboot)\""),
        (None, "YOUR-NAME"),
    ] {
        let (_, binding, command) = printed("cowboys", principal);
        let subject = &binding.subjects.unwrap()[0];
        assert_eq!((subject.kind.as_str(), subject.name.as_str()), ("User", name));
        assert_eq!(command[5..7], ["--user", name]);
    }
}

#[test]
fn the_right_of_one_principal_does_not_replace_that_of_another() {
    let name = |principal| printed("cowboys", Some(principal)).1.metadata.name.unwrap();
    assert_ne!(name("jane"), name("john"));
    assert_eq!(name("jane"), name("jane"));
    assert!(name("jane").starts_with("bind-cowboys-"), "{}", name("jane"));
}

#[test]
fn the_name_of_a_template_is_a_text_also_if_it_looks_like_a_number() {
    let (role, ..) = printed("17", Some("jane"));
    let names = role.rules.unwrap()[0].resource_names.clone();
    assert_eq!(names.as_deref(), Some(&["17".to_owned()][..]));
}

#[test]
fn every_login_problem_names_the_audience() {
    for reason in [
        ErrorReason::TokenMissing,
        ErrorReason::TokenExpired,
        ErrorReason::TokenAudienceWrong,
        ErrorReason::IssuerUntrusted,
    ] {
        let mend = by_reason(reason, None, &Caller::default(), "https://bind.example.com").unwrap();
        assert!(mend.contains("--audience https://bind.example.com"), "{mend}");
    }
}
