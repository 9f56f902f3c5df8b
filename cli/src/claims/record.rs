//! The record on a binding of the claims that were accepted. Only recorded claims take effect.

use std::collections::BTreeSet;

use bindery_api::{
    Accepted,
    v1alpha2::{APIServiceBinding, GroupResource, PermissionClaim, Selector},
};

/// The part of a claim that was not accepted; none if all of it was.
pub(crate) fn news(accepted: &Accepted, claim: &PermissionClaim) -> Option<PermissionClaim> {
    if *accepted == Accepted::Unrecorded || accepted.covers(claim) {
        return None;
    }
    let part = |selector: Selector| PermissionClaim {
        group_resource: claim.group_resource.clone(),
        selector,
    };
    let is_new = |selector: Selector| !accepted.covers(&part(selector));
    let mut selector = claim.selector.clone();
    selector.label_selector = selector.label_selector.filter(|labels| {
        is_new(Selector {
            label_selector: Some(labels.clone()),
            ..Selector::default()
        })
    });
    selector.named_resources.retain(|named| {
        is_new(Selector {
            named_resources: vec![named.clone()],
            ..Selector::default()
        })
    });
    selector.references.retain(|reference| {
        is_new(Selector {
            references: vec![reference.clone()],
            ..Selector::default()
        })
    });
    Some(part(selector))
}

/// The new record after the user accepts some claims as they are offered now and rejects others; none if it stays the same.
pub(crate) fn record_after(
    binding: &APIServiceBinding,
    offered: Option<&[PermissionClaim]>,
    accept: &BTreeSet<GroupResource>,
    reject: &BTreeSet<GroupResource>,
) -> Option<Vec<PermissionClaim>> {
    let before = match Accepted::of(binding) {
        // Without a record, all that is claimed now counts as accepted, and the konnector will record it.
        Accepted::Unrecorded if accept.is_empty() => return None,
        Accepted::Unrecorded => offered?.to_vec(),
        Accepted::Claims(claims) => claims,
        Accepted::Unreadable => Vec::new(),
    };
    let is_accepted = |claim: &&PermissionClaim| accept.contains(&claim.group_resource);
    let kept = before
        .iter()
        .filter(|claim| !reject.contains(&claim.group_resource) && (offered.is_none() || !is_accepted(claim)));
    let mut after: Vec<_> = kept
        .chain(offered.unwrap_or_default().iter().filter(is_accepted))
        .cloned()
        .collect();
    after.sort_by(|one, other| one.group_resource.cmp(&other.group_resource));
    (Accepted::of(binding) != Accepted::Claims(after.clone())).then_some(after)
}

#[cfg(test)]
mod tests;
