//! The condition of a binding about its claims.

use std::collections::BTreeSet;

use bindery_api::{
    Condition, Severity, annotations,
    conditions::{CONTRACT_UNVERIFIED, false_condition, true_condition},
    v1alpha2::{GroupResource, PermissionClaim, Selector},
};

use super::{sync::before, types};
use crate::{
    binding::{claims::ClaimsPlan, observed::ObservedBinding, plan::BindingPlan},
    claims::Progress,
    engine::Cause,
    rights,
};

/// The condition PermissionClaimsInSync; `None` if nothing is claimed.
pub(super) fn in_sync(seen: &ObservedBinding, plan: &BindingPlan) -> Option<Condition> {
    let Some(claims) = plan.claims.as_ref().filter(|claims| claims.record.is_none()) else {
        // Until the claims are known, the condition stays as it is.
        return before(seen, types::PERMISSION_CLAIMS_IN_SYNC);
    };
    let progress = &seen.claims.progress;
    let of = |severity, reason: &str, message: String| {
        false_condition(
            types::PERMISSION_CLAIMS_IN_SYNC,
            severity,
            reason,
            with_rejected(message, claims),
        )
    };
    Some(if claims.is_unverified {
        of(
            Severity::Warning,
            CONTRACT_UNVERIFIED,
            "claimed objects are not synced while the contract cannot be verified; condition ProviderAccessComplete says why".to_owned(),
        )
    } else if claims.is_unreadable {
        let message = format!(
            "the annotation {record} is not a list of claims, so no new claim takes effect, and claims in effect stay; to accept \
             what is claimed now: {}",
            how_to_accept(seen),
            record = annotations::ACCEPTED_CLAIMS,
        );
        of(Severity::Warning, "AcceptedClaimsUnreadable", message)
    } else if let Some((resource, why)) = claims.refused.first() {
        let message = format!("{resource}: this claim is refused: {why}; ask the provider for an export without it");
        of(Severity::Warning, "ClaimRefused", message)
    } else if let Some(resource) = claims.unaccepted.first() {
        let message = format!(
            "{resource}: the provider claims more than was accepted, and only what was accepted is in effect; to accept what it \
             claims now ({}): {}",
            now_claimed(seen, resource),
            how_to_accept(seen),
        );
        of(Severity::Warning, "ClaimNotAccepted", message)
    } else if let Some((reason, message)) = problem(seen, claims, progress) {
        of(Severity::Warning, reason, message)
    } else if !claims.withdrawn.is_empty() {
        of(Severity::Info, "Withdrawing", withdrawing(seen, &claims.withdrawn))
    } else if claims.namespaces.is_leaving {
        let resources: BTreeSet<_> = claims
            .effective
            .iter()
            .map(|claim| claim.group_resource.clone())
            .collect();
        let resources: Vec<_> = resources.into_iter().collect();
        let message = format!(
            "copies in namespaces that spec.claimNamespaces does not list are withdrawn: {}",
            withdrawing(seen, &resources)
        );
        of(Severity::Info, "Withdrawing", message)
    } else if claims.effective.iter().any(|claim| !is_synced(progress, claim)) {
        let waiting: BTreeSet<_> = claims
            .effective
            .iter()
            .filter(|claim| !is_synced(progress, claim))
            .map(|claim| claim.group_resource.to_string())
            .collect();
        let waiting: Vec<_> = waiting.into_iter().collect();
        let message = format!("waiting for the first lists of {}", waiting.join(", "));
        of(Severity::Info, "ClaimsSyncing", message)
    } else if claims.effective.is_empty() && claims.rejected.is_empty() {
        return None;
    } else {
        let told: Vec<_> = claims
            .effective
            .iter()
            .map(|claim| told(seen, progress, claim))
            .collect();
        Condition {
            message: with_rejected(told.join("; "), claims),
            ..true_condition(types::PERMISSION_CLAIMS_IN_SYNC)
        }
    })
}

/// Tells how the user accepts what is claimed now.
fn how_to_accept(seen: &ObservedBinding) -> String {
    match &seen.bundle {
        Some(bundle) => format!(
            "add it to spec.acceptedClaims of APIServiceBindingBundle {}",
            bundle.name
        ),
        None => format!(
            "kubectl annotate apiservicebinding {} {}-",
            seen.name(),
            annotations::ACCEPTED_CLAIMS
        ),
    }
}

/// Reason and message of the first claim that fails, in effect or being withdrawn.
fn problem(seen: &ObservedBinding, claims: &ClaimsPlan, progress: &Progress) -> Option<(&'static str, String)> {
    let effective = claims.effective.iter().map(|claim| &claim.group_resource);
    effective.chain(&claims.withdrawn).find_map(|resource| {
        let problem = progress.claims.get(resource)?.problem.as_ref()?;
        let reason = match problem.cause {
            Cause::ConsumerForbids | Cause::ProviderForbids => "RightsMissing",
            Cause::Unreachable | Cause::Invalid | Cause::Orphan | Cause::Other => "ClaimFailing",
        };
        let mut message = format!("{resource}: {}", problem.message);
        if problem.cause == Cause::ConsumerForbids {
            let role = seen.rights_role();
            let (group, plural) = (&resource.group, &resource.resource);
            // A bundle has one ClusterRole for all that its bindings need.
            let watched = claims.namespaces.watched.as_ref().filter(|_| seen.bundle.is_none());
            let namespace = problem.namespace.as_deref();
            let namespace = namespace.filter(|namespace| watched.is_some_and(|watched| watched.contains(*namespace)));
            let mend = match namespace {
                Some(namespace) => rights::claimed_resource_in(&role, namespace, group, plural),
                None => rights::claimed_resource(&role, group, plural),
            };
            message = format!("{message}; {mend}");
        }
        Some((reason, message))
    })
}

