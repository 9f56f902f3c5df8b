//! The rights that shipped roles give to a ServiceAccount, one by one.

use std::collections::{BTreeMap, BTreeSet};

use bindery_api::names;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Deserialize;
use serde_json::Value;

/// One verb on one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Right {
    /// The namespace; none for the whole cluster.
    pub(crate) namespace: Option<String>,
    pub(crate) group: String,
    /// The resource, such as `pods` or `pods/log`.
    pub(crate) resource: String,
    /// The one object; none for all objects.
    pub(crate) name: Option<String>,
    pub(crate) verb: String,
}

/// The parts of a role or of its binding that give rights.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Manifest {
    kind: String,
    metadata: Metadata,
    rules: Vec<PolicyRule>,
    role_ref: Named,
    subjects: Vec<Named>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    name: String,
    namespace: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Named {
    kind: String,
    name: String,
}

/// The rights that manifests give to the ServiceAccount `account`. Rights in the shipped namespace
/// of Bindery are rights in `home`.
pub(crate) fn rights(manifests: &[Value], account: &str, home: &str) -> Vec<Right> {
    let manifests: Vec<Manifest> = manifests
        .iter()
        .filter_map(|manifest| Manifest::deserialize(manifest).ok())
        .collect();
    let is_grant = |manifest: &&Manifest| {
        let mut subjects = manifest.subjects.iter();
        manifest.kind.ends_with("RoleBinding")
            && subjects.any(|subject| subject.kind == "ServiceAccount" && subject.name == account)
    };
    let mut all = Vec::new();
    for grant in manifests.iter().filter(is_grant) {
        let shipped = grant.metadata.namespace.as_deref();
        let role_namespace = shipped.filter(|_| grant.role_ref.kind == "Role");
        let role = manifests.iter().find(|role| {
            role.kind == grant.role_ref.kind
                && role.metadata.name == grant.role_ref.name
                && role.metadata.namespace.as_deref() == role_namespace
        });
        let namespace = shipped.map(|shipped| {
            if shipped == names::KUBE_BIND_NAMESPACE {
                home
            } else {
                shipped
            }
        });
        for rule in role.iter().flat_map(|role| &role.rules) {
            all.extend(expanded(rule, namespace));
        }
    }
    all.sort();
    all.dedup();
    all
}

fn expanded(rule: &PolicyRule, namespace: Option<&str>) -> Vec<Right> {
    let names: Vec<Option<String>> = match rule.resource_names.as_deref() {
        None | Some([]) => vec![None],
        Some(names) => names.iter().cloned().map(Some).collect(),
    };
    let mut all = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for name in &names {
                all.extend(rule.verbs.iter().map(|verb| Right {
                    namespace: namespace.map(str::to_owned),
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                    verb: verb.clone(),
                }));
            }
        }
    }
    all
}

/// A rule to paste into a role, and the namespace of the role, if it has one.
pub(super) fn as_rules(rights: &[Right]) -> Vec<(Option<&str>, PolicyRule)> {
    let mut verbs: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for right in rights {
        let key = (&right.namespace, &right.group, &right.resource, &right.name);
        verbs.entry(key).or_default().push(right.verb.clone());
    }
    let mut rules = Vec::with_capacity(verbs.len());
    for ((namespace, group, resource, name), verbs) in verbs {
        let rule = PolicyRule {
            api_groups: Some(vec![group.clone()]),
            resources: Some(vec![resource.clone()]),
            resource_names: name.clone().map(|name| vec![name]),
            verbs,
            ..PolicyRule::default()
        };
        rules.push((namespace.as_deref(), rule));
    }
    rules
}

/// The rights as part of a sentence: the verbs of each resource, whatever the namespaces and objects.
pub(super) fn in_words(rights: &[Right]) -> String {
    let mut verbs: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for right in rights {
        verbs
            .entry((&right.group, &right.resource))
            .or_default()
            .insert(&right.verb);
    }
    let parts = verbs.into_iter().map(|((group, resource), verbs)| {
        let verbs = Vec::from_iter(verbs).join(",");
        match group.as_str() {
            "" => format!("{verbs} {resource}"),
            group => format!("{verbs} {resource}.{group}"),
        }
    });
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifests() -> Vec<Value> {
        let subject = json!([{"kind": "ServiceAccount", "name": "konnector", "namespace": "kube-bind"}]);
        vec![
            json!({"kind": "ClusterRole", "metadata": {"name": "a"}, "rules": [
                {"apiGroups": ["", "x.io"], "resources": ["b"], "verbs": ["get", "list"]},
                {"apiGroups": ["x.io"], "resources": ["c"], "resourceNames": ["one"], "verbs": ["bind"]},
            ]}),
            json!({"kind": "ClusterRoleBinding", "metadata": {"name": "a"}, "roleRef": {"kind": "ClusterRole", "name": "a"},
                "subjects": subject}),
            json!({"kind": "Role", "metadata": {"name": "a", "namespace": "kube-bind"}, "rules": [
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
            ]}),
            json!({"kind": "RoleBinding", "metadata": {"name": "a", "namespace": "kube-bind"},
                "roleRef": {"kind": "Role", "name": "a"}, "subjects": subject}),
            json!({"kind": "Role", "metadata": {"name": "a", "namespace": "kube-public"}, "rules": [
                {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["cluster-info"], "verbs": ["get"]},
            ]}),
            json!({"kind": "RoleBinding", "metadata": {"name": "a", "namespace": "kube-public"},
                "roleRef": {"kind": "Role", "name": "a"}, "subjects": subject}),
            json!({"kind": "ClusterRole", "metadata": {"name": "of-others"}, "rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]},
            ]}),
            json!({"kind": "Deployment", "metadata": {"name": "konnector"}}),
        ]
    }

    #[test]
    fn what_is_granted_is_listed_one_by_one() {
        let rights = rights(&manifests(), "konnector", "elsewhere");
        let told: Vec<_> = rights
            .iter()
            .map(|right| {
                let Right {
                    namespace,
                    group,
                    resource,
                    name,
                    verb,
                } = right;
                let (namespace, name) = (namespace.as_deref().unwrap_or("*"), name.as_deref().unwrap_or("*"));
                format!("{namespace} {group} {resource} {name} {verb}")
            })
            .collect();
        assert_eq!(
            told,
            [
                "*  b * get",
                "*  b * list",
                "* x.io b * get",
                "* x.io b * list",
                "* x.io c one bind",
                "elsewhere  secrets * get",
                "kube-public  configmaps cluster-info get"
            ]
        );
        assert_eq!(super::rights(&manifests(), "somebody", "elsewhere"), []);
    }

    #[test]
    fn missing_rights_become_rules_to_paste() {
        let rights = rights(&manifests(), "konnector", "kube-bind");
        let rules: Vec<_> = as_rules(&rights)
            .into_iter()
            .map(|(namespace, rule)| (namespace, json!(rule).to_string()))
            .collect();
        assert_eq!(rules.len(), 5);
        assert_eq!(
            rules[0],
            (
                None,
                r#"{"apiGroups":[""],"resources":["b"],"verbs":["get","list"]}"#.to_owned()
            )
        );
        assert_eq!(rules[3].0, Some("kube-bind"));
        assert_eq!(
            in_words(&rights),
            "get,list b, get configmaps, get secrets, get,list b.x.io, bind c.x.io"
        );
    }
}
