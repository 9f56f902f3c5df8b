//! What becomes of the claims of a binding: which are in effect, which are being withdrawn, and what runs for that.
//!
//! The status lists both, and a claim is acted upon only once it stands there: whoever comes after a crash, or after the
//! user has rejected a claim meanwhile, knows of what copies may be left.

use std::collections::{BTreeMap, BTreeSet};

use bindery_api::{
    Accepted, annotations, names,
    v1alpha2::{APIServiceExport, GroupResource, Isolation, PermissionClaim, Scope},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;

use super::{
    observe::{self, Observed},
    plan::Op,
    resource::Schema,
};

use crate::{
    claims::{Progress, Wanted},
    references::Place,
    release::Released,
};

mod withdraw;

pub use withdraw::{By, Withdrawal, left_behind, withdraw};

/// Resources of the core group that may be claimed.
const CLAIMABLE: [&str; 3] = ["configmaps", "secrets", "serviceaccounts"];

/// What is seen of the claims of a binding.
#[derive(Clone, Debug, Default)]
pub struct ClaimsSeen {
    /// What the session was told to do.
    pub running: Option<Spec>,
    /// How that goes.
    pub progress: Progress,
    /// What is cleaned up without the provider, and how that goes.
    pub cleanup: Option<(BTreeSet<GroupResource>, Released)>,
    /// What other bindings of the contract claim as their status says, by their names.
    pub elsewhere: BTreeMap<String, Vec<PermissionClaim>>,
}

/// What a session is told to do for a binding.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The session.
    pub session: u64,
    /// What is wanted, but for a pause and for the consent to a takeover, which come and go apart.
    pub wanted: Wanted,
}

/// The claims of a binding, sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims {
    /// In effect.
    pub effective: Vec<PermissionClaim>,
    /// Rejected by the user.
    pub rejected: Vec<GroupResource>,
    /// Refused here, and why.
    pub refused: Vec<(GroupResource, &'static str)>,
    /// Wider than what the user has accepted, of which no more than that is in effect.
    pub unaccepted: Vec<GroupResource>,
    /// What the user has accepted cannot be read: nothing new is in effect.
    pub is_unreadable: bool,
    /// What is to be recorded as accepted, where nothing is.
    pub record: Option<Vec<PermissionClaim>>,
    /// Not in effect any more, though copies may be left.
    pub withdrawn: Vec<GroupResource>,
    /// What the status is to list.
    pub listed: Vec<PermissionClaim>,
    /// What the session is to do, if anything.
    pub spec: Option<Spec>,
    /// What is to be cleaned up without the provider.
    pub cleanup: BTreeSet<GroupResource>,
}

/// Sorts the claims of a binding that is not being deleted; `None` while too little is known.
pub fn sorted(seen: &Observed) -> Option<Claims> {
    let listed = noted(seen);
    if seen.export_is_gone() {
        // Nobody syncs them any more, and what the provider gave stays with what it is for. What was rejected goes.
        let is_rejected = |claim: &PermissionClaim| is_rejected(seen, &claim.group_resource);
        let done = |claim: &PermissionClaim| is_cleaned(&seen.claims, &claim.group_resource);
        let (gone, staying): (Vec<_>, Vec<_>) = listed.iter().cloned().partition(is_rejected);
        let cleanup = &resources(&gone) - &elsewhere(&seen.claims);
        let going: Vec<_> = gone.into_iter().filter(|claim| !done(claim)).collect();
        return Some(Claims {
            rejected: seen.binding.spec.rejected_permission_claims.clone(),
            cleanup,
            withdrawn: resources(&going).into_iter().collect(),
            listed: staying.into_iter().chain(going).collect(),
            ..Claims::default()
        });
    }
    let (session, export) = (seen.session.as_ref()?, seen.export()?);
    let place = place(seen, export)?;
    let mut claims = judged(seen, export);
    if claims.record.is_some() {
        // Until then all stays as it is.
        return Some(Claims {
            record: claims.record,
            listed: listed.to_vec(),
            spec: seen.claims.running.clone(),
            ..Claims::default()
        });
    }
    let effective = resources(&claims.effective);
    // One that is withdrawn stays with the session until the status has lost it.
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
    if !accepted.is_empty() || !gone.is_empty() {
        let withdrawn = resources(&gone).into_iter().collect();
        claims.spec = Some(spec(seen, session.id, export, place, accepted, withdrawn));
    }
    claims.withdrawn = resources(&going).into_iter().collect();
    claims.listed = claims.effective.iter().cloned().chain(going).collect();
    Some(claims)
}

/// The steps towards that.
pub fn steps(seen: &Observed, spec: Option<&Spec>, cleanup: &BTreeSet<GroupResource>) -> Vec<Op> {
    let mut ops = Vec::new();
    match spec {
        Some(spec) if seen.claims.running.as_ref() != Some(spec) => ops.push(Op::Claim(Box::new(spec.clone()))),
        None if seen.claims.running.is_some() => ops.push(Op::Unclaim),
        Some(_) | None => {}
    }
    match &seen.claims.cleanup {
        Some((running, _)) if running == cleanup => {}
        None if cleanup.is_empty() => {}
        Some(_) if cleanup.is_empty() => ops.push(Op::StopCleanup),
        Some(_) | None => {
            let resources = cleanup.clone();
            ops.extend(seen.pinned().map(|contract| Op::Cleanup {
                contract_uid: contract.to_owned(),
                resources,
            }));
        }
    }
    ops
}

