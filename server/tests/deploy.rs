//! What ships in `deploy/`: roles without wildcards, and examples that are what they say.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failure here is a failed test")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use bindery_api::{
    annotations,
    claims::CORE_PLURALS,
    labels, names,
    v1alpha2::{APIServiceExportTemplate, Collection, GroupResource},
};
use bindery_server::{
    policy::requests,
    rbac::{self, claims, view},
};
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding},
};
use serde_json::Value;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// Every object of every YAML file below a folder, with its file.
fn objects(folder: &Path) -> Vec<(PathBuf, Value)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // Templates of charts are no YAML. Suite `charts` of `e2e` reads what they render.
        if path.is_dir() && !path.ends_with("charts") {
            found.extend(objects(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = fs::read_to_string(&path).unwrap();
            for document in text.split("\n---\n") {
                let object =
                    serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                found.push((path.clone(), object));
            }
        }
    }
    found
}

fn of_kind<T: serde::de::DeserializeOwned>(folder: &str, kind: &str) -> Vec<T> {
    let objects = objects(&deploy().join(folder)).into_iter();
    objects
        .filter(|(_, object)| object["kind"] == kind)
        .map(|(path, object)| {
            serde_json::from_value(object).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        })
        .collect()
}

fn rules(role: &ClusterRole) -> impl Iterator<Item = &PolicyRule> {
    role.rules.iter().flatten()
}

fn role<'a>(roles: &'a [ClusterRole], name: &str) -> &'a ClusterRole {
    let mut roles = roles.iter();
    roles.find(|role| role.metadata.name.as_deref() == Some(name)).unwrap()
}

#[test]
fn no_role_holds_a_wildcard_or_may_escalate() {
    let mut seen = 0;
    for (path, object) in objects(&deploy()) {
        for rule in object["rules"].as_array().into_iter().flatten() {
            seen += 1;
            let text = rule.to_string();
            assert!(!text.contains('*'), "{}: {text}", path.display());
            for verb in ["escalate", "impersonate"] {
                assert!(!text.contains(verb), "{}: {text}", path.display());
            }
        }
    }
    assert!(seen > 10, "only {seen} rules were read");
}

#[test]
fn the_server_binds_by_name_and_never_templates() {
    let roles: Vec<ClusterRole> = of_kind("server", "ClusterRole");
    let shipped: BTreeSet<_> = roles.iter().filter_map(|role| role.metadata.name.clone()).collect();
    let mut bound = BTreeSet::new();
    for rule in rules(role(&roles, "bindery-server")).filter(|rule| rule.verbs.iter().any(|verb| verb == "bind")) {
        assert_eq!(rule.resources.as_deref(), Some(&["clusterroles".to_owned()][..]));
        bound.extend(rule.resource_names.clone().expect("bind is given by name"));
    }
    let expect = [
        "bindery-server-claims",
        "bindery-server-contract",
        "kube-binder",
        "kube-binder-claims-configmaps",
        "kube-binder-claims-secrets",
        "kube-binder-claims-serviceaccounts",
        view::VIEW_ROLE,
    ];
    assert_eq!(bound, expect.map(ToOwned::to_owned).into());
    // Kubernetes brings this one.
    bound.remove(view::VIEW_ROLE);
    assert!(bound.is_subset(&shipped), "{bound:?} are not all shipped: {shipped:?}");
}

