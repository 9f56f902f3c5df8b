//! Decides which claims of a binding are in effect and which are being withdrawn.
//!
//! The status lists both kinds, and a claim takes effect only once it is listed. So a restarted konnector knows of which
//! claims copies may exist, also if the user has rejected them meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bindery_api::{
    Accepted, annotations,
    claims::is_claimable_core,
    meta::{is_annotated, owner_reference},
    names,
    placement::ClaimedPlacement,
    v1alpha2::{APIServiceExport, GroupResource, PermissionClaim, Scope},
};

use super::{
    crd::ObservedSchema,
    observed::{ClaimSpec, ObservedBinding, ObservedClaims, crd_names},
    op::BindingOp,
};
use crate::claims::Wanted;

mod namespaces;
mod withdraw;

pub use namespaces::{ClaimNamespaces, recorded as recorded_namespaces};
pub use withdraw::{Withdrawal, Withdrawer, abandoned_copies, withdraw};

/// What to do about each claim of a binding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimsPlan {
    /// Claims in effect.
    pub effective: Vec<PermissionClaim>,
    /// Resources whose claims the user rejected.
    pub rejected: Vec<GroupResource>,
    /// Resources whose claims the konnector refuses, and why.
    pub refused: Vec<(GroupResource, &'static str)>,
    /// Resources whose claims are wider than what the user accepted. Only what was accepted is in effect.
    pub unaccepted: Vec<GroupResource>,
    /// Whether the record of accepted claims is unreadable: then no new claim takes effect.
    pub is_unreadable: bool,
    /// Claims to record as accepted, if the binding has no record yet.
    pub record: Option<Vec<PermissionClaim>>,
    /// Resources whose claims ended while copies may be left.
    pub withdrawn: Vec<GroupResource>,
    /// Claims that the status has to list.
    pub listed: Vec<PermissionClaim>,
    /// The namespaces where the claims are in effect.
    pub namespaces: ClaimNamespaces,
    /// The claims to register with the session, if any.
    pub spec: Option<ClaimSpec>,
    /// Resources to clean up without the provider.
    pub cleanup: BTreeSet<GroupResource>,
    /// Whether nothing is synced, since the contract cannot be verified.
    pub is_unverified: bool,
}

/// Decides about the claims of a binding that is not being deleted; `None` while too little is known.
pub fn plan(seen: &ObservedBinding) -> Option<ClaimsPlan> {
    let listed = listed_claims(seen);
    if seen.export_is_gone() {
        // Claims are no longer synced. Copies from the provider stay with the objects that need them, except rejected ones.
        let is_rejected = |claim: &PermissionClaim| is_rejected(seen, &claim.group_resource);
        let done = |claim: &PermissionClaim| is_cleaned(&seen.claims, &claim.group_resource);
        let (gone, staying): (Vec<_>, Vec<_>) = listed.iter().cloned().partition(is_rejected);
        let cleanup = &resources(&gone) - &elsewhere(&seen.claims);
        let going: Vec<_> = gone.into_iter().filter(|claim| !done(claim)).collect();
        return Some(ClaimsPlan {
            rejected: seen.binding.spec.rejected_permission_claims.clone(),
            cleanup,
            withdrawn: resources(&going).into_iter().collect(),
            listed: staying.into_iter().chain(going).collect(),
            namespaces: namespaces_as_they_are(seen),
            ..ClaimsPlan::default()
        });
    }
    let (session, export) = (seen.session.as_ref()?, seen.export()?);
    let mut claims = sorted(seen, export);
    if claims.record.is_some() {
        // Until the record is written, nothing changes.
        return Some(ClaimsPlan {
            record: claims.record,
            ..as_they_are(seen)
        });
    }
    let place = place(seen, export)?;
    let effective = resources(&claims.effective);
    // An ended claim stays registered with the session until the status no longer lists it.
    let gone: Vec<_> = listed
        .iter()
        .filter(|claim| !effective.contains(&claim.group_resource))
        .cloned()
        .collect();
    let going: Vec<_> = gone
        .iter()
        .filter(|claim| !is_withdrawn(&seen.claims, &claim.group_resource))
        .cloned()
        .collect();
    let noted = resources(listed);
    let accepted: Vec<_> = claims
        .effective
        .iter()
        .filter(|claim| noted.contains(&claim.group_resource))
        .cloned()
        .collect();
    claims.namespaces = namespaces::plan(seen);
    if !accepted.is_empty() || !gone.is_empty() {
        let withdrawn = resources(&gone).into_iter().collect();
        let namespaces = &claims.namespaces;
        claims.spec = Some(spec(seen, session.id, export, place, namespaces, accepted, withdrawn));
    }
    claims.withdrawn = resources(&going).into_iter().collect();
    claims.listed = claims.effective.iter().cloned().chain(going).collect();
    if claims.listed.is_empty() {
        // Nothing is claimed, so there are no copies.
        claims.namespaces.listed.clear();
    }
    Some(claims)
}

