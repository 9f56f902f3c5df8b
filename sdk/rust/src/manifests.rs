//! The objects that a consumer cluster needs for a bind, made of the provider's response alone.
//!
//! [`Bound::manifests`](crate::Bound::manifests) judges the response and makes the objects. For a binding these are its ClusterRole,
//! ClusterRoleBinding, Secret and APIServiceBinding, with a Role and RoleBinding for each namespace that its claims are limited to. For a
//! bundle they are its Secret and APIServiceBindingBundle. Nothing here reads or writes.
//!
//! ```no_run
//! use bindery_sdk::{Bound, manifests::ManifestOptions};
//!
//! # fn apply(_: &str) {}
//! # fn run(bound: &Bound) -> Result<(), Box<dyn std::error::Error>> {
//! for document in bound.manifests(&ManifestOptions::default())?.canonical()?.lines() {
//!     apply(document);
//! }
//! # Ok(())
//! # }
//! ```

mod canonical;
pub mod offer;
mod options;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bindery_api::consumer_rules::{consumer_rules, rule};
use bindery_api::v1alpha2::{
    APIServiceBinding, APIServiceBindingBundle, APIServiceBindingBundleSpec, APIServiceBindingSpec,
    ClusterSecretKeyRef, GroupResource, PermissionClaim,
};
use bindery_api::{annotations, labels, names};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::Value;

use offer::{Offer, Refusal};
pub use options::ManifestOptions;

/// The value of the label `app.kubernetes.io/managed-by` on all objects but the Namespace. The command line takes objects with
/// this label for its own.
pub const MANAGER: &str = "kubectl-bind";
/// The label `kube-bind.io/component` of Secrets with a provider's kubeconfig.
const COMPONENT_KUBECONFIG: &str = "provider-kubeconfig";
/// The label `kube-bind.io/component` of the role of one binding.
const COMPONENT_ROLE: &str = "binding-role";
const RBAC: &str = "rbac.authorization.k8s.io";

/// A binding to install, and the ServiceAccount that gets rights on what it binds.
#[derive(Debug)]
pub struct BindingInstall<'a> {
    /// Name of the binding.
    pub binding: &'a str,
    /// The template, where it is known.
    pub template: Option<&'a str>,
    /// What the provider wants installed.
    pub offer: &'a Offer,
    /// Which claims of the offer are accepted.
    pub decision: &'a Decision,
    /// The Secret that gets the kubeconfig.
    pub secret: &'a ClusterSecretKeyRef,
    /// Namespace and name of the konnector's ServiceAccount.
    pub konnector: (&'a str, &'a str),
    /// Whether the namespace of the Secret is one of the objects.
    pub with_namespace: bool,
    /// The consumer namespaces that the claims concern, for the binding; all if there are none.
    pub claim_namespaces: &'a [String],
    /// Where the konnector gets its rights on claimed resources.
    pub claim_rights: &'a ClaimRights,
}

/// Where the konnector gets its rights on claimed resources. The default is the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRights {
    /// Whether the ClusterRole gives them, on the whole cluster.
    pub in_cluster: bool,
    /// The namespaces that get a Role with them. They must exist.
    pub namespaces: BTreeSet<String>,
}

/// Which claims of an offer a bind accepts and rejects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The resources that the binding rejects.
    pub rejected: BTreeSet<GroupResource>,
    /// The claimed resources that are accepted.
    pub accepted: BTreeSet<GroupResource>,
    /// Resources that are not accepted any more. The konnector keeps its right on them until it has withdrawn the copies.
    pub withdrawn: BTreeSet<GroupResource>,
}

