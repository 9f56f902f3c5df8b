//! What ships in `deploy/`: roles without wildcards, and examples that are what they say.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failure here is a failed test")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use bindery_api::v1alpha2::{APIServiceExportTemplate, Collection};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use serde_json::Value;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// Every object of every YAML file below a folder, with its file.
fn objects(folder: &Path) -> Vec<(PathBuf, Value)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
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
    assert_eq!(
        bound,
        ["bindery-server-contract", "kube-binder"].map(ToOwned::to_owned).into()
    );
    assert!(bound.is_subset(&shipped), "{bound:?} are not all shipped: {shipped:?}");
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
