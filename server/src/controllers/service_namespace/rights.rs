//! The rights of each export in a namespace of the provider: in the one mapped for it, and in the one it shares.

use std::{collections::BTreeSet, sync::Arc};

use bindery_api::{
    labels,
    v1alpha2::{APIServiceExport, GroupResource},
};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding, Subject};
use kube::{Resource, ResourceExt as _};

use super::{
    namespace_of,
    plan::{Observed, Op},
};
use crate::{
    contract,
    rbac::{
        self,
        claims::{self, Right, Served},
    },
    writes,
};

/// A namespace, and what is in it.
#[derive(Clone, Copy)]
pub(super) struct Within<'a> {
    pub(super) namespace: &'a str,
    /// What is served in it.
    pub(super) served: Served,
    /// Roles in it that carry a contract's mark.
    pub(super) roles: &'a [Arc<Role>],
    /// Role bindings in it that do.
    pub(super) bindings: &'a [Arc<RoleBinding>],
}

/// A step to a binding that is as it should be.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rebind {
    Create(Box<RoleBinding>),
    Delete {
        namespace: String,
        name: String,
        uid: Option<String>,
    },
}

/// What the exports that stay are given rights on in the mapped namespace.
pub(super) fn granted(seen: &Observed<'_>) -> BTreeSet<GroupResource> {
    let resources = |export: &APIServiceExport| rbac::namespaced_resources(&export.spec, seen.scopes, seen.name);
    staying(seen).flat_map(resources).collect()
}

/// What the exports that stay claim there, as far as they may have it.
pub(super) fn claimed(seen: &Observed<'_>, there: Served) -> BTreeSet<GroupResource> {
    let exports = staying(seen).filter(|export| is_served(seen, export, there) && is_bounded(seen, export, there));
    exports.flat_map(claims::claimed).cloned().collect()
}

/// Whether the claims of an export are served there for certain.
pub(super) fn is_served(seen: &Observed<'_>, export: &APIServiceExport, there: Served) -> bool {
    claims::served(&export.spec, seen.scopes) == Some(there)
}

/// Whether what an export's consumer writes there stays its own: in a namespace that contracts share only the admission
/// policy sees to that.
fn is_bounded(seen: &Observed<'_>, export: &APIServiceExport, there: Served) -> bool {
    there == Served::Mapped || seen.shared.proved.contains(&export.name_any())
}

/// Whether the policy was proved for an export: only then is it given rights to write in the cluster's scope.
pub(super) fn is_proved(role: Option<&ClusterRole>, binding: Option<&ClusterRoleBinding>, contract: &str) -> bool {
    let rules = role.filter(|role| contract::of(*role) == Some(contract));
    let mut rules = rules.and_then(|role| role.rules.as_deref()).unwrap_or_default().iter();
    let is_bound = binding.is_some_and(|binding| contract::of(binding) == Some(contract));
    is_bound && rules.any(|rule| rule.verbs.iter().any(|verb| verb == "create"))
}

pub(super) fn staying<'a>(seen: &Observed<'a>) -> impl Iterator<Item = &'a APIServiceExport> + use<'a> {
    let exports = seen.exports.iter().map(AsRef::as_ref);
    exports.filter(|export: &&APIServiceExport| export.metadata.deletion_timestamp.is_none())
}

/// Gives every export that stays its rights, and takes away those of exports that have gone, and what an export has no use
/// for there. An export that is deleting keeps what it has, and one that is made anew what its predecessor had.
pub(super) fn plan(seen: &Observed<'_>, within: Within<'_>, ops: &mut Vec<Op>) {
    for export in staying(seen) {
        let rights = wanted(seen, export, within);
        for right in &rights {
            give(seen, right, within, ops);
        }
        // Only where that is certain: a schema that is not there yet may be about to be made anew.
        if seen.scopes.know(&export.spec) {
            let label = rbac::export_label(&export.name_any());
            take(
                seen,
                within,
                |of, object| of == label && !is_among(&rights, object),
                ops,
            );
        }
    }
    let names = seen.exports.iter().map(|export| export.name_any());
    let known: Vec<_> = names
        .chain(seen.awaited.iter().cloned())
        .map(|name| rbac::export_label(&name))
        .collect();
    take(seen, within, |of, _| !known.iter().any(|known| known == of), ops);
}

/// Takes away the rights of all exports.
pub(super) fn remove(seen: &Observed<'_>, within: Within<'_>, ops: &mut Vec<Op>) {
    take(seen, within, |_, _| true, ops);
}

