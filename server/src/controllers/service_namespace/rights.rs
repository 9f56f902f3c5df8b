//! The rights of each export in a provider namespace.

use std::collections::BTreeSet;

use bindery_api::{
    labels,
    v1alpha2::{APIServiceExport, GroupResource},
};
use kube::{Resource, ResourceExt as _};

use super::{
    namespace_of,
    plan::{Observed, Op},
};
use crate::{
    contract,
    rbac::{self, Grant},
    writes,
};

/// What the exports that stay are given rights on.
pub(super) fn granted(seen: &Observed<'_>) -> BTreeSet<GroupResource> {
    let resources = staying(seen).flat_map(|export| &export.spec.resources);
    resources.map(|resource| resource.group_resource.clone()).collect()
}

fn staying<'a>(seen: &Observed<'a>) -> impl Iterator<Item = &'a APIServiceExport> {
    let exports = seen.exports.iter().map(AsRef::as_ref);
    exports.filter(|export: &&APIServiceExport| export.metadata.deletion_timestamp.is_none())
}

/// Gives every export that stays its Role and RoleBinding, and takes away those of exports that have gone. An export
/// that is deleting keeps what it has, and one that is made anew what its predecessor had.
pub(super) fn plan(seen: &Observed<'_>, namespace: &str, ops: &mut Vec<Op>) {
    for export in staying(seen) {
        let resources = export.spec.resources.iter();
        let resources: Vec<GroupResource> = resources.map(|resource| resource.group_resource.clone()).collect();
        let grant = Grant {
            contract: seen.contract,
            export: &export.name_any(),
            resources: &resources,
        };
        give(seen, grant, namespace, ops);
    }
    let names = seen.exports.iter().map(|export| export.name_any());
    let known: Vec<_> = names
        .chain(seen.awaited.iter().cloned())
        .map(|name| rbac::export_label(&name))
        .collect();
    take(seen, |label| !known.iter().any(|known| known == label), ops);
}

/// Takes away the rights of all exports.
pub(super) fn remove(seen: &Observed<'_>, ops: &mut Vec<Op>) {
    take(seen, |_| true, ops);
}

fn give(seen: &Observed<'_>, grant: Grant<'_>, namespace: &str, ops: &mut Vec<Op>) {
    let role = rbac::namespace_role(grant, namespace);
    let existing = seen
        .roles
        .iter()
        .find(|existing| existing.name_any() == role.name_any());
    match existing {
        None => ops.push(Op::CreateRole(Box::new(role))),
        Some(existing) if existing.rules != role.rules => ops.push(Op::PatchRole {
            namespace: namespace.to_owned(),
            name: role.name_any(),
            metadata: writes::seen(&**existing),
            rules: role.rules,
        }),
        Some(_) => {}
    }
    let binding = rbac::namespace_role_binding(grant, namespace);
    let existing = seen
        .bindings
        .iter()
        .find(|existing| existing.name_any() == binding.name_any());
    match existing {
        Some(existing) if rbac::binds_the_same(existing, &binding) => return,
        // What a binding binds cannot be changed.
        Some(existing) => ops.push(Op::DeleteBinding {
            namespace: namespace.to_owned(),
            name: existing.name_any(),
            uid: existing.uid(),
        }),
        None => {}
    }
    ops.push(Op::CreateBinding(Box::new(binding)));
}

fn take(seen: &Observed<'_>, goes: impl Fn(&str) -> bool, ops: &mut Vec<Op>) {
    for binding in seen
        .bindings
        .iter()
        .filter(|binding| is_going(seen, &***binding, &goes))
    {
        ops.push(Op::DeleteBinding {
            namespace: namespace_of(&**binding),
            name: binding.name_any(),
            uid: binding.uid(),
        });
    }
    for role in seen.roles.iter().filter(|role| is_going(seen, &***role, &goes)) {
        ops.push(Op::DeleteRole {
            namespace: namespace_of(&**role),
            name: role.name_any(),
            uid: role.uid(),
        });
    }
}

/// Only what carries this contract's mark and an export's.
fn is_going<K: Resource>(seen: &Observed<'_>, object: &K, goes: impl Fn(&str) -> bool) -> bool {
    let export = object
        .meta()
        .labels
        .as_ref()
        .and_then(|labels| labels.get(labels::EXPORT));
    contract::of(object) == Some(seen.contract) && export.is_some_and(|export| goes(export))
}
