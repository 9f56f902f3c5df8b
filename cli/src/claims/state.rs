//! How each claim of a binding stands.

use std::collections::BTreeSet;

use bindery_api::{
    Accepted,
    v1alpha2::{APIServiceBinding, GroupResource, PermissionClaim},
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Serialize;

use super::{join, news, selection};
use crate::manifests;

/// What is claimed of one resource.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Claim {
    /// What is claimed.
    #[serde(flatten)]
    pub(crate) resource: GroupResource,
    /// How it stands.
    pub(crate) state: State,
    /// The claims themselves, where somebody says what they select: as the provider makes them now.
    #[serde(rename = "claims", skip_serializing_if = "Vec::is_empty")]
    pub(crate) said: Vec<PermissionClaim>,
    /// What of them was not accepted.
    #[serde(rename = "notAccepted", skip_serializing_if = "Vec::is_empty")]
    pub(crate) news: Vec<PermissionClaim>,
    /// What was accepted before, where there are news.
    #[serde(rename = "acceptedBefore", skip_serializing_if = "Vec::is_empty")]
    pub(crate) before: Vec<PermissionClaim>,
}

/// How a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum State {
    /// The konnector serves it.
    InEffect,
    /// It is accepted, and the konnector does not serve it yet.
    Accepted,
    /// It is accepted, and the konnector has no right on the resource.
    RightMissing,
    /// Some of it was accepted; it has become wider since, and no more than was accepted takes effect.
    Changed,
    /// It is new since the bind, was not accepted, and does not take effect.
    NotAccepted,
    /// It is rejected, and the konnector is still taking back what it copied.
    Withdrawing,
    /// It is rejected, nothing of it is left, and the konnector has a right on the resource all the same.
    RightLeft,
    /// It is rejected, and nothing of it is left.
    Rejected,
}

/// What is known beside the binding.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The rules of the binding's ClusterRole; none if it cannot be read.
    pub(crate) rules: Option<Vec<PolicyRule>>,
    /// The claims of the provider's export; none if it cannot be read.
    pub(crate) offered: Option<Vec<PermissionClaim>>,
}

impl State {
    /// In words.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::InEffect => "in effect",
            Self::Accepted => "accepted, not in effect yet",
            Self::RightMissing => "accepted, the konnector has no right",
            Self::Changed => "changed: not accepted",
            Self::NotAccepted => "new: not accepted",
            Self::Withdrawing => "rejected, being withdrawn",
            Self::RightLeft => "rejected, the konnector's right is left",
            Self::Rejected => "rejected",
        }
    }
}

impl Claim {
    /// Which objects it selects, and which of them nobody has accepted.
    pub(crate) fn selects(&self) -> String {
        let all = |claims: &[PermissionClaim]| join(claims.iter().map(selection), "; ");
        match self.state {
            State::Changed => format!("new: {}; accepted before: {}", all(&self.news), all(&self.before)),
            _ if self.said.is_empty() => "<unknown>".to_owned(),
            _ => all(&self.said),
        }
    }
}

/// All claims of a binding: those in effect, those that its export makes, and those that it rejects.
pub(crate) fn states(binding: &APIServiceBinding, known: &Known) -> Vec<Claim> {
    let rejected = &binding.spec.rejected_permission_claims;
    let in_effect = binding
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.permission_claims);
    let offered = known.offered.as_deref().unwrap_or_default();
    let resources: BTreeSet<_> = in_effect
        .iter()
        .chain(offered)
        .map(|claim| &claim.group_resource)
        .chain(rejected)
        .collect();
    let accepted = Accepted::of(binding);
    let state = |resource: &GroupResource| {
        let (served, said) = (on(in_effect, resource), on(offered, resource));
        let news: Vec<_> = said.iter().filter_map(|claim| news(&accepted, claim)).collect();
        let before: Vec<_> = accepted.on(resource).cloned().collect();
        let right = known
            .rules
            .as_ref()
            .map(|rules| manifests::holds_claim(rules, resource));
        // What was accepted of a claim is in effect when it is served as it is claimed now.
        let is_served = !served.is_empty() && said.iter().all(|claim| served.contains(claim));
        let state = match (rejected.contains(resource), right) {
            (true, _) if !served.is_empty() => State::Withdrawing,
            (true, Some(true)) => State::RightLeft,
            (true, _) => State::Rejected,
            (false, _) if !news.is_empty() && before.is_empty() => State::NotAccepted,
            (false, _) if !news.is_empty() => State::Changed,
            (false, Some(false)) => State::RightMissing,
            (false, _) if is_served => State::InEffect,
            (false, _) => State::Accepted,
        };
        let is_changed = state == State::Changed;
        Claim {
            resource: resource.clone(),
            state,
            // What the provider says now is what would take effect.
            said: if said.is_empty() { served } else { said },
            before: if is_changed { before } else { Vec::new() },
            news: if is_changed || state == State::NotAccepted {
                news
            } else {
                Vec::new()
            },
        }
    };
    resources.into_iter().map(state).collect()
}