/// The server's own right to see claimed core objects in a namespace that it made.
pub(super) fn sight(existing: Option<&RoleBinding>, namespace: &str, server: &Subject) -> Vec<Rebind> {
    bind(existing, claims::server(namespace, server.clone()))
}

fn wanted(seen: &Observed<'_>, export: &APIServiceExport, within: Within<'_>) -> Vec<Right> {
    match within.served {
        Served::Mapped => rbac::mapped_rights(seen.contract, export, seen.scopes, seen.name, within.namespace),
        Served::Shared if is_served(seen, export, Served::Shared) && is_bounded(seen, export, Served::Shared) => {
            claims::rights(seen.contract, export, within.namespace, Served::Shared)
        }
        Served::Shared => Vec::new(),
    }
}

fn give(seen: &Observed<'_>, right: &Right, within: Within<'_>, ops: &mut Vec<Op>) {
    if let Some(role) = &right.role {
        match find(seen, within.roles, &role.name_any()) {
            None => ops.push(Op::CreateRole(Box::new(role.clone()))),
            Some(existing) if existing.rules != role.rules => ops.push(Op::PatchRole {
                namespace: within.namespace.to_owned(),
                name: role.name_any(),
                metadata: writes::seen(existing),
                rules: role.rules.clone(),
            }),
            Some(_) => {}
        }
    }
    let existing = find(seen, within.bindings, &right.binding.name_any());
    ops.extend(bind(existing, right.binding.clone()).into_iter().map(Op::from));
}

/// What a binding binds cannot be changed: one that is not as it should be is made anew.
fn bind(existing: Option<&RoleBinding>, wanted: RoleBinding) -> Vec<Rebind> {
    let delete = match existing {
        Some(existing) if rbac::binds_the_same(existing, &wanted) => return Vec::new(),
        Some(existing) => Some(Rebind::Delete {
            namespace: namespace_of(existing),
            name: existing.name_any(),
            uid: existing.uid(),
        }),
        None => None,
    };
    delete.into_iter().chain([Rebind::Create(Box::new(wanted))]).collect()
}

fn take(seen: &Observed<'_>, within: Within<'_>, goes: impl Fn(&str, &dyn Named) -> bool, ops: &mut Vec<Op>) {
    for binding in of_contract(seen, within.bindings) {
        if label(binding).is_some_and(|export| goes(export, binding)) {
            ops.push(Op::DeleteBinding {
                namespace: namespace_of(binding),
                name: binding.name_any(),
                uid: binding.uid(),
            });
        }
    }
    for role in of_contract(seen, within.roles) {
        if label(role).is_some_and(|export| goes(export, role)) {
            ops.push(Op::DeleteRole {
                namespace: namespace_of(role),
                name: role.name_any(),
                uid: role.uid(),
            });
        }
    }
}

fn of_contract<'a, K: Resource>(seen: &Observed<'_>, objects: &'a [Arc<K>]) -> impl Iterator<Item = &'a K> {
    let objects = objects.iter().map(AsRef::as_ref);
    objects.filter(|object: &&K| contract::of(*object) == Some(seen.contract))
}

fn find<'a, K: Resource>(seen: &Observed<'_>, objects: &'a [Arc<K>], name: &str) -> Option<&'a K> {
    of_contract(seen, objects).find(|object| object.meta().name.as_deref() == Some(name))
}

/// The export that an object was made for. What has no such mark is not an export's.
fn label<K: Resource>(object: &K) -> Option<&str> {
    object.meta().labels.as_ref()?.get(labels::EXPORT).map(String::as_str)
}

// === impl Rebind ===

impl From<Rebind> for Op {
    fn from(step: Rebind) -> Self {
        match step {
            Rebind::Create(binding) => Self::CreateBinding(binding),
            Rebind::Delete { namespace, name, uid } => Self::DeleteBinding { namespace, name, uid },
        }
    }
}

/// A role, or a binding.
trait Named {
    fn is_of(&self, right: &Right) -> bool;
}

impl Named for Role {
    fn is_of(&self, right: &Right) -> bool {
        let role = right.role.as_ref();
        role.is_some_and(|role| role.metadata.name == self.metadata.name)
    }
}

impl Named for RoleBinding {
    fn is_of(&self, right: &Right) -> bool {
        right.binding.metadata.name == self.metadata.name
    }
}

fn is_among(rights: &[Right], object: &dyn Named) -> bool {
    rights.iter().any(|right| object.is_of(right))
}
