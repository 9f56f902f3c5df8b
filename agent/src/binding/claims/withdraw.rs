//! Withdraws all claims of a binding, and tells which copies cannot be withdrawn.

use std::collections::BTreeSet;

use bindery_api::v1alpha2::{GroupResource, PermissionClaim};

use super::{
    elsewhere, is_cleaned, is_withdrawn, listed_claims, namespaces_as_they_are, place, resources, spec, steps,
};
use crate::binding::{observed::ObservedBinding, op::BindingOp};

/// Progress of the withdrawal of all claims of a binding that is being deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct Withdrawal {
    /// The next steps.
    pub ops: Vec<BindingOp>,
    /// Claims that the status has to list.
    pub listed: Vec<PermissionClaim>,
    /// Count of copies that are left; `None` while they are not counted.
    pub remaining: Option<usize>,
    /// What keeps copies from being deleted.
    pub problem: Option<String>,
}

/// How copies of claimed objects are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawer {
    /// By the session of that number, on both clusters.
    Session(u64),
    /// Without the provider, on the consumer only.
    Cleanup,
}

/// Withdraws all claims of a binding that is being deleted and has no objects left; `None` when that is done.
pub fn withdraw(seen: &ObservedBinding, by: Withdrawer) -> Option<Withdrawal> {
    let listed = listed_claims(seen);
    match by {
        Withdrawer::Session(session) => {
            let remaining: Vec<_> = listed
                .iter()
                .filter(|claim| !is_withdrawn(&seen.claims, &claim.group_resource))
                .cloned()
                .collect();
            let export = seen.export().filter(|_| !remaining.is_empty())?;
            let Some(place) = place(seen, export) else {
                // In the wrong place no copy would be found.
                return Some(Withdrawal {
                    ops: Vec::new(),
                    listed: remaining,
                    remaining: None,
                    problem: None,
                });
            };
            let withdrawn: Vec<_> = resources(listed).into_iter().collect();
            let of = |resource| seen.claims.progress.claims.get(resource);
            let count = withdrawn
                .iter()
                .map(|resource| of(resource)?.remaining)
                .sum::<Option<usize>>();
            let problem = withdrawn.iter().find_map(|resource| {
                let problem = of(resource)?.problem.as_ref()?;
                Some(format!("{resource}: {}", problem.message))
            });
            let namespaces = namespaces_as_they_are(seen);
            let spec = spec(seen, session, export, place, &namespaces, Vec::new(), withdrawn);
            Some(Withdrawal {
                ops: steps(seen, Some(&spec), &BTreeSet::new()),
                listed: remaining,
                remaining: count.filter(|_| seen.claims.running.as_ref() == Some(&spec)),
                problem,
            })
        }
        Withdrawer::Cleanup => {
            let cleanup = &resources(listed) - &elsewhere(&seen.claims);
            let is_done = cleanup.iter().all(|resource| is_cleaned(&seen.claims, resource));
            if is_done || seen.pinned().is_none() {
                return None;
            }
            let released = seen
                .claims
                .cleanup
                .as_ref()
                .filter(|(running, _)| *running == cleanup)
                .map(|(_, released)| released);
            Some(Withdrawal {
                ops: steps(seen, None, &cleanup),
                listed: listed.to_vec(),
                remaining: released.and_then(|released| released.remaining),
                problem: released.and_then(|released| released.problem.clone()),
            })
        }
    }
}

/// Returns a message about withdrawn claims whose copies on the provider the konnector has no right to delete.
pub fn abandoned_copies(seen: &ObservedBinding) -> Option<String> {
    let of = |resource: &GroupResource| seen.claims.progress.claims.get(resource);
    let is_out_of_reach = |resource: &GroupResource| {
        is_withdrawn(&seen.claims, resource) && of(resource).is_some_and(|progress| progress.out_of_reach)
    };
    let resources = resources(listed_claims(seen));
    let names: Vec<_> = resources
        .iter()
        .filter(|resource| is_out_of_reach(resource))
        .map(ToString::to_string)
        .collect();
    if names.is_empty() {
        return None;
    }
    Some(format!(
        "the provider no longer claims {} and gives no right to delete its copies: copies may be left there; ask its admin \
         to delete them",
        names.join(", ")
    ))
}