fn on(claims: &[PermissionClaim], resource: &GroupResource) -> Vec<PermissionClaim> {
    let claims = claims.iter().filter(|claim| claim.group_resource == *resource);
    claims.cloned().collect()
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::{APIServiceBindingSpec, APIServiceBindingStatus};

    use super::*;
    use crate::claims::tests::claim;

    /// Rejected, in effect, offered, with a right.
    #[track_caller]
    fn check(rejected: bool, in_effect: bool, offered: bool, right: Option<bool>, expect: Option<State>) {
        let secrets = GroupResource::new("", "secrets");
        let one = |is: bool| is.then(|| claim("secrets", None)).into_iter().collect();
        let spec = APIServiceBindingSpec {
            rejected_permission_claims: rejected.then(|| secrets.clone()).into_iter().collect(),
            ..APIServiceBindingSpec::default()
        };
        let mut binding = APIServiceBinding::new("west", spec);
        binding.status = Some(APIServiceBindingStatus {
            permission_claims: one(in_effect),
            ..APIServiceBindingStatus::default()
        });
        let known = Known {
            rules: right.map(|right| right.then(|| manifests::claim_rule(&secrets)).into_iter().collect()),
            offered: Some(one(offered)),
        };
        let states = states(&binding, &known);
        assert_eq!(states.first().map(|claim| claim.state), expect);
        assert!(states.len() <= 1);
        if let Some(claim) = states.first() {
            assert_eq!(!claim.said.is_empty(), in_effect || offered);
        }
    }

    #[test]
    fn each_claim_has_one_state() {
        check(false, false, false, Some(true), None);
        check(false, true, true, Some(true), Some(State::InEffect));
        check(false, true, true, None, Some(State::InEffect));
        check(false, true, true, Some(false), Some(State::RightMissing));
        check(false, false, true, Some(true), Some(State::Accepted));
        check(false, false, true, Some(false), Some(State::RightMissing));
        check(true, true, true, Some(true), Some(State::Withdrawing));
        check(true, false, true, Some(true), Some(State::RightLeft));
        check(true, false, true, Some(false), Some(State::Rejected));
        check(true, false, false, None, Some(State::Rejected));
    }

    /// Recorded, served and claimed now, by the label that each selects, or everything without one.
    #[track_caller]
    fn check_record(
        recorded: &[&'static str],
        served: &[&'static str],
        now: &[&'static str],
        (state, selects): (State, &str),
    ) {
        let claims = |labels: &[&'static str]| -> Vec<_> {
            let label = |app: &'static str| (!app.is_empty()).then_some(("app", app));
            labels.iter().map(|app| claim("secrets", label(app))).collect()
        };
        let mut binding = APIServiceBinding::new("west", APIServiceBindingSpec::default());
        let record = serde_json::to_string(&claims(recorded)).unwrap();
        binding.metadata.annotations = Some([(bindery_api::annotations::ACCEPTED_CLAIMS.to_owned(), record)].into());
        binding.status = Some(APIServiceBindingStatus {
            permission_claims: claims(served),
            ..APIServiceBindingStatus::default()
        });
        let known = Known {
            rules: None,
            offered: Some(claims(now)),
        };
        let states = states(&binding, &known);
        assert_eq!(states.len(), 1);
        assert_eq!((states[0].state, states[0].selects().as_str()), (state, selects));
    }

    #[test]
    fn what_became_wider_is_told_from_what_was_accepted() {
        let a = "those labelled app=a";
        check_record(&["a"], &["a"], &["a"], (State::InEffect, a));
        check_record(
            &["a"],
            &["a"],
            &[""],
            (
                State::Changed,
                "new: EVERY Secret; accepted before: those labelled app=a",
            ),
        );
        check_record(
            &["a"],
            &["a"],
            &["b"],
            (
                State::Changed,
                "new: those labelled app=b; accepted before: those labelled app=a",
            ),
        );
        check_record(&[], &[], &[""], (State::NotAccepted, "EVERY Secret"));
        // A second claim on the same resource hides behind no first.
        check_record(
            &["a"],
            &["a"],
            &["a", ""],
            (
                State::Changed,
                "new: EVERY Secret; accepted before: those labelled app=a",
            ),
        );
        // Accepted, and still served as it was before.
        check_record(&[""], &["a"], &[""], (State::Accepted, "EVERY Secret"));
        check_record(&[""], &[""], &["a"], (State::Accepted, a));
    }
}
