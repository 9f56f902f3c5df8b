use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::tls::managed::{
    issue::{apply, bootstrap},
    numbered::{NumberedCertificates, at, bundle, names, policy, signer},
};

/// Carries out the steps that are due, and returns them.
fn step(state: &mut ManagedTls, policy: &Policy, issuer: &NumberedCertificates, now: i64) -> Vec<Step> {
    let steps = plan(state, policy, at(now));
    *state = apply(state.clone(), &steps, policy, issuer, at(now)).expect("certificates");
    assert_eq!(
        plan(state, policy, at(now)),
        [],
        "nothing is left to do after {steps:?}"
    );
    steps
}

/// A state that was begun at second 0.
fn begun(policy: &Policy, issuer: &NumberedCertificates) -> ManagedTls {
    let mut state = bootstrap(policy, issuer, at(0)).expect("a CA");
    assert_eq!(step(&mut state, policy, issuer, 0), [issue(&["bind.example.com"])]);
    state
}

fn issue(of: &[&str]) -> Step {
    Step::IssueServing(names(of))
}

fn serving_end(state: &ManagedTls) -> i64 {
    let serving = state.serving.as_ref().expect("a certificate");
    serving.certificate.validity.not_after.as_second()
}

#[test]
fn a_serving_certificate_is_renewed_at_two_thirds() {
    let (policy, issuer) = (policy(), NumberedCertificates::default());
    let mut state = begun(&policy, &issuer);
    assert_eq!(serving_end(&state), 900);
    assert_eq!(requeue_after(&state, &policy, at(0)), Duration::from_mins(10));
    assert_eq!(step(&mut state, &policy, &issuer, 599), []);
    assert_eq!(requeue_after(&state, &policy, at(599)), Duration::from_secs(1));
    assert_eq!(step(&mut state, &policy, &issuer, 600), [issue(&["bind.example.com"])]);
    assert_eq!((serving_end(&state), bundle(&state)), (1500, vec![1]));
}

#[test]
fn a_ca_is_published_long_before_it_signs_and_the_former_one_stays_until_it_expires() {
    let (policy, issuer) = (policy(), NumberedCertificates::default());
    let mut state = begun(&policy, &issuer);
    for now in [600, 1200, 1800] {
        step(&mut state, &policy, &issuer, now);
    }
    let serving = issue(&["bind.example.com"]);
    assert_eq!(step(&mut state, &policy, &issuer, 2399), []);
    assert_eq!(
        step(&mut state, &policy, &issuer, 2400),
        [Step::PublishCa, serving.clone()]
    );
    assert_eq!((bundle(&state), signer(&state)), (vec![1, 2], 1));
    assert_eq!(step(&mut state, &policy, &issuer, 2999), []);
    assert_eq!(
        step(&mut state, &policy, &issuer, 3000),
        [Step::SignWithNext, serving.clone()]
    );
    assert_eq!((bundle(&state), signer(&state)), (vec![2, 1], 2));
    assert!(state.next.is_none(), "its key is gone");
    assert_eq!(step(&mut state, &policy, &issuer, 3599), []);
    assert_eq!(step(&mut state, &policy, &issuer, 3600), [Step::DropExpired, serving]);
    assert_eq!(bundle(&state), [2]);
}

#[test]
fn no_serving_certificate_outlives_its_ca() {
    let (mut policy, issuer) = (policy(), NumberedCertificates::default());
    policy.serving_lifetime = Duration::from_mins(20);
    let mut state = begun(&policy, &issuer);
    for now in [800, 1600, 2400] {
        step(&mut state, &policy, &issuer, now);
    }
    assert_eq!(serving_end(&state), 3600);
    assert_eq!(step(&mut state, &policy, &issuer, 2999), []);
}

#[test]
fn after_a_long_standstill_the_next_ca_is_published_first_if_there_is_time() {
    // The server starts again at this time; what it does, and who signs then.
    let check = |now: i64, steps: &[Step], signs: u32| {
        let (policy, issuer) = (policy(), NumberedCertificates::default());
        let mut state = begun(&policy, &issuer);
        assert_eq!(step(&mut state, &policy, &issuer, now), steps, "at {now}");
        assert_eq!(signer(&state), signs, "at {now}");
        assert!(serving_end(&state) > now);
        state
    };
    let serving = issue(&["bind.example.com"]);
    check(3000, &[Step::PublishCa, serving.clone()], 1);
    let state = check(3299, &[Step::PublishCa, serving.clone()], 1);
    assert_eq!(serving_end(&state), 3600, "no longer than its CA");
    // From eleven twelfths on, waiting any longer would end in an expired certificate.
    let state = check(3300, &[Step::PublishCa, Step::SignWithNext, serving.clone()], 2);
    assert_eq!(bundle(&state), [2, 1]);
    let state = check(9000, &[Step::PublishCa, Step::SignWithNext, serving], 2);
    assert_eq!(bundle(&state), [2], "the expired one is of no use");
}

