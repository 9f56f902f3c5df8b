//! The right to read claimed objects in the whole cluster, for a konnector that watches them so.

use std::sync::Arc;

use bindery_api::annotations;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::ResourceExt as _;
use serde_json::json;

use super::plan::{Observed, Op};
use crate::{
    rbac::{self, claims},
    writes,
};

/// The right as it is, and what the operator says of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) role: Option<Arc<ClusterRole>>,
    pub(super) binding: Option<Arc<ClusterRoleBinding>>,
    /// Whether Secrets may be read cluster-wide.
    pub(super) secrets: bool,
}

/// Gives an export what it may read, and takes what it may not, the mark by which its konnector knows included.
pub(super) fn plan(seen: &Observed<'_>, ops: &mut Vec<Op>) {
    let Some(contract) = &seen.contract else {
        return;
    };
    if !seen.claims.secrets && claims::is_marked(seen.export) {
        let mut metadata = writes::seen(seen.export);
        metadata["annotations"] = json!({ annotations::CLUSTER_WIDE_SECRETS: null });
        ops.push(Op::PatchExport(json!({ "metadata": metadata })));
    }
    let Seen { role, binding, secrets } = &seen.claims;
    let Some((wanted, wanted_binding)) = claims::cluster_wide(contract, seen.export, *secrets) else {
        ops.extend(binding.as_ref().map(|binding| delete_binding(binding)));
        ops.extend(role.as_ref().map(|role| Op::DeleteClusterRole {
            name: role.name_any(),
            uid: role.uid(),
        }));
        return;
    };
    match role {
        None => ops.push(Op::CreateClusterRole(Box::new(wanted))),
        Some(role) if role.rules != wanted.rules => ops.push(Op::PatchClusterRole {
            name: role.name_any(),
            patch: json!({ "metadata": writes::seen(&**role), "rules": wanted.rules }),
        }),
        Some(_) => {}
    }
    match binding {
        Some(binding) if rbac::binds_the_same_everywhere(binding, &wanted_binding) => return,
        // What a binding binds cannot be changed.
        Some(binding) => ops.push(delete_binding(binding)),
        None => {}
    }
    ops.push(Op::CreateClusterRoleBinding(Box::new(wanted_binding)));
}

fn delete_binding(binding: &ClusterRoleBinding) -> Op {
    Op::DeleteClusterRoleBinding {
        name: binding.name_any(),
        uid: binding.uid(),
    }
}