/// The content of a Secret with a kubeconfig.
pub enum Kubeconfig {
    /// The kubeconfig, as the provider gave it.
    Document(Vec<u8>),
    /// A text in place of a kubeconfig that is not to be shown, or that does not exist yet.
    Hidden(&'static str),
}

/// All objects of one bind. `Debug` names them and shows no kubeconfig; [`Manifests::documents`], [`Manifests::canonical`] and
/// [`Manifests::secret`] give it.
#[derive(Clone)]
pub struct Manifests {
    /// The namespace of the Secret, if it is asked for.
    pub namespace: Option<Namespace>,
    /// The konnector's rights on what a binding binds. Bundles share a role that comes with the konnector.
    pub rights: Option<KonnectorRights>,
    secret: Secret,
    /// The object that the konnector acts on, to be applied last.
    pub owner: ManifestOwner,
}

/// The roles of one binding, and their grants to the konnector.
#[derive(Clone, Debug)]
pub struct KonnectorRights {
    /// The ClusterRole with the rights on what is bound, and on what is claimed unless the claims concern listed namespaces only.
    pub cluster_role: ClusterRole,
    /// The grant of the role to the konnector's ServiceAccount.
    pub cluster_role_binding: ClusterRoleBinding,
    /// The rights on what is claimed in single namespaces.
    pub in_namespaces: Vec<NamespaceRights>,
}

/// The konnector's rights on what is claimed in one namespace.
#[derive(Clone, Debug)]
pub struct NamespaceRights {
    /// The Role with the rights.
    pub role: Role,
    /// The grant of the role to the konnector's ServiceAccount.
    pub role_binding: RoleBinding,
}

/// The object that names the Secret with a provider's kubeconfig.
#[derive(Clone, Debug)]
pub enum ManifestOwner {
    /// Binds one export.
    Binding(Box<APIServiceBinding>),
    /// Binds all exports that its kubeconfig reaches.
    Bundle(Box<APIServiceBindingBundle>),
}

impl Manifests {
    /// Judges a provider's response, and makes the objects of the binding or, if the options name one, of the bundle. Of a bind by
    /// this SDK, [`Bound::manifests`](crate::Bound::manifests) also refuses a response for another binding.
    pub fn of_response(
        response: &bindery_proto::v1alpha2::BindingResourceResponse,
        options: &ManifestOptions,
    ) -> Result<Self, Refusal> {
        options::render(response, options)
    }

    /// Makes the objects of one binding.
    pub fn of_binding(install: &BindingInstall<'_>, kubeconfig: Kubeconfig) -> Self {
        Self {
            namespace: install.with_namespace.then(|| namespace(&install.secret.namespace)),
            rights: Some(KonnectorRights {
                cluster_role: cluster_role(install),
                cluster_role_binding: cluster_role_binding(install),
                in_namespaces: namespace_rights(install),
            }),
            secret: secret(install.secret, kubeconfig),
            owner: ManifestOwner::Binding(Box::new(binding(install))),
        }
    }

    /// Makes the objects of a bundle that accepts these claims. The claims on other resources that the installed bundle `seen`
    /// accepts stay accepted.
    pub fn of_bundle(
        name: &str,
        accepted: &[PermissionClaim],
        kubeconfig: Kubeconfig,
        seen: Option<&APIServiceBindingBundle>,
    ) -> Self {
        let reference = match seen {
            Some(bundle) => bundle.spec.kubeconfig_secret_ref.clone(),
            None => bundle_secret_ref(name, names::KUBE_BIND_NAMESPACE),
        };
        let is_kept = |claim: &&PermissionClaim| accepted.iter().all(|new| new.group_resource != claim.group_resource);
        let before = seen.iter().flat_map(|bundle| &bundle.spec.accepted_claims);
        let claims = before.filter(is_kept).chain(accepted).cloned().collect();
        Self::of_new_bundle(name, claims, reference, kubeconfig)
    }

    fn of_new_bundle(
        name: &str,
        accepted_claims: Vec<PermissionClaim>,
        reference: ClusterSecretKeyRef,
        kubeconfig: Kubeconfig,
    ) -> Self {
        let secret = secret(&reference, kubeconfig);
        let spec = APIServiceBindingBundleSpec {
            accepted_claims,
            kubeconfig_secret_ref: reference,
            ..APIServiceBindingBundleSpec::default()
        };
        let mut bundle = APIServiceBindingBundle::new(name, spec);
        bundle.metadata = managed(name, None);
        Self {
            namespace: None,
            rights: None,
            secret,
            owner: ManifestOwner::Bundle(Box::new(bundle)),
        }
    }

