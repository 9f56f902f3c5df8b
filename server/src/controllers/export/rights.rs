//! What an export's consumer may do outside the namespaces mapped for it: in the cluster's scope, or, where its
//! cluster-scoped objects stand there, in the contract namespace.

use bindery_api::v1alpha2::GroupResource;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use serde_json::json;

use super::plan::{Observed, Op};
use crate::{
    rbac::{self, Grant, Scopes},
    writes,
};

/// Rights in the cluster's scope that are to be given, while it is not known whether the admission policy bounds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PolicyUnasked;

/// Gives an export its rights, and takes those that it has no use for. Where the policy is known to be missing, rights in
/// the cluster's scope are not given.
pub(super) fn plan(seen: &Observed<'_>, ops: &mut Vec<Op>) -> Result<(), PolicyUnasked> {
    let Some(contract) = &seen.contract else {
        return Ok(());
    };
    let scopes = seen.schemas.iter().flatten().map(AsRef::as_ref).collect();
    in_contract(seen, contract, &scopes, ops);
    let mut cluster = Vec::new();
    let is_given = in_cluster(seen, contract, &scopes, &mut cluster);
    let writes = !rbac::cluster_resources(&seen.export.spec, &scopes).is_empty();
    match seen.policy {
        None if is_given && writes => return Err(PolicyUnasked),
        Some(Err(_)) if is_given && writes => {}
        _ => ops.extend(cluster),
    }
    Ok(())
}

/// Whether rights are given that the consumer has not got.
fn in_cluster(seen: &Observed<'_>, contract: &Namespace, scopes: &Scopes, ops: &mut Vec<Op>) -> bool {
    let rules = rbac::cluster_rules(&seen.export.spec, scopes);
    if rules.is_empty() {
        if scopes.know(&seen.export.spec) {
            take_cluster(seen, ops);
        }
        return false;
    }
    let (contract_name, export_name) = (contract.name_any(), seen.export.name_any());
    let grant = Grant {
        contract: &contract_name,
        export: &export_name,
        resources: &[],
    };
    let mut is_given = false;
    let wanted = rbac::cluster_role(grant, contract, rules);
    match &seen.cluster_role {
        None => {
            is_given = true;
            ops.push(Op::CreateClusterRole(Box::new(wanted)));
        }
        Some(role) if role.rules != wanted.rules => {
            is_given = !rbac::are_within(wanted.rules.as_deref(), role.rules.as_deref());
            ops.push(Op::PatchClusterRole {
                name: role.name_any(),
                patch: json!({ "metadata": writes::seen(&**role), "rules": wanted.rules }),
            });
        }
        Some(_) => {}
    }
    let wanted = rbac::cluster_role_binding(grant, contract);
    match &seen.cluster_role_binding {
        Some(binding) if rbac::binds_the_same_everywhere(binding, &wanted) => return is_given,
        // What a binding binds cannot be changed.
        Some(binding) => ops.push(Op::DeleteClusterRoleBinding {
            name: binding.name_any(),
            uid: binding.uid(),
        }),
        None => {}
    }
    ops.push(Op::CreateClusterRoleBinding(Box::new(wanted)));
    true
}

fn take_cluster(seen: &Observed<'_>, ops: &mut Vec<Op>) {
    ops.extend(
        seen.cluster_role_binding
            .as_ref()
            .map(|binding| Op::DeleteClusterRoleBinding {
                name: binding.name_any(),
                uid: binding.uid(),
            }),
    );
    ops.extend(seen.cluster_role.as_ref().map(|role| Op::DeleteClusterRole {
        name: role.name_any(),
        uid: role.uid(),
    }));
}

fn in_contract(seen: &Observed<'_>, contract: &Namespace, scopes: &Scopes, ops: &mut Vec<Op>) {
    let resources = rbac::contract_resources(&seen.export.spec, scopes);
    if resources.is_empty() {
        if scopes.know(&seen.export.spec) {
            take_contract(seen, ops);
        }
        return;
    }
    let (contract, export) = (contract.name_any(), seen.export.name_any());
    give_contract(seen, &contract, &export, &resources, ops);
}

fn give_contract(seen: &Observed<'_>, contract: &str, export: &str, resources: &[GroupResource], ops: &mut Vec<Op>) {
    let grant = Grant {
        contract,
        export,
        resources,
    };
    let wanted = rbac::namespace_role(grant, contract);
    match &seen.role {
        None => ops.push(Op::CreateRole(Box::new(wanted))),
        Some(role) if role.rules != wanted.rules => ops.push(Op::PatchRole {
            name: role.name_any(),
            patch: json!({ "metadata": writes::seen(&**role), "rules": wanted.rules }),
        }),
        Some(_) => {}
    }
    let wanted = rbac::namespace_role_binding(grant, contract);
    match &seen.role_binding {
        Some(binding) if rbac::binds_the_same(binding, &wanted) => return,
        Some(binding) => ops.push(Op::DeleteRoleBinding {
            name: binding.name_any(),
            uid: binding.uid(),
        }),
        None => {}
    }
    ops.push(Op::CreateRoleBinding(Box::new(wanted)));
}

fn take_contract(seen: &Observed<'_>, ops: &mut Vec<Op>) {
    ops.extend(seen.role_binding.as_ref().map(|binding| Op::DeleteRoleBinding {
        name: binding.name_any(),
        uid: binding.uid(),
    }));
    ops.extend(seen.role.as_ref().map(|role| Op::DeleteRole {
        name: role.name_any(),
        uid: role.uid(),
    }));
}
