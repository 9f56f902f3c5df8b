use bindery_api::v1alpha2::{APIServiceBindingSpec, APIServiceBindingStatus};

use super::*;
use crate::claims::tests::claim;

/// Rejected, in effect, offered, with a right.
#[track_caller]
fn check(rejected: bool, in_effect: bool, offered: bool, right: Option<bool>, expect: Option<ClaimState>) {
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
        rules: right.map(|right| {
            right
                .then(|| bindery_api::consumer_rules::claim_rule(&secrets))
                .into_iter()
                .collect()
        }),
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
    check(false, true, true, Some(true), Some(ClaimState::InEffect));
    check(false, true, true, None, Some(ClaimState::InEffect));
    check(false, true, true, Some(false), Some(ClaimState::RightMissing));
    check(false, false, true, Some(true), Some(ClaimState::Accepted));
    check(false, false, true, Some(false), Some(ClaimState::RightMissing));
    check(true, true, true, Some(true), Some(ClaimState::Withdrawing));
    check(true, false, true, Some(true), Some(ClaimState::RightLeft));
    check(true, false, true, Some(false), Some(ClaimState::Rejected));
    check(true, false, false, None, Some(ClaimState::Rejected));
}

/// Recorded, served and claimed now, by the label that each selects, or everything without one.
#[track_caller]
fn check_record(
    recorded: &[&'static str],
    served: &[&'static str],
    now: &[&'static str],
    (state, selects): (ClaimState, &str),
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
    check_record(&["a"], &["a"], &["a"], (ClaimState::InEffect, a));
    check_record(
        &["a"],
        &["a"],
        &[""],
        (
            ClaimState::Changed,
            "new: EVERY Secret; accepted before: those labelled app=a",
        ),
    );
    check_record(
        &["a"],
        &["a"],
        &["b"],
        (
            ClaimState::Changed,
            "new: those labelled app=b; accepted before: those labelled app=a",
        ),
    );
    check_record(&[], &[], &[""], (ClaimState::NotAccepted, "EVERY Secret"));
    // A second claim on the same resource hides behind no first.
    check_record(
        &["a"],
        &["a"],
        &["a", ""],
        (
            ClaimState::Changed,
            "new: EVERY Secret; accepted before: those labelled app=a",
        ),
    );
    // Accepted, and still served as it was before.
    check_record(&[""], &["a"], &[""], (ClaimState::Accepted, "EVERY Secret"));
    check_record(&[""], &[""], &["a"], (ClaimState::Accepted, a));
}