/// Describes in short what the export claims of a resource.
fn now_claimed(seen: &ObservedBinding, resource: &GroupResource) -> String {
    let export = seen.export();
    let claims = export.iter().flat_map(|export| &export.spec.permission_claims);
    let told: Vec<_> = claims
        .filter(|claim| claim.group_resource == *resource)
        .map(|claim| reach(&claim.selector))
        .collect();
    told.join(", ")
}

/// Describes in short which objects a claim selects.
fn reach(selector: &Selector) -> String {
    if selector.selects_all() {
        return "every object".to_owned();
    }
    let labels = selector.label_selector.is_some().then(|| "some by label".to_owned());
    let count = |number: usize, how: &str| (number > 0).then(|| format!("{number} by {how}"));
    let parts = [
        labels,
        count(selector.named_resources.len(), "name"),
        count(selector.references.len(), "reference"),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return "nothing".to_owned();
    }
    let mut told = vec![parts.join(" and ")];
    told.extend(chosen_by_others(selector).into_iter().map(str::to_owned));
    told.join(", ")
}

/// Tells which other parties choose what is claimed, besides the user who accepts the claim.
fn chosen_by_others(selector: &Selector) -> Vec<&'static str> {
    let root = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
    let paths = || selector.references.iter().map(|reference| &reference.json_path);
    let by_provider = paths().any(|path| root(&path.name) == "status");
    let by_users = paths().any(|path| {
        let namespace = path.namespace.as_deref().filter(|namespace| !namespace.is_empty());
        namespace.is_some_and(|namespace| namespace != "metadata.namespace" && root(namespace) != "status")
    });
    let told = [
        (by_provider, "by names that the provider writes into status"),
        (by_users, "in any namespace that a referring object names"),
    ];
    told.into_iter()
        .filter(|(holds, _)| *holds)
        .map(|(_, told)| told)
        .collect()
}

/// Lists how many copies are left to delete of each of these resources.
fn withdrawing(seen: &ObservedBinding, resources: &[GroupResource]) -> String {
    let left = |resource: &GroupResource| seen.claims.progress.claims.get(resource)?.remaining;
    let told: Vec<_> = resources
        .iter()
        .map(|resource| match left(resource) {
            Some(1) => format!("{resource}: 1 copy is left to delete"),
            Some(left) => format!("{resource}: {left} copies are left to delete"),
            None => format!("{resource}: copies are being deleted"),
        })
        .collect();
    told.join("; ")
}

/// Whether the objects of a claim were listed on both clusters.
fn is_synced(progress: &Progress, claim: &PermissionClaim) -> bool {
    let known = progress.claims.get(&claim.group_resource);
    known.is_some_and(|progress| progress.synced)
}

/// Describes a claim in effect, with its object counts.
fn told(seen: &ObservedBinding, progress: &Progress, claim: &PermissionClaim) -> String {
    let resource = &claim.group_resource;
    let mut parts = Vec::new();
    if claim.selector.is_empty() {
        parts.push("selects nothing".to_owned());
    } else if claim.selector.selects_all() {
        parts.push("selects every object".to_owned());
    }
    parts.extend(chosen_by_others(&claim.selector).into_iter().map(str::to_owned));
    if let Some(known) = progress.claims.get(resource) {
        parts.push(format!("{} given to the provider", known.from_consumer));
        parts.push(format!("{} taken from it into {}", known.from_provider, places(seen)));
        if let Some(left_out) = &known.left_out {
            parts.push(format!(
                "annotations, and labels by which no claim selects, are not copied, such as {left_out}; to have a label copied, ask the \
                 provider for a claim that selects by it"
            ));
        }
    }
    format!("{resource}: {}", parts.join(", "))
}

/// Tells into which namespaces objects of the provider come down.
fn places(seen: &ObservedBinding) -> String {
    let listed = &seen.binding.spec.claim_namespaces;
    match listed.as_slice() {
        [] => "namespaces with a bound object".to_owned(),
        listed => format!("namespaces {}", listed.join(", ")),
    }
}

/// Adds the rejected resources to a message.
fn with_rejected(message: String, claims: &ClaimsPlan) -> String {
    if claims.rejected.is_empty() {
        return message;
    }
    let rejected: BTreeSet<_> = claims.rejected.iter().map(ToString::to_string).collect();
    let rejected: Vec<_> = rejected.into_iter().collect();
    let separator = if message.is_empty() { "" } else { "; " };
    format!("{message}{separator}rejected: {}", rejected.join(", "))
}

#[cfg(test)]
#[path = "tests/claims.rs"]
mod tests;
