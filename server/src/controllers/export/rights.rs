//! The rights of an export's consumer outside the namespaces mapped for it: in the whole cluster, or in the contract
//! namespace, where cluster-scoped objects of the consumer may live.

use bindery_api::{
    Condition, Conditions as _, Severity,
    conditions::{false_condition, true_condition},
    v1alpha2::GroupResource,
};
use bindery_runtime::policy::Standing;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;

use super::observed::Observed;
use crate::{
    controllers::grants,
    policy,
    rbac::{self, Grant, Scopes},
    template::Refusal,
    writes::Write,
};

/// The condition that says whether the admission policy is in force on which given rights rely.
pub(crate) const POLICY_IN_FORCE: &str = "PolicyInForce";

const NEEDED: &str = "the export needs these rights";
const UNUSED: &str = "the export has no use for these rights";
const WITHDRAWN: &str = "the admission policy is gone that limits these rights";

/// Cluster-wide rights are due, and it is not known yet whether the admission policy limits them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PolicyUnasked;

/// Plans the rights that an export needs, and the removal of those that it has no use for. While the admission policy is
/// known not to be in force, no cluster-wide right to write is granted. One that was granted is taken back if the policy stays
/// away.
pub(super) fn plan(seen: &Observed<'_>, writes: &mut Vec<Write>) -> Result<(), PolicyUnasked> {
    let Some(contract) = &seen.contract else {
        return Ok(());
    };
    let scopes = seen.schemas.iter().flatten().map(AsRef::as_ref).collect();
    writes.extend(in_contract(seen, contract, &scopes));
    let relies = relies_on_policy(seen, &scopes);
    if relies && seen.standing == Standing::Withdrawn {
        let (binding, role) = (seen.cluster_role_binding.as_deref(), seen.cluster_role.as_deref());
        writes.extend(grants::revoke(WITHDRAWN, binding, role));
        return if seen.policy.is_none() {
            Err(PolicyUnasked)
        } else {
            Ok(())
        };
    }
    let (in_cluster, adds_rights) = in_cluster(seen, contract, &scopes);
    let needs_policy = adds_rights && relies;
    match seen.policy {
        None if needs_policy => return Err(PolicyUnasked),
        Some(Err(_)) if needs_policy => {}
        _ => writes.extend(in_cluster),
    }
    Ok(())
}

/// Whether the consumer of an export writes in the whole cluster, where the admission policy limits it.
fn relies_on_policy(seen: &Observed<'_>, scopes: &Scopes) -> bool {
    !rbac::cluster_resources(&seen.export.spec, scopes).is_empty()
}

/// The condition [`POLICY_IN_FORCE`]. Exports have it once the policy was missing; `None` if there is nothing to say.
pub(super) fn policy_in_force(seen: &Observed<'_>) -> Option<Condition> {
    let scopes = seen.schemas.iter().flatten().map(AsRef::as_ref).collect();
    if relies_on_policy(seen, &scopes) && seen.standing.withholds() {
        let refusal = Refusal::AdmissionPolicyMissing { policy: policy::NAME };
        let follows = if seen.standing == Standing::Withdrawn {
            "the rights of this export are taken back until it is there again"
        } else {
            "no rights are given that rely on it"
        };
        let message = format!("{refusal}; {follows}");
        return Some(false_condition(
            POLICY_IN_FORCE,
            Severity::Warning,
            refusal.reason(),
            message,
        ));
    }
    let was_missing = seen
        .export
        .condition(POLICY_IN_FORCE)
        .is_some_and(|known| !known.is_true());
    (was_missing && seen.standing != Standing::Unknown).then(|| true_condition(POLICY_IN_FORCE))
}

/// The condition [`POLICY_IN_FORCE`], if the export says something else, or nothing, yet.
pub(super) fn policy_turned(seen: &Observed<'_>) -> Option<Condition> {
    let condition = policy_in_force(seen)?;
    let known = seen.export.condition(POLICY_IN_FORCE);
    known
        .is_none_or(|known| known.status != condition.status || known.message != condition.message)
        .then_some(condition)
}

/// The writes for an export's ClusterRole and its binding, and whether they give the consumer a right that it has not got.
fn in_cluster(seen: &Observed<'_>, contract: &Namespace, scopes: &Scopes) -> (Vec<Write>, bool) {
    let (binding, role) = (seen.cluster_role_binding.as_deref(), seen.cluster_role.as_deref());
    let rules = rbac::cluster_rules(&seen.export.spec, scopes);
    if rules.is_empty() {
        let unused = scopes.know(&seen.export.spec);
        let revoked = unused.then(|| grants::revoke(UNUSED, binding, role));
        return (revoked.into_iter().flatten().collect(), false);
    }
    let names = (contract.name_any(), seen.export.name_any());
    let grant = grant(&names, &[]);
    let wanted = rbac::cluster_role(grant, contract, rules);
    let adds_rules = !rbac::are_within(wanted.rules.as_deref(), role.and_then(|role| role.rules.as_deref()));
    let bind = grants::binding(NEEDED, binding, &rbac::cluster_role_binding(grant, contract));
    let adds_rights = adds_rules || !bind.is_empty();
    let role = grants::role(NEEDED, role, &wanted);
    (role.into_iter().chain(bind).collect(), adds_rights)
}

/// The writes for an export's Role in the contract namespace, and for its binding.
fn in_contract(seen: &Observed<'_>, contract: &Namespace, scopes: &Scopes) -> Vec<Write> {
    let (binding, role) = (seen.role_binding.as_deref(), seen.role.as_deref());
    let resources = rbac::contract_resources(&seen.export.spec, scopes);
    if resources.is_empty() {
        let unused = scopes.know(&seen.export.spec);
        let revoked = unused.then(|| grants::revoke(UNUSED, binding, role));
        return revoked.into_iter().flatten().collect();
    }
    let names = (contract.name_any(), seen.export.name_any());
    let grant = grant(&names, &resources);
    let role = grants::role(NEEDED, role, &rbac::namespace_role(grant, &names.0));
    let bind = grants::binding(NEEDED, binding, &rbac::namespace_role_binding(grant, &names.0));
    role.into_iter().chain(bind).collect()
}

fn grant<'a>((contract, export): &'a (String, String), resources: &'a [GroupResource]) -> Grant<'a> {
    Grant {
        contract,
        export,
        resources,
    }
}