/// In its own namespace the server lists and updates one Secret, by name. Two rules name no Secret: RBAC cannot limit a create to
/// a name, and responses have names that users choose.
#[test]
fn the_server_lists_no_secret_but_its_own() {
    let roles: Vec<Role> = of_kind("server", "Role");
    let cluster_roles: Vec<ClusterRole> = of_kind("server", "ClusterRole");
    let bindings: Vec<RoleBinding> = of_kind("server", "RoleBinding");
    // The rules that any RoleBinding of a namespace gives.
    let bound = |namespace: &str| {
        let here = |binding: &&RoleBinding| binding.metadata.namespace.as_deref() == Some(namespace);
        let mut granted = Vec::new();
        for binding in bindings.iter().filter(here) {
            let name = Some(&binding.role_ref.name);
            let found = if binding.role_ref.kind == "Role" {
                let mut roles = roles.iter();
                let role = roles.find(|role| {
                    role.metadata.name.as_ref() == name && role.metadata.namespace.as_deref() == Some(namespace)
                });
                role.unwrap().rules.as_ref()
            } else {
                let mut roles = cluster_roles.iter();
                roles
                    .find(|role| role.metadata.name.as_ref() == name)
                    .unwrap()
                    .rules
                    .as_ref()
            };
            granted.extend(found.into_iter().flatten());
        }
        granted
    };
    let about = |namespace: &str, resource: &str| {
        let mut found: Vec<_> = bound(namespace)
            .into_iter()
            .filter(|rule| rule.resources.iter().flatten().any(|found| found == resource))
            .map(|rule| (rule.resource_names.clone().unwrap_or_default(), rule.verbs.join(" ")))
            .collect();
        found.sort();
        found
    };
    let any = |verbs: &str| (Vec::new(), verbs.to_owned());
    let named = |name: &str, verbs: &str| (vec![name.to_owned()], verbs.to_owned());
    assert_eq!(
        about(names::KUBE_BIND_NAMESPACE, "secrets"),
        [
            any("create"),
            any("create get patch"),
            named("bindery-server-tls", "get list update watch")
        ]
    );
    assert_eq!(about("kube-public", "configmaps"), [named("cluster-info", "get")]);
}

#[test]
fn a_consumer_and_the_server_itself_read_no_secret() {
    let roles: Vec<ClusterRole> = of_kind("server", "ClusterRole");
    for name in ["kube-binder", "bindery-server"] {
        let role = role(&roles, name);
        assert!(rules(role).count() > 0);
        for rule in rules(role) {
            let resources = rule.resources.iter().flatten();
            assert!(
                resources.into_iter().all(|resource| !resource.starts_with("secrets")),
                "{name}"
            );
        }
    }
}

/// The server proves the very policy that ships, and a konnector meets it under every name.
#[test]
fn the_policy_is_the_one_that_the_server_proves() {
    let policy = policy(bindery_server::policy::NAME, bindery_server::policy::ANSWER);
    let text = serde_json::to_string(&policy).unwrap();
    for said in [
        annotations::CLUSTER_NAMESPACE,
        names::KUBE_BINDER,
        &format!("check('{}')", bindery_server::rbac::OVERWRITE),
    ] {
        assert!(text.contains(said), "{said}");
    }
    assert!(
        !names::is_label(names::POLICY_PROBE),
        "a name that a namespace could have"
    );
}

/// Requests are held to their authors by the very policy that ships, which knows the server by the name that it has.
#[test]
fn the_policy_on_requests_is_the_one_that_the_server_proves() {
    let policy = policy(requests::NAME, requests::ANSWER);
    let text = serde_json::to_string(&policy).unwrap();
    let account = format!("'system:serviceaccount:{}:bindery-server'", names::KUBE_BIND_NAMESPACE);
    for said in [
        annotations::PRINCIPAL,
        annotations::REQUEST_NAME,
        labels::VIA,
        &format!("':{}'", names::KUBE_BINDER),
        "check('bind')",
        "check('impersonate')",
        &account,
    ] {
        assert!(text.contains(said), "{said}");
    }
    let accounts: Vec<Value> = of_kind("server", "ServiceAccount");
    assert_eq!(accounts.len(), 1);
    assert_eq!(accounts[0]["metadata"]["name"], "bindery-server");
    assert_eq!(accounts[0]["metadata"]["namespace"], names::KUBE_BIND_NAMESPACE);
}

/// kubectl and `kubectl bind deploy` apply files in the order of their names: what limits an account comes before its rights.
#[test]
fn what_limits_an_account_is_applied_first() {
    for folder in ["server", "konnector"] {
        let files = std::fs::read_dir(deploy().join(folder)).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        assert_eq!(files[0].file_name().unwrap(), "account-policy.yaml", "{folder}");
    }
}

