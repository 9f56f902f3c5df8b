//! How far a watched object is, in words.

use std::collections::BTreeSet;

use bindery_api::{
    Conditions as _,
    conditions::DRAINING,
    v1alpha2::{APIServiceBinding, GroupResource, PermissionClaim},
};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;

/// What keeps a Deployment from being available, in words.
pub(super) fn unavailable(deployment: &Deployment) -> Option<String> {
    let status = deployment.status.clone().unwrap_or_default();
    if status.observed_generation < deployment.metadata.generation {
        return Some("waiting for the cluster's deployment controller".to_owned());
    }
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = status
        .updated_replicas
        .unwrap_or(0)
        .min(status.available_replicas.unwrap_or(0));
    let old = status.replicas.unwrap_or(0) > status.updated_replicas.unwrap_or(0);
    if ready >= wanted && !old {
        return None;
    }
    let conditions = status.conditions.iter().flatten();
    let mut broken = conditions.filter(|condition| condition.status == "False" || condition.type_ == "ReplicaFailure");
    let why = broken.find_map(|condition| condition.message.clone());
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    Some(format!("{ready} of {wanted} replicas are available{why}"))
}

/// Those of these resources on which the binding has a claim in effect.
pub(crate) fn in_effect(binding: &APIServiceBinding, claims: &BTreeSet<GroupResource>) -> BTreeSet<GroupResource> {
    let known = binding.status.iter().flat_map(|status| &status.permission_claims);
    let known = known.map(|claim| &claim.group_resource);
    known.filter(|resource| claims.contains(resource)).cloned().collect()
}

/// The resources of those claims that are not in effect exactly as given.
pub(super) fn not_in_effect(binding: &APIServiceBinding, claims: &[PermissionClaim]) -> BTreeSet<GroupResource> {
    let known = binding
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.permission_claims);
    let waiting_for = claims.iter().filter(|claim| !known.contains(claim));
    waiting_for.map(|claim| claim.group_resource.clone()).collect()
}

/// What keeps a deleted binding from being gone, in words.
pub(super) fn draining(binding: &APIServiceBinding) -> String {
    match binding.condition(DRAINING) {
        Some(condition) if !condition.message.is_empty() => condition.message.clone(),
        _ if binding.finalizers().is_empty() => "waiting for the API server".to_owned(),
        _ => {
            "waiting for the konnector, which deletes its objects; kubectl bind check tells whether it runs".to_owned()
        }
    }
}

#[cfg(test)]
mod tests;
