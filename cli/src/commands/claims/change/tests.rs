use bindery_api::v1alpha2::APIServiceBindingSpec;

use super::*;
use crate::claims::tests::claim;

fn core(resources: &[&str]) -> Vec<GroupResource> {
    resources
        .iter()
        .map(|resource| GroupResource::new("", *resource))
        .collect()
}

fn change(accept: &[&str], reject: &[&str]) -> Change {
    Change {
        accept: core(accept).into_iter().collect(),
        reject: core(reject).into_iter().collect(),
    }
}

fn rejecting(rejected: &[&str]) -> APIServiceBinding {
    let spec = APIServiceBindingSpec {
        rejected_permission_claims: core(rejected),
        ..APIServiceBindingSpec::default()
    };
    APIServiceBinding::new("west", spec)
}

#[test]
fn rejections_are_added_and_lifted() {
    for (before, accept, reject, expect) in [
        (&[][..], &[][..], &["secrets"][..], &["secrets"][..]),
        (&["secrets"], &[], &["secrets"], &["secrets"]),
        (&["secrets", "configmaps"], &["secrets"], &[], &["configmaps"]),
        (&["secrets"], &["secrets"], &["configmaps"], &["configmaps"]),
        (&[], &["secrets"], &[], &[]),
    ] {
        assert_eq!(change(accept, reject).rejected_after(&rejecting(before)), core(expect));
    }
}

fn secrets(state: ClaimState, said: Option<PermissionClaim>) -> [Claim; 1] {
    [Claim {
        resource: GroupResource::new("", "secrets"),
        state,
        said: said.into_iter().collect(),
        news: Vec::new(),
        before: Vec::new(),
    }]
}

#[test]
fn what_is_new_is_asked() {
    let (some, all) = (|| claim("secrets", Some(("a", "b"))), || claim("secrets", None));
    for (said, state, expect) in [
        (some(), ClaimState::Rejected, Question::Claims),
        (all(), ClaimState::Rejected, Question::Everything),
        (all(), ClaimState::Withdrawing, Question::Everything),
        (some(), ClaimState::Changed, Question::Claims),
        (all(), ClaimState::Changed, Question::Everything),
        (all(), ClaimState::NotAccepted, Question::Everything),
        (all(), ClaimState::RightMissing, Question::Everything),
        (all(), ClaimState::Accepted, Question::Nothing),
        (all(), ClaimState::InEffect, Question::Nothing),
    ] {
        let claims = secrets(state, Some(said));
        assert_eq!(change(&["secrets"], &[]).question(&claims), expect, "{state:?}");
        assert_eq!(change(&["configmaps"], &[]).question(&claims), Question::Nothing);
    }
}

#[test]
fn nobody_accepts_what_nobody_sees() {
    let accept = change(&["secrets"], &[]);
    let blind = accept.check(&secrets(ClaimState::Rejected, None), false);
    assert!(blind.is_err_and(|failure| failure.to_string().contains("claims of secrets cannot be read now")));
    assert!(accept.check(&secrets(ClaimState::Rejected, None), true).is_ok());
    // Only the right is missing.
    assert!(accept.check(&secrets(ClaimState::RightMissing, None), false).is_ok());
    assert!(
        change(&[], &["secrets"])
            .check(&secrets(ClaimState::InEffect, None), false)
            .is_ok()
    );
}

#[test]
fn what_was_accepted_now_does_not_vanish() {
    let before = secrets(ClaimState::Rejected, None);
    let mut after = Vec::new();
    change(&["secrets"], &[]).keep(&before, &mut after);
    change(&["secrets"], &[]).keep(&before, &mut after);
    assert_eq!(
        after.iter().map(|claim| claim.state).collect::<Vec<_>>(),
        [ClaimState::Accepted]
    );
}

#[test]
fn only_what_is_claimed_is_accepted() {
    let claims = secrets(ClaimState::Rejected, None);
    assert!(change(&["secrets"], &["configmaps"]).check(&claims, true).is_ok());
    let failure = change(&["configmaps"], &[])
        .check(&claims, true)
        .expect_err("a failure");
    assert!(failure.to_string().contains("nothing to accept"), "{failure}");
    assert!(change(&[], &["secret"]).check(&claims, true).is_err());
}
