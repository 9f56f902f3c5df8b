//! The roles and role bindings for the permission claims of an export, and the rights on them that the server itself must hold.
//!
//! Claims are served in the provider namespaces of the contract. Those of a cluster-scoped export with isolation None are served
//! in the shared namespace, where the names of roles contain the contract.

use std::collections::BTreeSet;

use bindery_api::{
    annotations,
    claims::{SECRETS, is_claimable_core},
    labels, meta, names,
    v1alpha2::{APIServiceExport, APIServiceExportSpec, GroupResource, InformerScope},
};
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding, Subject},
};
use kube::{ResourceExt as _, api::ObjectMeta};

use super::{Grant, READ_VERBS, Scopes, WRITE_VERBS, account, export_meta, role_ref, rules};

pub use bindery_api::placement::ClaimedPlacement;

/// The shipped ClusterRole by which the server lists claimed core objects in namespaces that it created. The RoleBinding there
/// has the same name, and its label `kube-bind.io/component` the same value.
pub const SERVER_ROLE: &str = "bindery-server-claims";

/// One right in a namespace: a role and its binding.
#[derive(Clone, Debug, PartialEq)]
pub struct Right {
    /// The Role; `None` where the binding binds a shipped ClusterRole.
    pub role: Option<Role>,
    /// The RoleBinding, which names the contract's account.
    pub binding: RoleBinding,
}

/// Where the claims of an export are served; `None` while isolation None needs a scope and no resource has a schema.
pub fn placement(export: &APIServiceExportSpec, scopes: &Scopes) -> Option<ClaimedPlacement> {
    let resources = export.resources.iter();
    let known = resources.filter_map(|resource| scopes.of(&resource.group_resource));
    ClaimedPlacement::of_export(export.isolation, known.map(Some))
}

/// The resources that an export claims.
pub fn claimed(export: &APIServiceExport) -> impl Iterator<Item = &GroupResource> {
    export.spec.permission_claims.iter().map(|claim| &claim.group_resource)
}

/// The shipped ClusterRole with the rights on a claimed core resource.
pub fn core_role(resource: &str) -> String {
    format!("kube-binder-claims-{resource}")
}

/// The rights on an export's claims in a namespace: a binding of a shipped role for each core resource, and a Role for the
/// others.
pub fn rights(contract: &str, export: &APIServiceExport, namespace: &str, served: ClaimedPlacement) -> Vec<Right> {
    let name = export.name_any();
    let grant = Grant {
        contract,
        export: &name,
        resources: &[],
    };
    // What contracts share must not meet in a name. No contract's name is another's with a dash and more, so that contract
    // and export are told apart.
    let subject = match served {
        ClaimedPlacement::Mapped => name.clone(),
        ClaimedPlacement::Shared => format!("{contract}-{name}"),
    };
    let binding = |name: String, role_ref| RoleBinding {
        metadata: export_meta(grant, name, Some(namespace)),
        role_ref,
        subjects: Some(vec![account(contract)]),
    };
    let (core, others): (BTreeSet<_>, BTreeSet<_>) = claimed(export).cloned().partition(is_claimable_core);
    let core = core.iter().map(|GroupResource { resource, .. }| Right {
        role: None,
        binding: binding(
            names::core_claim_role_binding(&subject, resource),
            role_ref("ClusterRole", &core_role(resource)),
        ),
    });
    let mut rights: Vec<_> = core.collect();
    let others: Vec<_> = others.into_iter().collect();
    if !others.is_empty() {
        let name = names::claims_role(&subject);
        rights.push(Right {
            binding: binding(name.clone(), role_ref("Role", &name)),
            role: Some(Role {
                metadata: export_meta(grant, name, Some(namespace)),
                rules: Some(rules(&others, &WRITE_VERBS)),
            }),
        });
    }
    rights
}

/// The cluster-wide right to read claimed objects, for a konnector that watches cluster-wide; `None` where none is needed.
/// `secrets` says that the operator allows Secrets in it.
pub fn cluster_wide(
    contract: &Namespace,
    export: &APIServiceExport,
    secrets: bool,
) -> Option<(ClusterRole, ClusterRoleBinding)> {
    let resources: Vec<_> = read_cluster_wide(&export.spec, secrets && is_marked(export)).collect();
    if resources.is_empty() {
        return None;
    }
    let (contract_name, export_name) = (contract.name_any(), export.name_any());
    let grant = Grant {
        contract: &contract_name,
        export: &export_name,
        resources: &resources,
    };
    let name = names::claims_cluster_role(&contract_name, &export_name);
    let metadata = ObjectMeta {
        owner_references: Some(vec![meta::owner_reference(contract)]),
        ..export_meta(grant, name.clone(), None)
    };
    let role = ClusterRole {
        metadata: metadata.clone(),
        rules: Some(rules(&resources, &READ_VERBS)),
        aggregation_rule: None,
    };
    let binding = ClusterRoleBinding {
        metadata,
        role_ref: role_ref("ClusterRole", &name),
        subjects: Some(vec![account(&contract_name)]),
    };
    Some((role, binding))
}

/// Whether a new export is marked for Secrets to be read cluster-wide.
pub fn marks_secrets(spec: &APIServiceExportSpec, secrets: bool) -> bool {
    read_cluster_wide(spec, secrets).any(|resource| is_secrets(&resource))
}

/// Whether an export is marked for Secrets to be read cluster-wide.
pub fn is_marked(export: &APIServiceExport) -> bool {
    meta::is_annotated(&export.metadata, annotations::CLUSTER_WIDE_SECRETS)
}

/// What the server must hold itself to give the rights on the claims of an export: all but the shipped roles, which it may
/// bind by name.
pub fn held(spec: &APIServiceExportSpec, secrets: bool) -> Vec<(GroupResource, &'static [&'static str])> {
    let claimed = spec.permission_claims.iter().map(|claim| &claim.group_resource);
    let others = claimed.filter(|resource| !is_claimable_core(resource));
    let mut held: Vec<(_, &'static [_])> = others.map(|resource| (resource.clone(), &WRITE_VERBS[..])).collect();
    let read = read_cluster_wide(spec, secrets).filter(is_claimable_core);
    held.extend(read.map(|resource| (resource, &READ_VERBS[..])));
    held
}

/// The RoleBinding by which the server sees claimed core objects in a namespace that it made.
pub fn server(namespace: &str, subject: Subject) -> RoleBinding {
    RoleBinding {
        metadata: ObjectMeta {
            name: Some(SERVER_ROLE.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some([(labels::COMPONENT.to_owned(), SERVER_ROLE.to_owned())].into()),
            ..ObjectMeta::default()
        },
        role_ref: role_ref("ClusterRole", SERVER_ROLE),
        subjects: Some(vec![subject]),
    }
}

fn read_cluster_wide(spec: &APIServiceExportSpec, secrets: bool) -> impl Iterator<Item = GroupResource> {
    let is_wide = spec.informer_scope == InformerScope::Cluster;
    let claimed: BTreeSet<_> = spec
        .permission_claims
        .iter()
        .map(|claim| &claim.group_resource)
        .collect();
    let read: Vec<_> = claimed
        .into_iter()
        .filter(|resource| is_wide && (secrets || !is_secrets(resource)))
        .cloned()
        .collect();
    read.into_iter()
}

fn is_secrets(resource: &GroupResource) -> bool {
    resource.is_core() && resource.resource == SECRETS
}

#[cfg(test)]
mod tests;
