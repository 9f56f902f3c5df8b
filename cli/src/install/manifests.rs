//! The objects that a bind installs on the consumer cluster. Nothing here reads or writes.

use std::collections::BTreeMap;

use bindery_api::{
    annotations,
    consumer_rules::{consumer_rules, rule},
    labels, names,
    v1alpha2::{
        APIServiceBinding, APIServiceBindingBundle, APIServiceBindingBundleSpec, APIServiceBindingSpec,
        ClusterSecretKeyRef, PermissionClaim,
    },
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

use super::{
    owner::{CredentialOwner, either},
    write::manifest,
};

use crate::{claims::Decision, errors::Failure, provider::offer};

/// Field manager of what this command applies, and the value of the label that marks it.
pub(crate) const FIELD_MANAGER: &str = "kubectl-bind";
/// The label `kube-bind.io/component` of Secrets with a provider's kubeconfig.
const COMPONENT_KUBECONFIG: &str = "provider-kubeconfig";
/// The label `kube-bind.io/component` of the role of one binding.
const COMPONENT_ROLE: &str = "binding-role";
const RBAC: &str = "rbac.authorization.k8s.io";

/// A binding to install, and the ServiceAccount that gets rights on what it binds.
#[derive(Debug)]
pub(crate) struct Install<'a> {
    pub(crate) binding: &'a str,
    /// The template, where it is known.
    pub(crate) template: Option<&'a str>,
    pub(crate) offer: &'a offer::Offer,
    /// Which claims of the offer are accepted.
    pub(crate) decision: &'a Decision,
    pub(crate) secret: &'a ClusterSecretKeyRef,
    /// Namespace and name of the konnector's ServiceAccount.
    pub(crate) konnector: (&'a str, &'a str),
    /// Whether the namespace of the Secret is to be made.
    pub(crate) with_namespace: bool,
}

/// The content of a Secret with a kubeconfig.
pub(crate) enum Kubeconfig {
    /// The kubeconfig itself.
    Document(Vec<u8>),
    /// A text in its place, where it is not to be shown or does not exist yet.
    Hidden(&'static str),
}

/// All objects that a bind installs: for a binding its Secret and its role, for a bundle its Secret alone.
#[derive(Clone, Debug)]
pub(crate) struct Manifests {
    pub(crate) namespace: Option<Namespace>,
    /// The konnector's rights on what a binding binds. Bundles share a role that comes with the konnector.
    pub(crate) rights: Option<Rights>,
    pub(crate) secret: Secret,
    pub(crate) owner: CredentialOwner,
}

/// The role of one binding, and its grant to the konnector.
#[derive(Clone, Debug)]
pub(crate) struct Rights {
    pub(crate) cluster_role: ClusterRole,
    pub(crate) cluster_role_binding: ClusterRoleBinding,
}

impl Manifests {
    /// The objects of one binding.
    pub(crate) fn of_binding(install: &Install<'_>, kubeconfig: Kubeconfig) -> Self {
        Self {
            namespace: install.with_namespace.then(|| namespace(&install.secret.namespace)),
            rights: Some(Rights {
                cluster_role: cluster_role(install),
                cluster_role_binding: cluster_role_binding(install),
            }),
            secret: secret(install.secret, kubeconfig),
            owner: binding(install).into(),
        }
    }

    /// The objects of a bundle that accepts these claims. The claims on other resources that `seen` accepts stay accepted.
    pub(crate) fn of_bundle(
        name: &str,
        accepted: &[PermissionClaim],
        kubeconfig: Kubeconfig,
        seen: Option<&APIServiceBindingBundle>,
    ) -> Self {
        let reference = match seen {
            Some(bundle) => bundle.spec.kubeconfig_secret_ref.clone(),
            None => bundle_secret_ref(name),
        };
        let is_kept = |claim: &&PermissionClaim| accepted.iter().all(|new| new.group_resource != claim.group_resource);
        let before = seen.iter().flat_map(|bundle| &bundle.spec.accepted_claims);
        let spec = APIServiceBindingBundleSpec {
            accepted_claims: before.filter(is_kept).chain(accepted).cloned().collect(),
            kubeconfig_secret_ref: reference.clone(),
            ..APIServiceBindingBundleSpec::default()
        };
        let mut bundle = APIServiceBindingBundle::new(name, spec);
        bundle.metadata = managed(name, None);
        Self {
            namespace: None,
            rights: None,
            secret: secret(&reference, kubeconfig),
            owner: bundle.into(),
        }
    }

    /// All objects as JSON, in the order in which they are applied.
    pub(crate) fn documents(&self) -> Result<Vec<Value>, Failure> {
        let mut documents = Vec::new();
        documents.extend(self.namespace.as_ref().map(manifest));
        if let Some(rights) = &self.rights {
            documents.extend([manifest(&rights.cluster_role), manifest(&rights.cluster_role_binding)]);
        }
        documents.extend([manifest(&self.secret), either!(&self.owner, object => manifest(object))]);
        documents.into_iter().collect()
    }
}

/// The Secret of a new bundle of this name.
pub(crate) fn bundle_secret_ref(bundle: &str) -> ClusterSecretKeyRef {
    secret_ref(&format!("bundle-{bundle}"), names::KUBE_BIND_NAMESPACE)
}

/// The Secret of a new binding of this name.
pub(crate) fn secret_ref(binding: &str, konnector_namespace: &str) -> ClusterSecretKeyRef {
    ClusterSecretKeyRef {
        name: names::provider_kubeconfig_secret(binding),
        key: names::KUBECONFIG_KEY.to_owned(),
        namespace: konnector_namespace.to_owned(),
    }
}

/// Whether the label of the object says that this command made it.
pub(crate) fn is_ours(meta: &ObjectMeta) -> bool {
    let labels = meta.labels.as_ref();
    labels
        .and_then(|labels| labels.get(labels::MANAGED_BY))
        .map(String::as_str)
        == Some(FIELD_MANAGER)
}

/// The Secret that holds a provider's kubeconfig.
pub(crate) fn secret(reference: &ClusterSecretKeyRef, kubeconfig: Kubeconfig) -> Secret {
    let key = reference.key.clone();
    let (data, string_data) = match kubeconfig {
        Kubeconfig::Document(document) => (Some(BTreeMap::from([(key, ByteString(document))])), None),
        Kubeconfig::Hidden(words) => (None, Some(BTreeMap::from([(key, words.to_owned())]))),
    };
    Secret {
        metadata: ObjectMeta {
            namespace: Some(reference.namespace.clone()),
            ..managed(&reference.name, Some(COMPONENT_KUBECONFIG))
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
    let mut rules = consumer_rules(&install.offer.resources, install.decision.granted());
    // The konnector deletes its own rights as the last step of an unbind.
    rules.push(PolicyRule {
        resource_names: Some(vec![name.clone()]),
        ..rule(RBAC, ["clusterroles", "clusterrolebindings"], &["delete"])
    });
    ClusterRole {
        metadata: managed(&name, Some(COMPONENT_ROLE)),
        rules: Some(rules),
        aggregation_rule: None,
    }
}

fn cluster_role_binding(install: &Install<'_>) -> ClusterRoleBinding {
    let name = names::konnector_cluster_role(install.binding);
    let (namespace, service_account) = install.konnector;
    ClusterRoleBinding {
        metadata: managed(&name, Some(COMPONENT_ROLE)),
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
        ..managed(install.binding, None)
    };
    binding
}

/// Metadata with the label that says that this command manages the object.
pub(crate) fn managed(name: &str, component: Option<&str>) -> ObjectMeta {
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
pub(crate) mod tests;