/// The policy on the server's account knows the names that the server gives, and those of its own definitions.
#[test]
fn the_policy_on_the_account_knows_what_the_server_makes() {
    let policy = policy(
        bindery_server::policy::SERVER_NAME,
        bindery_server::policy::SERVER_ANSWER,
    );
    let text = serde_json::to_string(&policy).unwrap();
    let account = format!("'system:serviceaccount:{}:bindery-server'", names::KUBE_BIND_NAMESPACE);
    let words = [
        account,
        format!("'{}'", labels::CONTRACT),
        format!("'{}'", labels::EXPORT),
        format!("'{}'", labels::SHARED),
        format!("'{}'", annotations::CLUSTER_NAMESPACE),
        format!("'{}'", annotations::REQUEST),
        format!("startsWith('{}')", names::NAMESPACE_PREFIX),
        format!("'ClusterRole/{}'", rbac::SERVER_CONTRACT_ROLE),
        format!("'ClusterRole/{}'", claims::SERVER_ROLE),
        format!("'ClusterRole/{}'", view::VIEW_ROLE),
        format!("'{}'", view::VIEW_BINDING),
    ];
    let roles = CORE_PLURALS.map(|resource| format!("'ClusterRole/{}'", claims::core_role(resource)));
    let definitions = bindery_api::crds::for_provider();
    let definitions = definitions
        .iter()
        .map(|definition| format!("'{}'", definition.metadata.name.clone().unwrap()));
    for said in words.into_iter().chain(roles).chain(definitions) {
        assert!(text.contains(&said), "{said}");
    }
}

/// The server reads a response by its name alone, and no Secret that it would have to look for.
#[test]
fn responses_are_written_by_name() {
    let roles: Vec<ClusterRole> = of_kind("server", "ClusterRole");
    let role = role(&roles, "bindery-server-responses");
    let given: Vec<_> = rules(role)
        .map(|rule| {
            (
                rule.resources.clone().unwrap_or_default().join(" "),
                rule.verbs.join(" "),
            )
        })
        .collect();
    let expect = [("secrets", "create get patch"), ("events", "create patch")];
    assert_eq!(
        given,
        expect.map(|(resource, verbs)| (resource.to_owned(), verbs.to_owned()))
    );
    let bound: Vec<ClusterRoleBinding> = of_kind("server", "ClusterRoleBinding");
    assert!(bound.len() > 1);
    assert!(
        bound
            .iter()
            .all(|binding| Some(&binding.role_ref.name) != role.metadata.name.as_ref())
    );
}

/// A policy that ships, with a binding of its name that denies, and one answer to a probe.
fn policy(name: &str, answer: &str) -> ValidatingAdmissionPolicy {
    let policies: Vec<ValidatingAdmissionPolicy> = of_kind("server", "ValidatingAdmissionPolicy");
    let bindings: Vec<ValidatingAdmissionPolicyBinding> = of_kind("server", "ValidatingAdmissionPolicyBinding");
    let policy = policies
        .into_iter()
        .find(|policy| policy.metadata.name.as_deref() == Some(name));
    let binding = bindings
        .into_iter()
        .find(|binding| binding.metadata.name.as_deref() == Some(name));
    let (policy, binding) = (policy.unwrap(), binding.unwrap());
    let spec = policy.spec.as_ref().unwrap();
    assert_eq!(spec.failure_policy.as_deref(), Some("Fail"));
    let validations = spec.validations.as_deref().unwrap();
    let probe = names::POLICY_PROBE;
    let answers: Vec<_> = validations
        .iter()
        .filter(|validation| validation.expression.contains(&format!("'{probe}'")))
        .map(|validation| validation.message.as_deref())
        .collect();
    assert_eq!(answers, [Some(answer)]);
    let binding = binding.spec.unwrap();
    assert_eq!(binding.policy_name, policy.metadata.name);
    assert_eq!(binding.validation_actions, Some(vec!["Deny".to_owned()]));
    policy
}

