//! What a bind installs on the consumer, as objects. Pure: nothing is read or written here.

use std::collections::BTreeMap;

use bindery_api::{
    annotations, labels, names,
    v1alpha2::{APIServiceBinding, APIServiceBindingSpec, ClusterSecretKeyRef, GroupResource},
};
use k8s_openapi::{
    ByteString,
    api::{
        core::v1::{Namespace, Secret},
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::Value;

use crate::{errors::Failure, offer};

/// Field manager of what this command applies, and the value of the label that marks it.
pub(crate) const FIELD_MANAGER: &str = "kubectl-bind";
/// The label `kube-bind.io/component` of Secrets with a provider's kubeconfig.
const COMPONENT_KUBECONFIG: &str = "provider-kubeconfig";
/// The label `kube-bind.io/component` of the role of one binding.
const COMPONENT_ROLE: &str = "binding-role";
const RBAC: &str = "rbac.authorization.k8s.io";

/// What is bound, and who is to have rights on it.
#[derive(Debug)]
pub(crate) struct Install<'a> {
    pub(crate) binding: &'a str,
    pub(crate) template: &'a str,
    pub(crate) offer: &'a offer::Offer,
    pub(crate) secret: &'a ClusterSecretKeyRef,
    /// Namespace and name of the konnector's ServiceAccount.
    pub(crate) konnector: (&'a str, &'a str),
}

/// What stands in the Secret.
pub(crate) enum Kubeconfig {
    /// The kubeconfig itself.
    Is(Vec<u8>),
    /// Words in its place, where nobody is to see it or there is none yet.
    Hidden(&'static str),
}

/// Everything that a bind installs.
#[derive(Clone, Debug)]
pub(crate) struct Manifests {
    pub(crate) namespace: Namespace,
    pub(crate) secret: Secret,
    pub(crate) cluster_role: ClusterRole,
    pub(crate) cluster_role_binding: ClusterRoleBinding,
    pub(crate) binding: APIServiceBinding,
}

impl Manifests {
    /// Everything for one binding.
    pub(crate) fn new(install: &Install<'_>, kubeconfig: Kubeconfig) -> Self {
        Self {
            namespace: namespace(&install.secret.namespace),
            secret: secret(install.secret, kubeconfig),
            cluster_role: cluster_role(install),
            cluster_role_binding: cluster_role_binding(install),
            binding: binding(install),
        }
    }

    /// All of them in the order in which they are applied.
    pub(crate) fn documents(&self) -> Result<Vec<Value>, Failure> {
        [
            serde_json::to_value(&self.namespace),
            serde_json::to_value(&self.cluster_role),
            serde_json::to_value(&self.cluster_role_binding),
            serde_json::to_value(&self.secret),
            serde_json::to_value(&self.binding),
        ]
        .into_iter()
        .map(|object| object.map_err(|error| Failure::Format(error.to_string())))
        .collect()
    }
}

/// The Secret that a binding of this name gets, unless it has one already.
pub(crate) fn secret_ref(binding: &str, konnector_namespace: &str) -> ClusterSecretKeyRef {
    ClusterSecretKeyRef {
        name: names::provider_kubeconfig_secret(binding),
        key: names::KUBECONFIG_KEY.to_owned(),
        namespace: konnector_namespace.to_owned(),
    }
}

/// Whether this command made the object.
pub(crate) fn is_ours(meta: &ObjectMeta) -> bool {
    let labels = meta.labels.as_ref();
    labels
        .and_then(|labels| labels.get(labels::MANAGED_BY))
        .map(String::as_str)
        == Some(FIELD_MANAGER)
}

/// A Secret with a kubeconfig.
pub(crate) fn secret(reference: &ClusterSecretKeyRef, kubeconfig: Kubeconfig) -> Secret {
    let key = reference.key.clone();
    let (data, string_data) = match kubeconfig {
        Kubeconfig::Is(document) => (Some(BTreeMap::from([(key, ByteString(document))])), None),
        Kubeconfig::Hidden(words) => (None, Some(BTreeMap::from([(key, words.to_owned())]))),
    };
    Secret {
        metadata: ObjectMeta {
            namespace: Some(reference.namespace.clone()),
            ..marked(&reference.name, Some(COMPONENT_KUBECONFIG))
        },
        data,
        string_data,
        ..Secret::default()
    }
}

fn namespace(name: &str) -> Namespace {
    Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    }
}

fn cluster_role(install: &Install<'_>) -> ClusterRole {
    let name = names::konnector_cluster_role(install.binding);
    let mut rules = resource_rules(&install.offer.resources);
    rules.extend(install.offer.claim_rules.iter().cloned());
    // The konnector deletes its own rights as the last step of an unbind.
    rules.push(PolicyRule {
        resource_names: Some(vec![name.clone()]),
        ..rule(RBAC, ["clusterroles", "clusterrolebindings"], &["delete"])
    });
    ClusterRole {
        metadata: marked(&name, Some(COMPONENT_ROLE)),
        rules: Some(rules),
        aggregation_rule: None,
    }
}

/// Rights on the APIs of an export: two rules per group.
fn resource_rules<'a>(resources: impl IntoIterator<Item = &'a GroupResource>) -> Vec<PolicyRule> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for resource in resources {
        groups.entry(&resource.group).or_default().push(&resource.resource);
    }
    let mut rules = Vec::new();
    for (group, resources) in groups {
        rules.push(rule(group, resources.iter().copied(), &offer::VERBS));
        let status: Vec<_> = resources.iter().map(|resource| format!("{resource}/status")).collect();
        rules.push(rule(
            group,
            status.iter().map(String::as_str),
            &["get", "patch", "update"],
        ));
    }
    rules
}