/// The claims of a binding whose contract cannot be verified: what is registered stays, paused by the runtime of the binding, and nothing
/// else takes effect. What the export claims is recorded all the same, so that the provider cannot claim more before the contract is
/// verified. `None` if nothing is claimed or to record.
pub fn unverified(seen: &ObservedBinding) -> Option<ClaimsPlan> {
    let export = seen.export();
    let record = export.and_then(|export| sorted(seen, export).record);
    let is_claimed = |export: &Arc<APIServiceExport>| !export.spec.permission_claims.is_empty();
    let is_any = record.is_some() || !listed_claims(seen).is_empty() || export.is_some_and(is_claimed);
    is_any.then(|| ClaimsPlan {
        record,
        is_unverified: true,
        ..as_they_are(seen)
    })
}

/// What is listed and registered, without a change.
fn as_they_are(seen: &ObservedBinding) -> ClaimsPlan {
    ClaimsPlan {
        listed: listed_claims(seen).to_vec(),
        spec: seen.claims.running.clone(),
        namespaces: namespaces_as_they_are(seen),
        ..ClaimsPlan::default()
    }
}

/// The namespaces that the status lists, without a change.
fn namespaces_as_they_are(seen: &ObservedBinding) -> ClaimNamespaces {
    let status = seen.binding.status.as_ref();
    let recorded = recorded_namespaces(&seen.binding);
    ClaimNamespaces {
        effective: recorded.clone(),
        watched: recorded,
        listed: status.map_or_else(Vec::new, |status| status.claim_namespaces.clone()),
        is_leaving: false,
    }
}

/// Returns the steps to register these claims and to clean up these resources.
pub fn steps(seen: &ObservedBinding, spec: Option<&ClaimSpec>, cleanup: &BTreeSet<GroupResource>) -> Vec<BindingOp> {
    let mut ops = Vec::new();
    match spec {
        Some(spec) if seen.claims.running.as_ref() != Some(spec) => {
            ops.push(BindingOp::SetClaims(Box::new(spec.clone())));
        }
        None if seen.claims.running.is_some() => ops.push(BindingOp::RemoveClaims),
        Some(_) | None => {}
    }
    match &seen.claims.cleanup {
        Some((running, _)) if running == cleanup => {}
        None if cleanup.is_empty() => {}
        Some(_) if cleanup.is_empty() => ops.push(BindingOp::StopCleanup),
        Some(_) | None => {
            let resources = cleanup.clone();
            ops.extend(seen.pinned().map(|contract| BindingOp::StartCleanup {
                contract_uid: contract.to_owned(),
                resources,
            }));
        }
    }
    ops
}

/// Sorts the claims of an export by what the user and the konnector permit.
fn sorted(seen: &ObservedBinding, export: &APIServiceExport) -> ClaimsPlan {
    let accepted = Accepted::of(&seen.binding);
    let mut claims = ClaimsPlan {
        is_unreadable: accepted == Accepted::Unreadable && !export.spec.permission_claims.is_empty(),
        ..ClaimsPlan::default()
    };
    // Without a readable record, the claims in the status stay in effect.
    let accepted = match accepted {
        Accepted::Unreadable => Accepted::Claims(listed_claims(seen).to_vec()),
        accepted => accepted,
    };
    for claim in &export.spec.permission_claims {
        let resource = &claim.group_resource;
        if is_rejected(seen, resource) {
            claims.rejected.push(resource.clone());
        } else if let Some(why) = refusal(export, resource) {
            claims.refused.push((resource.clone(), why));
        } else if accepted == Accepted::Unrecorded || accepted.covers(claim) {
            claims.effective.push(claim.clone());
        } else {
            claims.unaccepted.push(resource.clone());
        }
    }
    if accepted == Accepted::Unrecorded {
        // The claims take effect once they are recorded, since the export may claim more after a crash.
        claims.record = Some(export.spec.permission_claims.clone());
    }
    claims.rejected.dedup();
    claims.refused.dedup();
    claims.unaccepted.dedup();
    // Accepted claims stay in effect, whatever else the export claims.
    for resource in &claims.unaccepted {
        claims.effective.retain(|claim| claim.group_resource != *resource);
        claims.effective.extend(accepted.on(resource).cloned());
    }
    claims
}

