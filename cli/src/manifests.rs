//! What a bind installs on the consumer, as objects. Pure: nothing is read or written here.

mod rules;

use std::collections::BTreeMap;

use bindery_api::{
    annotations, labels, names,
    v1alpha2::{APIServiceBinding, APIServiceBindingSpec, ClusterSecretKeyRef, PermissionClaim},
};
use k8s_openapi::{
    ByteString,
    api::{
        core::v1::{Namespace, Secret},
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Value, json};

pub(crate) use rules::{bundle_rules, claim_rule, holds_bundled, holds_claim, with_claim, without_claim};
use rules::{resource_rules, rule};

use crate::{claims::Decision, errors::Failure, offer};

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
    /// The template, where it is known.
    pub(crate) template: Option<&'a str>,
    pub(crate) offer: &'a offer::Offer,
    /// What became of its claims.
    pub(crate) decision: &'a Decision,
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
    rules.extend(install.decision.granted().map(claim_rule));
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
        rejected_permission_claims: install.decision.rejected.iter().cloned().collect(),
        ..APIServiceBindingSpec::default()
    };
    let resources: Vec<_> = install.offer.resources.iter().map(ToString::to_string).collect();
    // What the user has seen and not rejected; what the provider claims later on needs another yes.
    let is_accepted = |claim: &&PermissionClaim| install.decision.accepted.contains(&claim.group_resource);
    let accepted: Vec<_> = install.offer.claims.iter().filter(is_accepted).collect();
    let mut binding = APIServiceBinding::new(install.binding, spec);
    binding.metadata = ObjectMeta {
        annotations: Some(
            install
                .template
                .map(|template| (annotations::TEMPLATE.to_owned(), template.to_owned()))
                .into_iter()
                .chain([
                    (annotations::RESOURCES.to_owned(), resources.join(",")),
                    (annotations::ACCEPTED_CLAIMS.to_owned(), json!(accepted).to_string()),
                ])
                .collect(),
        ),
        ..marked(install.binding, None)
    };
    binding
}

pub(crate) fn marked(name: &str, component: Option<&str>) -> ObjectMeta {
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
    use bindery_api::{Accepted, v1alpha2::GroupResource};
    use serde_json::json;

    use super::*;
    use crate::{claims::decide, offer::tests::answer, plan::Installed};

    /// What is installed for the binding `west` of template `cowboys`, which claims `secrets`.
    pub(crate) fn manifests(kubeconfig: Kubeconfig) -> Manifests {
        rejecting(&[], kubeconfig)
    }

    /// As [`manifests`], with claims rejected.
    pub(crate) fn rejecting(reject: &[GroupResource], kubeconfig: Kubeconfig) -> Manifests {
        let offer = offer::judge(&answer(), "west").unwrap();
        let decision = decide(&offer.claims, reject, &Installed::default());
        let install = Install {
            binding: "west",
            template: Some("cowboys"),
            offer: &offer,
            decision: &decision,
            secret: &secret_ref("west", "kube-bind"),
            konnector: ("kube-bind", "konnector"),
        };
        Manifests::new(&install, kubeconfig)
    }

    #[test]
    fn the_binding_records_what_was_accepted_when_it_was_bound() {
        let claims = offer::judge(&answer(), "west").unwrap().claims;
        let secrets = GroupResource::new("", "secrets");
        assert_eq!(claims[0].group_resource, secrets);
        for (reject, expect) in [(&[][..], &claims[..]), (&[secrets], &[])] {
            let binding = rejecting(reject, Kubeconfig::Hidden("x")).binding;
            assert_eq!(Accepted::of(&binding), Accepted::Claims(expect.to_vec()));
        }
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
                { "apiGroups": [""], "resources": ["secrets"],
                  "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"] },
                { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "clusterrolebindings"],
                  "resourceNames": ["kube-bind-konnector-west"], "verbs": ["delete"] },
            ])
        );
    }

    #[test]
    fn a_rejected_claim_gives_no_right_and_stands_on_the_binding() {
        let secrets = GroupResource::new("", "secrets");
        let rejecting = rejecting(std::slice::from_ref(&secrets), Kubeconfig::Hidden("x"));
        let rules = rejecting.cluster_role.rules.unwrap();
        assert!(!holds_claim(&rules, &secrets));
        assert!(!serde_json::to_string(&rules).unwrap().contains("secrets"));
        let binding = serde_json::to_value(&rejecting.binding).unwrap();
        assert_eq!(
            binding["spec"]["rejectedPermissionClaims"],
            json!([{ "resource": "secrets" }])
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