fn rule<'a>(group: &str, resources: impl IntoIterator<Item = &'a str>, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.into_iter().map(str::to_owned).collect()),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

fn cluster_role_binding(install: &Install<'_>) -> ClusterRoleBinding {
    let name = names::konnector_cluster_role(install.binding);
    let (namespace, service_account) = install.konnector;
    ClusterRoleBinding {
        metadata: marked(&name, Some(COMPONENT_ROLE)),
        role_ref: RoleRef {
            api_group: RBAC.to_owned(),
            kind: "ClusterRole".to_owned(),
            name,
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: service_account.to_owned(),
            namespace: Some(namespace.to_owned()),
            api_group: None,
        }]),
    }
}

fn binding(install: &Install<'_>) -> APIServiceBinding {
    let spec = APIServiceBindingSpec {
        kubeconfig_secret_ref: install.secret.clone(),
        ..APIServiceBindingSpec::default()
    };
    let resources: Vec<_> = install.offer.resources.iter().map(ToString::to_string).collect();
    let mut binding = APIServiceBinding::new(install.binding, spec);
    binding.metadata = ObjectMeta {
        annotations: Some(BTreeMap::from([
            (annotations::TEMPLATE.to_owned(), install.template.to_owned()),
            (annotations::RESOURCES.to_owned(), resources.join(",")),
        ])),
        ..marked(install.binding, None)
    };
    binding
}

fn marked(name: &str, component: Option<&str>) -> ObjectMeta {
    let component = component.map(|component| (labels::COMPONENT.to_owned(), component.to_owned()));
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(
            std::iter::once((labels::MANAGED_BY.to_owned(), FIELD_MANAGER.to_owned()))
                .chain(component)
                .collect(),
        ),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::offer::tests::answer;

    /// What is installed for the binding `west` of template `cowboys`.
    pub(crate) fn manifests(kubeconfig: Kubeconfig) -> Manifests {
        let offer = offer::judge(&answer(), "west").unwrap();
        let install = Install {
            binding: "west",
            template: "cowboys",
            offer: &offer,
            secret: &secret_ref("west", "kube-bind"),
            konnector: ("kube-bind", "konnector"),
        };
        Manifests::new(&install, kubeconfig)
    }

    #[test]
    fn documents_are_whole_and_in_order() {
        let documents = manifests(Kubeconfig::Is(b"x".to_vec())).documents().unwrap();
        let heads: Vec<_> = documents
            .iter()
            .map(|document| {
                format!(
                    "{} {}",
                    document["kind"].as_str().unwrap(),
                    document["metadata"]["name"].as_str().unwrap()
                )
            })
            .collect();
        assert_eq!(
            heads,
            [
                "Namespace kube-bind",
                "ClusterRole kube-bind-konnector-west",
                "ClusterRoleBinding kube-bind-konnector-west",
                "Secret kubeconfig-west",
                "APIServiceBinding west",
            ]
        );
        assert!(documents.iter().all(|document| document["apiVersion"].is_string()));
        assert_eq!(documents[3]["data"], json!({ "kubeconfig": "eA==" }));
        assert_eq!(documents[3]["metadata"]["namespace"], "kube-bind");
        assert_eq!(
            documents[4]["spec"],
            json!({ "kubeconfigSecretRef": { "namespace": "kube-bind", "name": "kubeconfig-west", "key": "kubeconfig" } })
        );
        assert_eq!(
            documents[4]["metadata"]["annotations"]["kube-bind.io/template"],
            "cowboys"
        );
    }

    #[test]
    fn the_role_holds_what_is_bound_and_claimed_and_its_own_end() {
        let role = serde_json::to_value(manifests(Kubeconfig::Hidden("x")).cluster_role).unwrap();
        assert_eq!(
            role["rules"],
            json!([
                { "apiGroups": ["wildwest.dev"], "resources": ["cowboys"],
                  "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"] },
                { "apiGroups": ["wildwest.dev"], "resources": ["cowboys/status"], "verbs": ["get", "patch", "update"] },
                { "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"] },
                { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "clusterrolebindings"],
                  "resourceNames": ["kube-bind-konnector-west"], "verbs": ["delete"] },
            ])
        );
    }

    #[test]
    fn the_role_goes_to_the_konnector_alone() {
        let binding = manifests(Kubeconfig::Hidden("x")).cluster_role_binding;
        let subjects = serde_json::to_value(binding.subjects).unwrap();
        assert_eq!(
            subjects,
            json!([{ "kind": "ServiceAccount", "name": "konnector", "namespace": "kube-bind" }])
        );
        assert_eq!(binding.role_ref.name, "kube-bind-konnector-west");
    }

    #[test]
    fn hidden_is_hidden() {
        let documents = manifests(Kubeconfig::Hidden("<hidden>")).documents().unwrap();
        assert_eq!(documents[3]["stringData"], json!({ "kubeconfig": "<hidden>" }));
        assert!(documents[3].get("data").is_none());
    }

    #[test]
    fn what_it_makes_is_marked_as_its_own() {
        let manifests = manifests(Kubeconfig::Hidden("x"));
        for meta in [
            &manifests.secret.metadata,
            &manifests.cluster_role.metadata,
            &manifests.binding.metadata,
        ] {
            assert!(is_ours(meta));
        }
        assert!(!is_ours(&ObjectMeta::default()));
    }
}