    /// Returns the Secret with the provider's kubeconfig. Its `Debug` shows the kubeconfig.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Returns all objects as JSON, the Secret with its kubeconfig, in the order in which they are applied.
    pub fn documents(&self) -> serde_json::Result<Vec<Value>> {
        let mut documents = Vec::new();
        documents.extend(self.namespace.as_ref().map(manifest));
        if let Some(rights) = &self.rights {
            documents.extend([manifest(&rights.cluster_role), manifest(&rights.cluster_role_binding)]);
            let of = |rights: &NamespaceRights| [manifest(&rights.role), manifest(&rights.role_binding)];
            documents.extend(rights.in_namespaces.iter().flat_map(of));
        }
        documents.push(manifest(&self.secret));
        documents.push(match &self.owner {
            ManifestOwner::Binding(binding) => manifest(binding),
            ManifestOwner::Bundle(bundle) => manifest(bundle),
        });
        documents.into_iter().collect()
    }

    /// Returns all objects in the canonical form, in which all SDKs write the same bytes: one line of JSON per object, keys in
    /// the order of their UTF-8 bytes, no insignificant space, a line feed after each line.
    pub fn canonical(&self) -> serde_json::Result<String> {
        let lines = self.documents()?;
        Ok(lines.iter().map(|document| canonical::text(document) + "\n").collect())
    }
}

impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document(document) => write!(f, "Document([{} bytes redacted])", document.len()),
            Self::Hidden(words) => f.debug_tuple("Hidden").field(words).finish(),
        }
    }
}

impl fmt::Debug for Manifests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |meta: &ObjectMeta| meta.name.clone().unwrap_or_default();
        let (kind, owner) = match &self.owner {
            ManifestOwner::Binding(binding) => ("APIServiceBinding", name(&binding.metadata)),
            ManifestOwner::Bundle(bundle) => ("APIServiceBindingBundle", name(&bundle.metadata)),
        };
        f.debug_struct("Manifests")
            .field("namespace", &self.namespace.is_some())
            .field("rights", &self.rights)
            .field("secret", &name(&self.secret.metadata))
            .field(kind, &owner)
            .finish_non_exhaustive()
    }
}

impl Default for ClaimRights {
    fn default() -> Self {
        Self {
            in_cluster: true,
            namespaces: BTreeSet::new(),
        }
    }
}

impl Decision {
    /// Returns the resources on which the konnector has rights.
    pub fn granted(&self) -> impl Iterator<Item = &GroupResource> {
        self.accepted.union(&self.withdrawn)
    }
}

/// Returns the Secret of a new bundle of this name.
pub fn bundle_secret_ref(bundle: &str, konnector_namespace: &str) -> ClusterSecretKeyRef {
    secret_ref(&format!("bundle-{bundle}"), konnector_namespace)
}

/// Returns the Secret of a new binding of this name.
pub fn secret_ref(binding: &str, konnector_namespace: &str) -> ClusterSecretKeyRef {
    ClusterSecretKeyRef {
        name: names::provider_kubeconfig_secret(binding),
        key: names::KUBECONFIG_KEY.to_owned(),
        namespace: konnector_namespace.to_owned(),
    }
}

