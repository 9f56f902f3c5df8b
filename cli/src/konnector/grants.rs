//! The konnector's rights on the resources that bundles bind, whose bindings have no role of their own.

use std::collections::BTreeSet;

pub(crate) use bindery_api::names::{KONNECTOR_ADOPTION_ROLE as ADOPTION_ROLE, KONNECTOR_BUNDLES_ROLE as BUNDLES_ROLE};
use bindery_api::{
    claims::{CORE_PLURALS, is_claimable_core},
    names,
    v1alpha2::GroupResource,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

use crate::{
    claims::rules::{bundle_rules, holds_bundled},
    errors::Failure,
    install::write::manifest,
};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Refuses a resource that no provider can export or claim.
pub(crate) fn check(resource: &GroupResource) -> Result<(), Failure> {
    if is_claimable_core(resource) {
        return Ok(());
    }
    match names::owner_of_group(&resource.group) {
        None => Ok(()),
        Some(owner) => Err(Failure::Usage(format!(
            "--bundle-resource {resource}: the resource belongs to {owner}, and no provider can bind it; write the resource of an \
             export, such as cowboys.wildwest.dev, or of a claim: {}",
            CORE_PLURALS.join(", ")
        ))),
    }
}

/// Adds rights on these resources to the rules, and returns the resources on which rights were missing. No right is taken
/// away.
pub(crate) fn merge(
    seen: &[PolicyRule],
    wanted: &BTreeSet<GroupResource>,
) -> (Vec<PolicyRule>, BTreeSet<GroupResource>) {
    let missing = wanted.iter().filter(|resource| !holds_bundled(seen, resource));
    let missing: BTreeSet<_> = missing.cloned().collect();
    let mut rules = seen.to_vec();
    rules.extend(bundle_rules(&missing));
    (rules, missing)
}

/// The role with these rules, and its grant to the konnector.
pub(super) fn manifests(rules: &[PolicyRule]) -> Result<Vec<Value>, Failure> {
    let rules = manifest(&rules)?;
    Ok(vec![
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
            "metadata": { "name": BUNDLES_ROLE }, "rules": rules,
        }),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding",
            "metadata": { "name": BUNDLES_ROLE },
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": BUNDLES_ROLE },
            "subjects": [{ "kind": "ServiceAccount", "name": names::KONNECTOR, "namespace": names::KUBE_BIND_NAMESPACE }],
        }),
    ])
}

#[cfg(test)]
mod tests;