#[test]
fn the_shipped_roles_for_claims_are_those_that_are_bound() {
    let roles: Vec<ClusterRole> = of_kind("server", "ClusterRole");
    let verbs_on = |role: &ClusterRole, resource: &str| {
        rules(role)
            .filter(|rule| rule.resources.iter().flatten().any(|one| one == resource))
            .flat_map(|rule| rule.verbs.clone())
            .collect::<Vec<_>>()
    };
    let server = role(&roles, claims::SERVER_ROLE);
    for resource in CORE_PLURALS {
        let consumers = role(&roles, &claims::core_role(resource));
        let wanted = rbac::rules(&[GroupResource::new("", resource)], &rbac::WRITE_VERBS);
        assert_eq!(consumers.rules, Some(wanted), "{resource}");
        assert_eq!(verbs_on(server, resource), ["list", "watch"], "{resource}");
    }
    assert_eq!(
        rules(server).count(),
        1,
        "the server sees claimed core resources and no more"
    );
}

#[test]
fn the_example_is_whole() {
    let templates: Vec<APIServiceExportTemplate> = of_kind("examples/cowboys", "APIServiceExportTemplate");
    let collections: Vec<Collection> = of_kind("examples/cowboys", "Collection");
    assert_eq!(
        collections[0].spec.templates[0].name,
        templates[0].metadata.name.clone().unwrap()
    );
    let rights: Vec<ClusterRole> = of_kind("examples/cowboys", "ClusterRole");
    let rights = role(&rights, "bindery-server-export-cowboys");
    let wanted: Vec<_> = templates[0]
        .spec
        .resources
        .iter()
        .map(|resource| resource.group_resource.clone())
        .collect();
    assert_eq!(
        rights.rules,
        Some(bindery_server::rbac::rules(&wanted, &bindery_server::rbac::WRITE_VERBS)),
        "the server holds what the template needs, and no more"
    );
}

#[test]
fn every_example_is_offered_and_can_be_bound() {
    let templates: Vec<APIServiceExportTemplate> = of_kind("examples", "APIServiceExportTemplate");
    let names: BTreeSet<_> = templates
        .iter()
        .filter_map(|template| template.metadata.name.clone())
        .collect();
    assert_eq!(names.len(), templates.len(), "templates of one name");
    for collection in of_kind::<Collection>("examples", "Collection") {
        let listed: BTreeSet<_> = collection
            .spec
            .templates
            .iter()
            .map(|template| template.name.clone())
            .collect();
        assert!(listed.is_subset(&names), "{listed:?}");
    }
    let roles: Vec<ClusterRole> = of_kind("examples", "ClusterRole");
    let granted = |verb: &str, resource: &str, name: Option<&String>| {
        roles.iter().flat_map(rules).any(|rule| {
            rule.verbs.iter().any(|held| held == verb)
                && rule.resources.iter().flatten().any(|held| held == resource)
                && name.is_none_or(|name| rule.resource_names.iter().flatten().any(|held| held == name))
        })
    };
    for template in &templates {
        let name = template.metadata.name.as_ref();
        assert!(
            granted("bind", "apiserviceexporttemplates", name),
            "nobody may bind {name:?}"
        );
        for resource in &template.spec.resources {
            for verb in bindery_server::rbac::WRITE_VERBS {
                assert!(
                    granted(verb, &resource.group_resource.resource, None),
                    "{name:?} {verb}"
                );
            }
        }
        for reference in template
            .spec
            .permission_claims
            .iter()
            .flat_map(|claim| &claim.selector.references)
        {
            let mut resources = template.spec.resources.iter();
            assert!(
                resources.any(|resource| resource.group_resource == reference.group_resource),
                "{name:?} refers from what it does not offer"
            );
        }
    }
    assert!(
        granted("overwrite", "sheriffs", None),
        "LastWins takes the verb overwrite"
    );
}
