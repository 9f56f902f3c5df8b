//! Plans the rights of each export in a provider namespace, be that mapped for one contract or shared by several.

use std::{collections::BTreeSet, sync::Arc};

use bindery_api::{
    labels,
    v1alpha2::{APIServiceExport, GroupResource},
};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding, Subject};
use kube::{Resource, ResourceExt as _};

use super::observed::Observed;
use crate::{
    contract,
    controllers::grants,
    rbac::{
        self,
        claims::{self, ClaimedPlacement, Right},
        view,
    },
    writes::Write,
};

/// A provider namespace, and the rights that exist in it.
#[derive(Clone, Copy)]
pub(super) struct RightsWithin<'a> {
    pub(super) namespace: &'a str,
    /// Which claims are served in the namespace.
    pub(super) served: ClaimedPlacement,
    /// Roles in the namespace that carry label `kube-bind.io/contract`.
    pub(super) roles: &'a [Arc<Role>],
    /// Role bindings in the namespace that carry label `kube-bind.io/contract`.
    pub(super) bindings: &'a [Arc<RoleBinding>],
}

/// A mapped namespace, with the rights that exist in it.
pub(super) fn within<'a>(seen: &Observed<'a>, namespace: &'a str) -> RightsWithin<'a> {
    RightsWithin {
        namespace,
        served: ClaimedPlacement::Mapped,
        roles: seen.roles,
        bindings: seen.bindings,
    }
}

/// The resources on which exports that are not being deleted have rights in the mapped namespace.
pub(super) fn granted(seen: &Observed<'_>) -> BTreeSet<GroupResource> {
    let resources = |export: &APIServiceExport| rbac::namespaced_resources(&export.spec, seen.scopes, seen.name);
    staying(seen).flat_map(resources).collect()
}

/// The claimed resources that are served in such a namespace, of all exports that are not being deleted.
pub(super) fn claimed(seen: &Observed<'_>, there: ClaimedPlacement) -> BTreeSet<GroupResource> {
    let exports = staying(seen).filter(|export| is_served(seen, export, there) && is_bounded(seen, export, there));
    exports.flat_map(claims::claimed).cloned().collect()
}

/// Whether the claims of an export are served in such a namespace. False while the scope of its resources is unknown.
pub(super) fn is_served(seen: &Observed<'_>, export: &APIServiceExport, there: ClaimedPlacement) -> bool {
    claims::placement(&export.spec, seen.scopes) == Some(there)
}

/// Whether the consumer of an export is limited to its own objects in such a namespace. In a namespace that contracts share
/// only the admission policy limits it, so that the policy must be proved for the export first.
fn is_bounded(seen: &Observed<'_>, export: &APIServiceExport, there: ClaimedPlacement) -> bool {
    there == ClaimedPlacement::Mapped || seen.shared.proved.contains(&export.name_any())
}

/// Whether the admission policy was proved for an export: its consumer gets cluster-wide rights to write only after that.
pub(super) fn is_proved(role: Option<&ClusterRole>, binding: Option<&ClusterRoleBinding>, contract: &str) -> bool {
    let rules = role.filter(|role| contract::of(*role) == Some(contract));
    let mut rules = rules.and_then(|role| role.rules.as_deref()).unwrap_or_default().iter();
    let is_bound = binding.is_some_and(|binding| contract::of(binding) == Some(contract));
    is_bound && rules.any(|rule| rule.verbs.iter().any(|verb| verb == "create"))
}

/// The exports that are not being deleted.
pub(super) fn staying<'a>(seen: &Observed<'a>) -> impl Iterator<Item = &'a APIServiceExport> + use<'a> {
    let exports = seen.exports.iter().map(AsRef::as_ref);
    exports.filter(|export: &&APIServiceExport| export.metadata.deletion_timestamp.is_none())
}

/// Plans the rights of every export that is not being deleted, and the removal of the rights that no export needs. An export
/// that is being deleted keeps its rights, and one that is made anew those of its predecessor.
pub(super) fn plan(seen: &Observed<'_>, within: RightsWithin<'_>, writes: &mut Vec<Write>) {
    for export in staying(seen) {
        let rights = wanted(seen, export, within);
        // What was given stays until the export's own cluster-wide rights are taken back.
        if !(within.served == ClaimedPlacement::Shared && seen.shared.withheld) {
            for right in &rights {
                grant(seen, right, within, writes);
            }
        }
        // While a schema is missing, it is unknown where the export needs rights.
        if seen.scopes.know(&export.spec) {
            let label = rbac::export_label(&export.name_any());
            let is_needed = |part: Part, name: Option<&str>| rights.iter().any(|right| part.name_in(right) == name);
            revoke(
                seen,
                within,
                |of, part, name| of == label && !is_needed(part, name),
                writes,
            );
        }
    }
    let names = seen.exports.iter().map(|export| export.name_any());
    let known: Vec<_> = names
        .chain(seen.pending_exports.iter().cloned())
        .map(|name| rbac::export_label(&name))
        .collect();
    revoke(seen, within, |of, _, _| !known.iter().any(|known| known == of), writes);
}

