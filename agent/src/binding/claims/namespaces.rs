//! Decides in which namespaces of the consumer the claims of a binding are in effect.
//!
//! The status lists the namespaces where copies may exist, and a namespace takes effect only once it is listed. So a restarted konnector
//! knows where copies may be left, also if the user has removed a namespace from the spec meanwhile.

use std::collections::BTreeSet;

use bindery_api::v1alpha2::APIServiceBinding;

use crate::{
    binding::observed::{ObservedBinding, ObservedClaims},
    claims::Wanted,
};

/// Some namespaces of the consumer; `None` for all.
type Namespaces = Option<BTreeSet<String>>;

/// In which namespaces the claims of a binding are in effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimNamespaces {
    /// Where claims are in effect now.
    pub effective: Namespaces,
    /// Where objects of the claims and copies may be now.
    pub watched: Namespaces,
    /// What the status has to list.
    pub listed: Vec<String>,
    /// Whether copies may be left outside of the namespaces of the spec.
    pub is_leaving: bool,
}

/// Where copies of a binding may be, by its status; `None` for all namespaces. A binding without claims in effect has no copies.
pub fn recorded(binding: &APIServiceBinding) -> Namespaces {
    let Some(status) = &binding.status else {
        return Some(BTreeSet::new());
    };
    let is_all = status.claim_namespaces.is_empty() && !status.permission_claims.is_empty();
    (!is_all).then(|| status.claim_namespaces.iter().cloned().collect())
}

/// Decides about the namespaces of a binding that is not being deleted.
pub(super) fn plan(seen: &ObservedBinding) -> ClaimNamespaces {
    let listed = &seen.binding.spec.claim_namespaces;
    let spec = (!listed.is_empty()).then(|| listed.iter().cloned().collect());
    decide(spec, recorded(&seen.binding), |effective| {
        is_vacated(&seen.claims, effective)
    })
}

/// Decides what follows from the namespaces of the spec and of the status. `is_vacated` tells whether no copy is left outside of the
/// namespaces where claims are in effect.
fn decide(
    spec: Namespaces,
    recorded: Namespaces,
    is_vacated: impl FnOnce(&BTreeSet<String>) -> bool,
) -> ClaimNamespaces {
    let effective = match (&spec, &recorded) {
        (Some(spec), Some(recorded)) => Some(spec & recorded),
        // The status must not say less than what is in effect, so it changes first.
        (Some(one), None) | (None, Some(one)) => Some(one.clone()),
        (None, None) => None,
    };
    let is_left_over = match (&spec, &recorded) {
        (Some(spec), Some(recorded)) => !recorded.is_subset(spec),
        (spec, recorded) => spec.is_some() && recorded.is_none(),
    };
    let is_leaving = is_left_over && !effective.as_ref().is_some_and(is_vacated);
    let listed = match (spec, &recorded) {
        (None, _) => BTreeSet::new(),
        (Some(_), None) if is_leaving => BTreeSet::new(),
        (Some(spec), Some(recorded)) if is_leaving => &spec | recorded,
        (Some(spec), _) => spec,
    };
    ClaimNamespaces {
        effective,
        watched: recorded,
        listed: listed.into_iter().collect(),
        is_leaving,
    }
}

/// Whether the session, told that claims are in effect in these namespaces alone, has no copy left elsewhere.
fn is_vacated(seen: &ObservedClaims, effective: &BTreeSet<String>) -> bool {
    let Some(running) = &seen.running else {
        return false;
    };
    let Wanted {
        accepted,
        withdrawn,
        claim_namespaces,
        ..
    } = &running.wanted;
    let mut resources = accepted.iter().map(|claim| &claim.group_resource).chain(withdrawn);
    let is_left = |resource| {
        let progress = seen.progress.claims.get(resource);
        progress.and_then(|progress| progress.remaining) != Some(0)
    };
    claim_namespaces.as_ref() == Some(effective) && !resources.any(is_left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// Checks what follows from a spec, a status, and whether copies are left: where claims are in effect, what is listed, and whether
    /// copies are being withdrawn.
    #[track_caller]
    fn check(
        spec: Option<&[&str]>,
        recorded: Option<&[&str]>,
        vacated: bool,
        effective: Option<&[&str]>,
        listed: &[&str],
        is_leaving: bool,
    ) {
        let decided = decide(spec.map(names), recorded.map(names), |_| vacated);
        let expect = ClaimNamespaces {
            effective: effective.map(names),
            watched: recorded.map(names),
            listed: names(listed).into_iter().collect(),
            is_leaving,
        };
        assert_eq!(decided, expect, "{spec:?} {recorded:?}");
    }

    #[test]
    fn a_namespace_takes_effect_once_it_is_listed() {
        check(Some(&["west"]), Some(&[]), false, Some(&[]), &["west"], false);
        check(
            Some(&["west"]),
            Some(&["west"]),
            false,
            Some(&["west"]),
            &["west"],
            false,
        );
        check(
            Some(&["east", "west"]),
            Some(&["west"]),
            false,
            Some(&["west"]),
            &["east", "west"],
            false,
        );
    }

    #[test]
    fn a_namespace_stays_listed_until_no_copy_is_left() {
        let (both, west): (&[&str], &[&str]) = (&["east", "west"], &["west"]);
        check(Some(west), Some(both), false, Some(west), both, true);
        check(Some(west), Some(both), true, Some(west), west, false);
        check(Some(&["north"]), Some(west), false, Some(&[]), &["north", "west"], true);
        check(Some(&["north"]), Some(west), true, Some(&[]), &["north"], false);
    }

    #[test]
    fn claims_without_a_list_are_in_effect_in_all_namespaces() {
        check(None, None, false, None, &[], false);
        check(None, Some(&[]), false, Some(&[]), &[], false);
        // Nothing more is in effect until the status lists no namespace.
        check(None, Some(&["west"]), false, Some(&["west"]), &[], false);
    }

    #[test]
    fn a_first_list_leaves_all_other_namespaces() {
        check(Some(&["west"]), None, false, Some(&["west"]), &[], true);
        check(Some(&["west"]), None, true, Some(&["west"]), &["west"], false);
    }
}
