use bindery_api::{annotations, v1alpha2::APIServiceBindingStatus};

use super::*;
use crate::{
    claims::{decide, tests::claim},
    install::manifests::{
        Kubeconfig,
        tests::{binding_of, manifests},
    },
};

/// Offered; known before, by the record of the binding or else by what is in effect; rejected.
#[track_caller]
fn check(claims: &[PermissionClaim], known: &[PermissionClaim], reject: &[&str], expect: Question) {
    let mut recorded = binding_of(manifests(Kubeconfig::Hidden("x")));
    let record = serde_json::to_string(known).unwrap();
    let annotations = recorded.metadata.annotations.as_mut().unwrap();
    annotations.insert(annotations::ACCEPTED_CLAIMS.to_owned(), record);
    let mut in_effect = recorded.clone();
    in_effect.metadata.annotations = None;
    in_effect.status = Some(APIServiceBindingStatus {
        permission_claims: known.to_vec(),
        ..APIServiceBindingStatus::default()
    });
    let reject: Vec<_> = reject
        .iter()
        .map(|resource| GroupResource::new("", *resource))
        .collect();
    for binding in [recorded, in_effect] {
        let binding = Some(&binding);
        assert_eq!(
            question(claims, &decide(claims, &reject, binding, &[]), binding),
            expect
        );
    }
}

#[test]
fn what_is_new_and_accepted_is_asked() {
    let one = std::slice::from_ref::<PermissionClaim>;
    let (some, all) = (claim("secrets", Some(("a", "b"))), claim("secrets", None));
    check(&[], &[], &[], Question::Nothing);
    check(one(&some), &[], &[], Question::Claims);
    check(one(&all), &[], &[], Question::Everything);
    check(&[claim("configmaps", None)], &[], &[], Question::Claims);
    check(
        &[claim("configmaps", None), all.clone()],
        &[],
        &[],
        Question::Everything,
    );
    check(one(&all), &[], &["secrets"], Question::Nothing);
    check(one(&all), one(&all), &[], Question::Nothing);
    // Accepted for some, and now for all.
    check(&[all], &[some], &[], Question::Everything);
}

#[test]
fn nobody_gives_all_secrets_away_by_silence() {
    use Question::{Claims, Everything, Nothing};
    for (question, answered, is_terminal, expect) in [
        (Nothing, false, true, Verdict::Proceed),
        (Claims, false, true, Verdict::Ask),
        (Claims, false, false, Verdict::Proceed),
        (Claims, true, true, Verdict::Proceed),
        (Everything, false, true, Verdict::Ask),
        (Everything, false, false, Verdict::Refuse),
        (Everything, true, false, Verdict::Proceed),
    ] {
        assert_eq!(
            verdict(question, answered, is_terminal),
            expect,
            "{question:?} {answered} {is_terminal}"
        );
    }
}

#[test]
fn a_yes_is_a_yes() {
    for (question, answer, expect) in [
        (Question::Claims, "y\n", true),
        (Question::Claims, "Yes", true),
        (Question::Claims, "\n", false),
        (Question::Claims, "yeah", false),
        (Question::Everything, "y", false),
        (Question::Everything, " YES \n", true),
    ] {
        assert_eq!(is_yes(question, answer), expect, "{question:?} {answer:?}");
    }
}