/// Whether an export lacks rights that are wanted in such a namespace.
pub(super) fn is_lacking(seen: &Observed<'_>, within: RightsWithin<'_>) -> bool {
    let mut writes = Vec::new();
    for export in staying(seen) {
        for right in &wanted(seen, export, within) {
            grant(seen, right, within, &mut writes);
        }
    }
    !writes.is_empty()
}

/// Plans the removal of the rights of all exports.
pub(super) fn remove(seen: &Observed<'_>, within: RightsWithin<'_>, writes: &mut Vec<Write>) {
    revoke(seen, within, |_, _, _| true, writes);
}

/// Plans the server's own right to list claimed core objects in a namespace that it created.
pub(super) fn server_binding(existing: Option<&RoleBinding>, namespace: &str, server: &Subject) -> Vec<Write> {
    let wanted = claims::server(namespace, server.clone());
    grants::binding("the server lists claimed objects there", existing, &wanted)
}

/// Plans the server's own rights to list all that is in a namespace that it created, before it deletes that.
pub(super) fn server_bindings(
    (claims, view): (Option<&RoleBinding>, Option<&RoleBinding>),
    namespace: &str,
    server: &Subject,
) -> Vec<Write> {
    let mut writes = server_binding(claims, namespace, server);
    let wanted = view::server(namespace, server.clone());
    writes.extend(grants::binding("the server lists objects there", view, &wanted));
    writes
}

fn wanted(seen: &Observed<'_>, export: &APIServiceExport, within: RightsWithin<'_>) -> Vec<Right> {
    match within.served {
        ClaimedPlacement::Mapped => {
            rbac::mapped_rights(seen.contract, export, seen.scopes, seen.name, within.namespace)
        }
        ClaimedPlacement::Shared
            if is_served(seen, export, ClaimedPlacement::Shared)
                && is_bounded(seen, export, ClaimedPlacement::Shared) =>
        {
            claims::rights(seen.contract, export, within.namespace, ClaimedPlacement::Shared)
        }
        ClaimedPlacement::Shared => Vec::new(),
    }
}

fn grant(seen: &Observed<'_>, right: &Right, within: RightsWithin<'_>, writes: &mut Vec<Write>) {
    const REASON: &str = "an export needs these rights";
    if let Some(role) = &right.role {
        writes.extend(grants::role(REASON, find(seen, within.roles, &role.name_any()), role));
    }
    let existing = find(seen, within.bindings, &right.binding.name_any());
    writes.extend(grants::binding(REASON, existing, &right.binding));
}

/// Plans the removal of bindings, and then of roles, of this contract's exports. `goes` is asked with the label of the export,
/// and whether the object is a role or a binding, and its name.
fn revoke(
    seen: &Observed<'_>,
    within: RightsWithin<'_>,
    goes: impl Fn(&str, Part, Option<&str>) -> bool,
    writes: &mut Vec<Write>,
) {
    const REASON: &str = "no export needs these rights";
    fn is<K: Resource>(object: &K, part: Part, goes: impl Fn(&str, Part, Option<&str>) -> bool) -> bool {
        label(object).is_some_and(|export| goes(export, part, object.meta().name.as_deref()))
    }
    let bindings = of_contract(seen, within.bindings).filter(|binding| is(*binding, Part::Binding, &goes));
    writes.extend(bindings.map(|binding| Write::delete(REASON, binding)));
    let roles = of_contract(seen, within.roles).filter(|role| is(*role, Part::Role, &goes));
    writes.extend(roles.map(|role| Write::delete(REASON, role)));
}

fn of_contract<'a, K: Resource>(seen: &Observed<'_>, objects: &'a [Arc<K>]) -> impl Iterator<Item = &'a K> {
    let objects = objects.iter().map(AsRef::as_ref);
    objects.filter(|object: &&K| contract::of(*object) == Some(seen.contract))
}

fn find<'a, K: Resource>(seen: &Observed<'_>, objects: &'a [Arc<K>], name: &str) -> Option<&'a K> {
    of_contract(seen, objects).find(|object| object.meta().name.as_deref() == Some(name))
}

/// The label of the export that an object was made for; `None` for an object of no export.
fn label<K: Resource>(object: &K) -> Option<&str> {
    object.meta().labels.as_ref()?.get(labels::EXPORT).map(String::as_str)
}

/// One of the two objects that a [`Right`] consists of.
#[derive(Clone, Copy)]
enum Part {
    Role,
    Binding,
}

// === impl Part ===

impl Part {
    /// The name of this part of a right.
    fn name_in(self, right: &Right) -> Option<&str> {
        let metadata = match self {
            Self::Role => right.role.as_ref().map(|role| &role.metadata),
            Self::Binding => Some(&right.binding.metadata),
        };
        metadata?.name.as_deref()
    }
}
