//! The end of claims: how all are withdrawn, and what stays nonetheless.

use std::collections::BTreeSet;

use bindery_api::v1alpha2::{GroupResource, PermissionClaim};

use super::{Op, elsewhere, is_cleaned, is_withdrawn, noted, place, resources, spec, steps};
use crate::binding::observe::Observed;

/// How the withdrawal of all claims stands, of a binding that is being deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct Withdrawal {
    /// The steps.
    pub ops: Vec<Op>,
    /// What the status is to list.
    pub listed: Vec<PermissionClaim>,
    /// Copies that are left; `None` while they are not counted.
    pub left: Option<usize>,
    /// What is amiss.
    pub problem: Option<String>,
}

/// Who answers for copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The session of that number, on both clusters.
    Session(u64),
    /// Nobody: those on the consumer alone go.
    Cleanup,
}

/// Withdraws all claims, of a binding that is being deleted and whose objects are gone; `None` when that is done.
pub fn withdraw(seen: &Observed, by: By) -> Option<Withdrawal> {
    let listed = noted(seen);
    match by {
        By::Session(session) => {
            let left: Vec<_> = listed
                .iter()
                .filter(|claim| !is_withdrawn(&seen.claims, &claim.group_resource))
                .cloned()
                .collect();
            let export = seen.export().filter(|_| !left.is_empty())?;
            let Some(place) = place(seen, export) else {
                // Whoever looks in the wrong place finds nothing there.
                return Some(Withdrawal {
                    ops: Vec::new(),
                    listed: left,
                    left: None,
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
            let spec = spec(seen, session, export, place, Vec::new(), withdrawn);
            Some(Withdrawal {
                ops: steps(seen, Some(&spec), &BTreeSet::new()),
                listed: left,
                left: count.filter(|_| seen.claims.running.as_ref() == Some(&spec)),
                problem,
            })
        }
        By::Cleanup => {
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
                left: released.and_then(|released| released.remaining),
                problem: released.and_then(|released| released.problem.clone()),
            })
        }
    }
}

/// Says of claims that were withdrawn and are about to leave the status what may be left of them.
pub fn left_behind(seen: &Observed) -> Option<String> {
    let of = |resource: &GroupResource| seen.claims.progress.claims.get(resource);
    let is_left = |resource: &GroupResource| {
        is_withdrawn(&seen.claims, resource) && of(resource).is_some_and(|progress| progress.out_of_reach)
    };
    let left: Vec<_> = resources(noted(seen)).into_iter().filter(is_left).collect();
    if left.is_empty() {
        return None;
    }
    let names: Vec<_> = left.iter().map(ToString::to_string).collect();
    Some(format!(
        "the provider claims {} no more and gives no right to withdraw what it has: copies may be left there; ask its admin \
         to delete them",
        names.join(", ")
    ))
}