/// Why the konnector refuses a claim, if it does.
fn refusal(export: &APIServiceExport, resource: &GroupResource) -> Option<&'static str> {
    let is_bound = export
        .spec
        .resources
        .iter()
        .any(|bound| bound.group_resource == *resource);
    if is_bound {
        Some("the same export binds this resource, so all its objects are synced already")
    } else if resource.is_core() {
        (!is_claimable_core(resource))
            .then_some("of the core group only configmaps, secrets and serviceaccounts can be claimed")
    } else {
        names::owner_of_group(&resource.group).map(|_| "its group belongs to Kubernetes or kube-bind")
    }
}

/// Returns the claims of a binding as the session has to know them.
fn spec(
    seen: &ObservedBinding,
    session: u64,
    export: &APIServiceExport,
    placement: ClaimedPlacement,
    namespaces: &ClaimNamespaces,
    accepted: Vec<PermissionClaim>,
    withdrawn: Vec<GroupResource>,
) -> ClaimSpec {
    let mut concerned = resources(&accepted);
    concerned.extend(withdrawn.iter().cloned());
    let claimed = resources(&export.spec.permission_claims);
    let dropped = withdrawn.iter().filter(|resource| !claimed.contains(resource));
    ClaimSpec {
        session,
        wanted: Wanted {
            export: owner_reference(export),
            placement,
            informer_scope: export.spec.informer_scope,
            cluster_wide_secrets: is_annotated(&export.metadata, annotations::CLUSTER_WIDE_SECRETS),
            cluster_scoped_namespace: export.spec.cluster_scoped_namespace.clone(),
            claim_namespaces: namespaces.effective.clone(),
            watched_namespaces: namespaces.watched.clone(),
            claim_secret_types: seen.binding.spec.claim_secret_types.clone(),
            bound: export
                .spec
                .resources
                .iter()
                .map(|bound| bound.group_resource.clone())
                .collect(),
            accepted,
            dropped: dropped.cloned().collect(),
            withdrawn,
            kept: kept(&seen.claims, &concerned),
            paused: false,
            relink: false,
        },
    }
}

/// The claims of other bindings on these resources, by name of the binding.
fn kept(seen: &ObservedClaims, concerned: &BTreeSet<GroupResource>) -> BTreeMap<String, Vec<PermissionClaim>> {
    let mut kept = seen.elsewhere.clone();
    for claims in kept.values_mut() {
        claims.retain(|claim| concerned.contains(&claim.group_resource));
    }
    kept.retain(|_, claims| !claims.is_empty());
    kept
}

/// The resources that other bindings claim.
fn elsewhere(seen: &ObservedClaims) -> BTreeSet<GroupResource> {
    resources(seen.elsewhere.values().flatten())
}

/// Where claimed objects are placed on the provider; `None` while the schemas that decide it are not known.
fn place(seen: &ObservedBinding, export: &APIServiceExport) -> Option<ClaimedPlacement> {
    let scopes = crd_names(export).map(|name| match seen.schemas.get(&name)? {
        ObservedSchema::Unknown | ObservedSchema::Unreadable => None,
        ObservedSchema::Present(schema) => Some(schema.spec.scope),
        // No schema will come, and a withdrawal does not wait for it.
        ObservedSchema::Missing => Some(Scope::Namespaced),
    });
    ClaimedPlacement::of_export(export.spec.isolation, scopes)
}

/// The claims that the status lists.
fn listed_claims(seen: &ObservedBinding) -> &[PermissionClaim] {
    let status = seen.binding.status.as_ref();
    status.map_or(&[], |status| status.permission_claims.as_slice())
}

/// Returns the resources that these claims are about.
fn resources<'a>(claims: impl IntoIterator<Item = &'a PermissionClaim>) -> BTreeSet<GroupResource> {
    claims.into_iter().map(|claim| claim.group_resource.clone()).collect()
}

/// Whether the user rejected the claims on a resource.
fn is_rejected(seen: &ObservedBinding, resource: &GroupResource) -> bool {
    seen.binding.spec.rejected_permission_claims.contains(resource)
}

/// Whether the session has withdrawn the claims on a resource.
fn is_withdrawn(seen: &ObservedClaims, resource: &GroupResource) -> bool {
    let told = seen
        .running
        .as_ref()
        .is_some_and(|running| running.wanted.withdrawn.contains(resource));
    let progress = seen.progress.claims.get(resource);
    told && progress.is_some_and(|progress| progress.remaining == Some(0))
}

/// Whether a resource was cleaned up, or must not be because another binding claims it.
fn is_cleaned(seen: &ObservedClaims, resource: &GroupResource) -> bool {
    let done = seen
        .cleanup
        .as_ref()
        .is_some_and(|(running, released)| running.contains(resource) && released.remaining == Some(0));
    done || elsewhere(seen).contains(resource)
}

#[cfg(test)]
#[path = "tests/claims.rs"]
mod tests;
