//! What the plan of an APIServiceNamespace depends on.

use std::sync::Arc;

use bindery_api::v1alpha2::{APIServiceExport, APIServiceNamespace};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{Role, RoleBinding, Subject},
};

use super::valuable::{self, ValuableObject, Valuables};
use crate::{contract, leftovers::Leftovers, limits::LimitReached, rbac::Scopes};

/// An APIServiceNamespace, and what its plan depends on.
pub(super) struct Observed<'a> {
    pub(super) contract: &'a str,
    /// Name of the consumer's namespace.
    pub(super) name: &'a str,
    /// The APIServiceNamespace; `None` if it has gone.
    pub(super) object: Option<&'a APIServiceNamespace>,
    /// The provider namespace, if one exists under the name that is or would be assigned.
    pub(super) namespace: Option<&'a Namespace>,
    /// Whether the contract exists and is not being deleted.
    pub(super) contract_stays: bool,
    /// All exports of the contract.
    pub(super) exports: &'a [Arc<APIServiceExport>],
    /// The scope in which the consumer sees each resource of the contract.
    pub(super) scopes: &'a Scopes,
    /// Names of exports that pending requests are about to create.
    pub(super) pending_exports: &'a [String],
    /// Roles in the provider namespace that carry label `kube-bind.io/contract`.
    pub(super) roles: &'a [Arc<Role>],
    /// Role bindings in the provider namespace that carry label `kube-bind.io/contract`.
    pub(super) bindings: &'a [Arc<RoleBinding>],
    /// The binding by which the server lists claimed objects in the provider namespace.
    pub(super) server_binding: Option<&'a RoleBinding>,
    /// The binding by which the server lists all that ClusterRole `view` shows in the provider namespace.
    pub(super) view_binding: Option<&'a RoleBinding>,
    /// What is left in the provider namespace; `None` if nobody has counted yet.
    pub(super) left: Option<&'a NamespaceLeftovers>,
    /// The shared namespace, which has the name of the consumer's namespace.
    pub(super) shared: SharedSeen<'a>,
    /// The limit that the contract has reached; `None` if this namespace is within it.
    pub(super) beyond: Option<LimitReached>,
    /// The server itself, as a role binding names it.
    pub(super) server: &'a Subject,
    pub(super) now: Timestamp,
}

/// What is left in a provider namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NamespaceLeftovers {
    /// Objects that belong to the contract.
    pub(super) leftovers: Leftovers,
    /// Whether there are objects of the provider's own that may be the source of a claim.
    pub(super) has_sources: bool,
    /// The valuable objects; `None` if nobody looked for them.
    pub(super) valuables: Option<Valuables>,
}

/// The shared namespace, and what decides about it.
pub(super) struct SharedSeen<'a> {
    /// The namespace, if it exists and carries the label of shared namespaces.
    pub(super) namespace: Option<&'a Namespace>,
    /// Roles in the namespace that carry label `kube-bind.io/contract`.
    pub(super) roles: &'a [Arc<Role>],
    /// Role bindings in the namespace that carry label `kube-bind.io/contract`.
    pub(super) bindings: &'a [Arc<RoleBinding>],
    /// Names of exports for which the admission policy was proved to be in force.
    pub(super) proved: &'a [String],
    /// Whether the admission policy is known to be missing, so that no rights are given in shared namespaces.
    pub(super) withheld: bool,
    /// Why contracts must not share a namespace of this name; `None` if they may.
    pub(super) reserved: Option<String>,
}

impl NamespaceLeftovers {
    /// The objects that keep the namespace, in words; `None` if nothing does, or nobody looked for valuable objects.
    pub(super) fn kept_for(&self) -> Option<String> {
        let valuables = self.valuables.as_ref()?.objects.iter().cloned();
        let released = self.leftovers.objects.iter().filter(|object| object.released);
        let released = released.map(|object| ValuableObject {
            resource: object.resource.clone(),
            name: object.name.clone(),
        });
        valuable::explain(&valuables.chain(released).collect())
    }
}

/// Whether a namespace carries the contract's label and the annotation of this very APIServiceNamespace.
pub(super) fn is_ours(seen: &Observed<'_>, namespace: &Namespace) -> bool {
    contract::made_for(namespace).is_some_and(|key| *key.namespace == *seen.contract && *key.name == *seen.name)
}