#[test]
fn a_next_ca_that_expired_unused_is_replaced() {
    let (policy, issuer) = (policy(), NumberedCertificates::default());
    let mut state = begun(&policy, &issuer);
    step(&mut state, &policy, &issuer, 2400);
    let serving = issue(&["bind.example.com"]);
    let steps = [Step::DropExpired, Step::PublishCa, Step::SignWithNext, serving];
    assert_eq!(step(&mut state, &policy, &issuer, 9000), steps);
    assert_eq!((bundle(&state), signer(&state)), (vec![3], 3));
}

#[test]
fn two_replicas_with_different_names_do_not_replace_each_other_s_certificate() {
    let (ours, issuer) = (policy(), NumberedCertificates::default());
    let theirs = Policy {
        names: names(&["localhost"]),
        ..ours
    };
    let mut state = begun(&ours, &issuer);
    let both = ["bind.example.com", "localhost"];
    assert_eq!(step(&mut state, &theirs, &issuer, 1), [issue(&both)]);
    assert_eq!(step(&mut state, &ours, &issuer, 2), []);
    assert_eq!(step(&mut state, &theirs, &issuer, 3), []);
    // A name that nobody wants any more goes with the next renewal.
    assert_eq!(step(&mut state, &ours, &issuer, 601), [issue(&["bind.example.com"])]);
}

#[test]
fn a_shorter_lifetime_applies_to_what_exists() {
    let (long, issuer) = (policy(), NumberedCertificates::default());
    let short = Policy {
        ca_lifetime: Duration::from_mins(6),
        serving_lifetime: Duration::from_secs(90),
        ..long.clone()
    };
    let mut state = begun(&long, &issuer);
    assert_eq!(step(&mut state, &short, &issuer, 59), []);
    assert_eq!(step(&mut state, &short, &issuer, 60), [issue(&["bind.example.com"])]);
    assert_eq!(step(&mut state, &short, &issuer, 240).first(), Some(&Step::PublishCa));
    assert_eq!(
        step(&mut state, &short, &issuer, 300).first(),
        Some(&Step::SignWithNext)
    );
    assert_eq!(bundle(&state), [2, 1], "the former one stays as long as it is valid");
}

#[test]
fn a_damaged_serving_certificate_is_replaced() {
    let (policy, issuer) = (policy(), NumberedCertificates::default());
    let mut state = begun(&policy, &issuer);
    state.serving = None;
    assert_eq!(step(&mut state, &policy, &issuer, 5), [issue(&["bind.example.com"])]);
}

#[test]
fn a_serving_certificate_of_a_clock_that_is_ahead_is_replaced() {
    let (policy, issuer) = (policy(), NumberedCertificates::default());
    let mut state = begun(&policy, &issuer);
    // The others' clocks are behind, by less than the hour by which certificates are backdated, and by more.
    assert_eq!(step(&mut state, &policy, &issuer, -3600), []);
    assert_eq!(
        step(&mut state, &policy, &issuer, -3601),
        [issue(&["bind.example.com"])]
    );
    assert_eq!(serving_end(&state), -3601 + 900);
    assert_eq!(
        step(&mut state, &policy, &issuer, -1),
        [issue(&["bind.example.com"])],
        "it has expired"
    );
    assert_eq!(
        step(&mut state, &policy, &issuer, 1),
        [],
        "the replica that is ahead agrees"
    );
}

proptest! {
    /// While a server runs, its certificate is valid, and each client that fetched the CAs within the longest absence trusts it.
    #[test]
    fn clients_that_come_back_in_time_trust_the_server(
        ca in 60_u64..10_000,
        share in 3_u64..50,
        pauses in prop::collection::vec((0.0..1.0_f64, any::<bool>()), 1..120),
    ) {
        let policy = Policy {
            ca_lifetime: Duration::from_secs(ca),
            serving_lifetime: Duration::from_secs((ca / share).max(10).min(ca / 3)),
            names: names(&["localhost"]),
        };
        let issuer = NumberedCertificates::default();
        let mut state = bootstrap(&policy, &issuer, at(0)).expect("a CA");
        step(&mut state, &policy, &issuer, 0);
        let mut bundles = BTreeMap::from([(at(0), bundle(&state))]);
        let mut now = at(0);
        for (pause, looks) in pauses {
            let until = requeue_after(&state, &policy, now);
            // Decisions may come earlier than needed, since another replica or a change of the Secret causes them too.
            now += if looks { until } else { until.mul_f64(pause) };
            let steps = plan(&state, &policy, now);
            state = apply(state, &steps, &policy, &issuer, now).expect("certificates");
            prop_assert!(plan(&state, &policy, now).is_empty(), "{steps:?} at {now}");

            let serving = &state.serving.as_ref().expect("a certificate").certificate;
            prop_assert!(!serving.is_expired(now));
            prop_assert!(serving.validity.not_after <= state.signing.certificate.validity.not_after);
            prop_assert!(bundle(&state).len() <= 3, "{:?}", bundle(&state));
            let fetched = now - policy.absence_max();
            // The bundle of a time is the last one that was made until then.
            let since = bundles.range(..=fetched).next_back().map_or_else(|| at(0), |(time, _)| *time);
            for (time, known) in bundles.range(since..) {
                prop_assert!(known.contains(&signer(&state)), "{known:?} of {time} at {now}");
            }
            bundles.insert(now, bundle(&state));
        }
    }
}
