use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

use proptest::prelude::*;

use super::*;
use crate::tls::managed::{
    Ca,
    issue::{IssueError, MakeCertificates, apply, begin},
};

/// Makes certificates without keys, numbered in the order in which they are made.
#[derive(Debug, Default)]
struct Numbers(Cell<u8>);

impl Numbers {
    fn next(&self) -> Vec<u8> {
        self.0.set(self.0.get() + 1);
        vec![self.0.get()]
    }
}

impl MakeCertificates for Numbers {
    fn ca(&self, validity: Validity) -> Result<Ca, IssueError> {
        let name = self.next();
        let certificate = Certificate {
            der: name.clone().into(),
            validity,
            names: BTreeSet::new(),
            subject: name.clone(),
            issuer: name,
        };
        Ok(Ca {
            certificate,
            key: "key".into(),
        })
    }

    fn serving(&self, ca: &Ca, names: &BTreeSet<String>, validity: Validity) -> Result<Serving, IssueError> {
        let certificate = Certificate {
            der: vec![0].into(),
            validity,
            names: names.clone(),
            subject: vec![0],
            issuer: ca.certificate.subject.clone(),
        };
        Ok(Serving {
            certificate,
            key: "key".into(),
        })
    }
}

/// A CA lives for 3600 s: the next one is published at 2400 and signs at 3000. A serving certificate is renewed every 600 s.
fn policy() -> Policy {
    Policy {
        ca_lifetime: Duration::from_hours(1),
        serving_lifetime: Duration::from_mins(15),
        names: names(&["bind.example.com"]),
    }
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

/// Carries out the steps that are due, and returns them.
fn step(state: &mut ManagedTls, policy: &Policy, maker: &Numbers, now: i64) -> Vec<Step> {
    let steps = plan(state, policy, at(now));
    *state = apply(state.clone(), &steps, policy, maker, at(now)).expect("certificates");
    assert_eq!(
        plan(state, policy, at(now)),
        [],
        "nothing is left to do after {steps:?}"
    );
    steps
}

/// A state that was begun at second 0.
fn begun(policy: &Policy, maker: &Numbers) -> ManagedTls {
    let mut state = begin(policy, maker, at(0)).expect("a CA");
    assert_eq!(step(&mut state, policy, maker, 0), [issue(&["bind.example.com"])]);
    state
}

fn issue(of: &[&str]) -> Step {
    Step::IssueServing(names(of))
}

/// The CAs that are handed out, by their numbers, the signing one first.
fn bundle(state: &ManagedTls) -> Vec<u8> {
    state.authorities().map(|ca| ca.der[0]).collect()
}

fn signer(state: &ManagedTls) -> u8 {
    state.serving.as_ref().expect("a certificate").certificate.issuer[0]
}

fn serving_end(state: &ManagedTls) -> i64 {
    let serving = state.serving.as_ref().expect("a certificate");
    serving.certificate.validity.not_after.as_second()
}

#[test]
fn a_serving_certificate_is_renewed_at_two_thirds() {
    let (policy, maker) = (policy(), Numbers::default());
    let mut state = begun(&policy, &maker);
    assert_eq!(serving_end(&state), 900);
    assert_eq!(look_again(&state, &policy, at(0)), Duration::from_mins(10));
    assert_eq!(step(&mut state, &policy, &maker, 599), []);
    assert_eq!(look_again(&state, &policy, at(599)), Duration::from_secs(1));
    assert_eq!(step(&mut state, &policy, &maker, 600), [issue(&["bind.example.com"])]);
    assert_eq!((serving_end(&state), bundle(&state)), (1500, vec![1]));
}

#[test]
fn a_ca_is_published_long_before_it_signs_and_the_former_one_stays_until_it_expires() {
    let (policy, maker) = (policy(), Numbers::default());
    let mut state = begun(&policy, &maker);
    for now in [600, 1200, 1800] {
        step(&mut state, &policy, &maker, now);
    }
    let serving = issue(&["bind.example.com"]);
    assert_eq!(step(&mut state, &policy, &maker, 2399), []);
    assert_eq!(
        step(&mut state, &policy, &maker, 2400),
        [Step::PublishCa, serving.clone()]
    );
    assert_eq!((bundle(&state), signer(&state)), (vec![1, 2], 1));
    assert_eq!(step(&mut state, &policy, &maker, 2999), []);
    assert_eq!(
        step(&mut state, &policy, &maker, 3000),
        [Step::SignWithNext, serving.clone()]
    );
    assert_eq!((bundle(&state), signer(&state)), (vec![2, 1], 2));
    assert!(state.next.is_none(), "its key is gone");
    assert_eq!(step(&mut state, &policy, &maker, 3599), []);
    assert_eq!(step(&mut state, &policy, &maker, 3600), [Step::DropExpired, serving]);
    assert_eq!(bundle(&state), [2]);
}

#[test]
fn no_serving_certificate_outlives_its_ca() {
    let (mut policy, maker) = (policy(), Numbers::default());
    policy.serving_lifetime = Duration::from_mins(20);
    let mut state = begun(&policy, &maker);
    for now in [800, 1600, 2400] {
        step(&mut state, &policy, &maker, now);
    }
    assert_eq!(serving_end(&state), 3600);
    assert_eq!(step(&mut state, &policy, &maker, 2999), []);
}

#[test]
fn after_a_long_standstill_the_next_ca_is_published_first_if_there_is_time() {
    // The server starts again at this time; what it does, and who signs then.
    let check = |now: i64, steps: &[Step], signs: u8| {
        let (policy, maker) = (policy(), Numbers::default());
        let mut state = begun(&policy, &maker);
        assert_eq!(step(&mut state, &policy, &maker, now), steps, "at {now}");
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
    let (policy, maker) = (policy(), Numbers::default());
    let mut state = begun(&policy, &maker);
    step(&mut state, &policy, &maker, 2400);
    let serving = issue(&["bind.example.com"]);
    let steps = [Step::DropExpired, Step::PublishCa, Step::SignWithNext, serving];
    assert_eq!(step(&mut state, &policy, &maker, 9000), steps);
    assert_eq!((bundle(&state), signer(&state)), (vec![3], 3));
}

#[test]
fn two_replicas_with_different_names_do_not_replace_each_other_s_certificate() {
    let (ours, maker) = (policy(), Numbers::default());
    let theirs = Policy {
        names: names(&["localhost"]),
        ..ours
    };
    let mut state = begun(&ours, &maker);
    let both = ["bind.example.com", "localhost"];
    assert_eq!(step(&mut state, &theirs, &maker, 1), [issue(&both)]);
    assert_eq!(step(&mut state, &ours, &maker, 2), []);
    assert_eq!(step(&mut state, &theirs, &maker, 3), []);
    // A name that nobody wants any more goes with the next renewal.
    assert_eq!(step(&mut state, &ours, &maker, 601), [issue(&["bind.example.com"])]);
}

#[test]
fn a_shorter_lifetime_applies_to_what_exists() {
    let (long, maker) = (policy(), Numbers::default());
    let short = Policy {
        ca_lifetime: Duration::from_mins(6),
        serving_lifetime: Duration::from_secs(90),
        ..long.clone()
    };
    let mut state = begun(&long, &maker);
    assert_eq!(step(&mut state, &short, &maker, 59), []);
    assert_eq!(step(&mut state, &short, &maker, 60), [issue(&["bind.example.com"])]);
    assert_eq!(step(&mut state, &short, &maker, 240).first(), Some(&Step::PublishCa));
    assert_eq!(step(&mut state, &short, &maker, 300).first(), Some(&Step::SignWithNext));
    assert_eq!(bundle(&state), [2, 1], "the former one stays as long as it is valid");
}

#[test]
fn a_damaged_serving_certificate_is_replaced() {
    let (policy, maker) = (policy(), Numbers::default());
    let mut state = begun(&policy, &maker);
    state.serving = None;
    assert_eq!(step(&mut state, &policy, &maker, 5), [issue(&["bind.example.com"])]);
}

#[test]
fn what_was_handed_out_stays_trusted() {
    let (policy, maker) = (policy(), Numbers::default());
    let before = begun(&policy, &maker);
    let mut after = before.clone();
    for now in [2400, 3000] {
        step(&mut after, &policy, &maker, now);
    }
    assert!(keep_trust(&after, &before).is_none(), "others have rotated it");
    // Somebody put the former content back.
    let kept = keep_trust(&before, &after).expect("a change");
    assert_eq!((bundle(&kept), signer(&kept)), (vec![2, 1], 2));

    // A replica without memory made a CA of its own while the Secret was gone.
    let mut stranger = begin(&policy, &maker, at(3100)).expect("a CA");
    step(&mut stranger, &policy, &maker, 3100);
    let kept = keep_trust(&stranger, &after).expect("a change");
    assert_eq!((bundle(&kept), signer(&kept)), (vec![2, 1, 3], 2));
    assert!(keep_trust(&kept, &stranger).is_none(), "the stranger agrees");
    // The same if the stranger is asked first: the older CA goes on signing.
    let kept = keep_trust(&after, &stranger).expect("a change");
    assert_eq!((bundle(&kept), signer(&kept)), (vec![2, 1, 3], 2));
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
        let maker = Numbers::default();
        let mut state = begin(&policy, &maker, at(0)).expect("a CA");
        step(&mut state, &policy, &maker, 0);
        let mut bundles = BTreeMap::from([(at(0), bundle(&state))]);
        let mut now = at(0);
        for (pause, looks) in pauses {
            let until = look_again(&state, &policy, now);
            // Decisions may come earlier than needed, since another replica or a change of the Secret causes them too.
            now += if looks { until } else { until.mul_f64(pause) };
            let steps = plan(&state, &policy, now);
            state = apply(state, &steps, &policy, &maker, now).expect("certificates");
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

    /// Whatever was lost, and in whatever order replicas look: they end with one state, which trusts what each had handed out.
    #[test]
    fn replicas_agree_and_no_trust_is_lost(
        events in prop::collection::vec((0..3_usize, 0..6_u8, 1..400_i64), 1..60),
    ) {
        let (policy, maker) = (policy(), Numbers::default());
        let mut stored: Option<ManagedTls> = None;
        let mut memories: [Option<ManagedTls>; 3] = Default::default();
        let mut now = 0;
        let look = |stored: &mut Option<ManagedTls>, memory: &mut Option<ManagedTls>, now: i64| {
            let base = match (stored.as_ref(), memory.as_ref()) {
                (Some(stored), Some(memory)) => keep_trust(stored, memory).unwrap_or_else(|| stored.clone()),
                (Some(known), None) | (None, Some(known)) => known.clone(),
                (None, None) => begin(&policy, &maker, at(now)).expect("a CA"),
            };
            let steps = plan(&base, &policy, at(now));
            *stored = Some(apply(base, &steps, &policy, &maker, at(now)).expect("certificates"));
            memory.clone_from(stored);
        };
        for (replica, event, pause) in events {
            // Numbers fit a byte.
            prop_assume!(maker.0.get() < 200);
            match event {
                0 => stored = None,
                1 => memories[replica] = None,
                _ => {
                    now += pause;
                    look(&mut stored, &mut memories[replica], now);
                }
            }
        }
        let handed_out: Vec<_> = memories.iter().flatten().map(|state| state.signing.certificate.clone()).collect();
        for _ in 0..2 {
            for memory in &mut memories {
                look(&mut stored, memory, now);
            }
        }
        let last = bundle(stored.as_ref().expect("a state"));
        for memory in memories.iter().flatten() {
            prop_assert_eq!(bundle(memory), last.clone());
            prop_assert_eq!(signer(memory), last[0]);
        }
        for ca in handed_out.iter().filter(|ca| !ca.is_expired(at(now))) {
            prop_assert!(last.contains(&ca.der[0]), "{} is not in {last:?}", ca.der[0]);
        }
    }
}