/// Makes the Secret that holds a provider's kubeconfig.
pub fn secret(reference: &ClusterSecretKeyRef, kubeconfig: Kubeconfig) -> Secret {
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

/// Converts an object to JSON, with its apiVersion and kind.
fn manifest(object: &impl Serialize) -> serde_json::Result<Value> {
    serde_json::to_value(object)
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

fn cluster_role(install: &BindingInstall<'_>) -> ClusterRole {
    let name = names::konnector_cluster_role(install.binding);
    let claimed = install.decision.granted().filter(|_| install.claim_rights.in_cluster);
    let mut rules = consumer_rules(&install.offer.resources, claimed);
    // The konnector deletes its own rights as the last step of an unbind.
    let mut own = vec!["clusterroles", "clusterrolebindings"];
    if !install.claim_rights.namespaces.is_empty() {
        own.extend(["roles", "rolebindings"]);
    }
    rules.push(PolicyRule {
        resource_names: Some(vec![name.clone()]),
        ..rule(RBAC, own, &["delete"])
    });
    ClusterRole {
        metadata: managed(&name, Some(COMPONENT_ROLE)),
        rules: Some(rules),
        aggregation_rule: None,
    }
}

fn cluster_role_binding(install: &BindingInstall<'_>) -> ClusterRoleBinding {
    let name = names::konnector_cluster_role(install.binding);
    ClusterRoleBinding {
        metadata: managed(&name, Some(COMPONENT_ROLE)),
        role_ref: role_ref("ClusterRole", name),
        subjects: Some(vec![konnector(install)]),
    }
}

/// Makes the Role with the rights on claimed resources, and its grant, for each namespace that gets them. Nothing is made if the provider
/// claims nothing. If all claims are rejected, the Roles have no rules: a claim that is accepted later finds its Role.
fn namespace_rights(install: &BindingInstall<'_>) -> Vec<NamespaceRights> {
    let rules = consumer_rules([], install.decision.granted());
    let namespaces = install.claim_rights.namespaces.iter();
    let namespaces = namespaces.filter(|_| !install.offer.claims.is_empty());
    let name = names::konnector_cluster_role(install.binding);
    let in_namespace = |namespace: &String| NamespaceRights {
        role: Role {
            metadata: ObjectMeta {
                namespace: Some(namespace.clone()),
                ..managed(&name, Some(COMPONENT_ROLE))
            },
            rules: Some(rules.clone()),
        },
        role_binding: RoleBinding {
            metadata: ObjectMeta {
                namespace: Some(namespace.clone()),
                ..managed(&name, Some(COMPONENT_ROLE))
            },
            role_ref: role_ref("Role", name.clone()),
            subjects: Some(vec![konnector(install)]),
        },
    };
    namespaces.map(in_namespace).collect()
}

fn role_ref(kind: &str, name: String) -> RoleRef {
    RoleRef {
        api_group: RBAC.to_owned(),
        kind: kind.to_owned(),
        name,
    }
}

/// The konnector's ServiceAccount, as a subject of grants.
fn konnector(install: &BindingInstall<'_>) -> Subject {
    let (namespace, service_account) = install.konnector;
    Subject {
        kind: "ServiceAccount".to_owned(),
        name: service_account.to_owned(),
        namespace: Some(namespace.to_owned()),
        api_group: None,
    }
}

fn binding(install: &BindingInstall<'_>) -> APIServiceBinding {
    let spec = APIServiceBindingSpec {
        kubeconfig_secret_ref: install.secret.clone(),
        rejected_permission_claims: install.decision.rejected.iter().cloned().collect(),
        claim_namespaces: install.claim_namespaces.to_vec(),
        ..APIServiceBindingSpec::default()
    };
    let resources: Vec<_> = install.offer.resources.iter().map(ToString::to_string).collect();
    // What the user has seen and not rejected; what the provider claims later on needs another yes.
    let is_accepted = |claim: &&PermissionClaim| install.decision.accepted.contains(&claim.group_resource);
    let accepted: Vec<_> = install.offer.claims.iter().filter(is_accepted).collect();
    let accepted = serde_json::json!(accepted);
    let mut binding = APIServiceBinding::new(install.binding, spec);
    binding.metadata = ObjectMeta {
        annotations: Some(
            install
                .template
                .map(|template| (annotations::TEMPLATE.to_owned(), template.to_owned()))
                .into_iter()
                .chain([
                    (annotations::RESOURCES.to_owned(), resources.join(",")),
                    (annotations::ACCEPTED_CLAIMS.to_owned(), canonical::text(&accepted)),
                ])
                .collect(),
        ),
        ..managed(install.binding, None)
    };
    binding
}

/// Makes metadata with the label that says that this crate made the object.
fn managed(name: &str, component: Option<&str>) -> ObjectMeta {
    let component = component.map(|component| (labels::COMPONENT.to_owned(), component.to_owned()));
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(
            std::iter::once((labels::MANAGED_BY.to_owned(), MANAGER.to_owned()))
                .chain(component)
                .collect(),
        ),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests;