/// What the export claims, judged.
fn judged(seen: &Observed, export: &APIServiceExport) -> Claims {
    let accepted = Accepted::of(&seen.binding);
    let mut claims = Claims {
        is_unreadable: accepted == Accepted::Unreadable && !export.spec.permission_claims.is_empty(),
        ..Claims::default()
    };
    // Where that cannot be read, what the status lists stays in effect.
    let accepted = match accepted {
        Accepted::Unreadable => Accepted::Claims(noted(seen).to_vec()),
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
        // In effect from when that is written: what is claimed after a crash may be more.
        claims.record = Some(export.spec.permission_claims.clone());
    }
    claims.rejected.dedup();
    claims.refused.dedup();
    claims.unaccepted.dedup();
    // What was accepted goes on, whatever else is claimed.
    for resource in &claims.unaccepted {
        claims.effective.retain(|claim| claim.group_resource != *resource);
        claims.effective.extend(accepted.on(resource).cloned());
    }
    claims
}

/// Why a claim is not acted upon, whatever the provider says.
fn refusal(export: &APIServiceExport, resource: &GroupResource) -> Option<&'static str> {
    let is_bound = export
        .spec
        .resources
        .iter()
        .any(|bound| bound.group_resource == *resource);
    if is_bound {
        Some("the same export binds it, and what is bound is synced whole")
    } else if resource.is_core() {
        let may = CLAIMABLE.contains(&resource.resource.as_str());
        (!may).then_some("of the core group configmaps, secrets and serviceaccounts alone can be claimed")
    } else {
        names::owner_of_group(&resource.group).map(|_| "its group is Kubernetes' or kube-bind's own")
    }
}

fn spec(
    seen: &Observed,
    session: u64,
    export: &APIServiceExport,
    place: Place,
    accepted: Vec<PermissionClaim>,
    withdrawn: Vec<GroupResource>,
) -> Spec {
    let mark = export.annotations().get(annotations::CLUSTER_WIDE_SECRETS);
    let mut concerned = resources(&accepted);
    concerned.extend(withdrawn.iter().cloned());
    let claimed = resources(&export.spec.permission_claims);
    let dropped = withdrawn.iter().filter(|resource| !claimed.contains(resource));
    Spec {
        session,
        wanted: Wanted {
            export: owner(export),
            place,
            informer_scope: export.spec.informer_scope,
            cluster_wide_secrets: mark.is_some_and(|mark| mark == annotations::TRUE),
            cluster_scoped_namespace: export.spec.cluster_scoped_namespace.clone(),
            accepted,
            dropped: dropped.cloned().collect(),
            withdrawn,
            kept: kept(&seen.claims, &concerned),
            paused: false,
            relink: false,
        },
    }
}

/// What others claim of these resources.
fn kept(seen: &ClaimsSeen, concerned: &BTreeSet<GroupResource>) -> BTreeMap<String, Vec<PermissionClaim>> {
    let mut kept = seen.elsewhere.clone();
    for claims in kept.values_mut() {
        claims.retain(|claim| concerned.contains(&claim.group_resource));
    }
    kept.retain(|_, claims| !claims.is_empty());
    kept
}

/// The resources that others claim.
fn elsewhere(seen: &ClaimsSeen) -> BTreeSet<GroupResource> {
    resources(seen.elsewhere.values().flatten())
}

fn owner(export: &APIServiceExport) -> OwnerReference {
    observe::owner(&export.name_any(), export.metadata.uid.as_deref().unwrap_or_default())
}

/// Where claimed objects live on the provider; `None` while the schemas that decide it are not known.
fn place(seen: &Observed, export: &APIServiceExport) -> Option<Place> {
    if export.spec.isolation != Isolation::None {
        return Some(Place::Mapped);
    }
    let mut place = Place::Mapped;
    for name in observe::crd_names(export) {
        match seen.schemas.get(&name).unwrap_or(&Schema::Unknown) {
            Schema::Unknown => return None,
            Schema::Present(schema) if schema.spec.scope == Scope::Cluster => place = Place::Shared,
            Schema::Present(_) | Schema::Missing => {}
        }
    }
    Some(place)
}

/// The claims that the status lists.
fn noted(seen: &Observed) -> &[PermissionClaim] {
    let status = seen.binding.status.as_ref();
    status.map_or(&[], |status| status.permission_claims.as_slice())
}

fn resources<'a>(claims: impl IntoIterator<Item = &'a PermissionClaim>) -> BTreeSet<GroupResource> {
    claims.into_iter().map(|claim| claim.group_resource.clone()).collect()
}

fn is_rejected(seen: &Observed, resource: &GroupResource) -> bool {
    seen.binding.spec.rejected_permission_claims.contains(resource)
}

/// Whether the session was told to withdraw a resource, and has.
fn is_withdrawn(seen: &ClaimsSeen, resource: &GroupResource) -> bool {
    let told = seen
        .running
        .as_ref()
        .is_some_and(|running| running.wanted.withdrawn.contains(resource));
    let progress = seen.progress.claims.get(resource);
    told && progress.is_some_and(|progress| progress.remaining == Some(0))
}

/// Whether a resource was cleaned up, or is nobody's to clean up.
fn is_cleaned(seen: &ClaimsSeen, resource: &GroupResource) -> bool {
    let done = seen
        .cleanup
        .as_ref()
        .is_some_and(|(running, released)| running.contains(resource) && released.remaining == Some(0));
    done || elsewhere(seen).contains(resource)
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
