use bindery_api::{
    conditions,
    v1alpha2::{ClusterBindingSpec, ClusterBindingStatus},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn token(name: &str, issued: i64) -> IssuedToken {
    IssuedToken {
        digest: TokenDigest(name.to_owned()),
        issued: at(issued),
    }
}

/// What the history of a contract does with a token.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Whoever has the token renews it, and gets this one.
    Renewed(&'static str, HolderProof, &'static str),
    /// It is refused with this reason.
    Refused(&'static str, HolderProof, &'static str),
    /// An owner binds, and gets this token.
    Bound(&'static str),
    /// A server of an earlier version renews without a record.
    Unrecorded(&'static str),
}

use Event::{Bound, Refused, Renewed, Unrecorded};
use HolderProof::{Absent, Present, Stale};

fn reason(refusal: &RenewalRefusal) -> &'static str {
    match refusal {
        RenewalRefusal::Locked(_) => "Locked",
        RenewalRefusal::Reused => "Reused",
        RenewalRefusal::Ended => "Ended",
        RenewalRefusal::OtherHolder => "OtherHolder",
        RenewalRefusal::TooOld(_) => "TooOld",
    }
}

/// A contract whose events are an hour apart.
#[derive(Default)]
struct Contract {
    record: Option<RenewalRecord>,
    issued: Vec<(&'static str, i64)>,
    hour: i64,
    max_age: Option<Duration>,
}

impl Contract {
    fn issue(&mut self, name: &'static str) -> IssuedToken {
        self.issued.push((name, self.hour * 3600));
        self.known(name)
    }

    fn known(&self, name: &str) -> IssuedToken {
        let (_, issued) = self.issued.iter().find(|(known, _)| *known == name).unwrap();
        token(name, *issued)
    }

    fn renew(&self, used: &str, proof: HolderProof) -> Result<RenewalRecord, RenewalRefusal> {
        let now = at(self.hour * 3600);
        use_token(self.record.as_ref(), &self.known(used), proof, self.max_age, now)
    }

    fn pass(&mut self, event: Event) {
        self.hour += 1;
        match event {
            Renewed(used, proof, new) => {
                let after = self
                    .renew(used, proof)
                    .unwrap_or_else(|refusal| panic!("{event:?}: {refusal:?}"));
                let new = self.issue(new);
                self.record = Some(after.granted(&new));
            }
            Refused(used, proof, expect) => {
                let Err(refusal) = self.renew(used, proof) else {
                    panic!("{event:?}: it is renewed");
                };
                assert_eq!(reason(&refusal), expect, "{event:?}");
                if refusal == RenewalRefusal::Reused {
                    let lock = Revocation {
                        time: at(self.hour * 3600),
                        ..Revocation::default()
                    };
                    self.record = self.record.take().map(|record| record.locked(lock));
                }
            }
            Bound(new) => {
                let now = at(self.hour * 3600);
                if let Some(record) = self.record.take_if(|record| record.lock.is_some()) {
                    self.record = Some(record.unlocked(now));
                }
                let new = self.issue(new);
                self.record = Some(self.record.take().unwrap_or_default().granted_to_owner(&new));
            }
            Unrecorded(new) => drop(self.issue(new)),
        }
    }
}

#[track_caller]
fn check(history: &[Event]) {
    let mut contract = Contract::default();
    for event in history {
        contract.pass(*event);
    }
}

#[test]
fn a_chain_goes_on_and_each_first_use_ends_what_was_before() {
    check(&[
        Bound("a"),
        Renewed("a", Present, "b"),
        Renewed("b", Present, "c"),
        Refused("a", Absent, "Ended"),
        Renewed("c", Present, "d"),
        Refused("b", Absent, "Ended"),
    ]);
}

#[test]
fn a_lost_answer_locks_nobody_out() {
    check(&[
        Bound("a"),
        Renewed("a", Present, "lost"),
        Renewed("a", Present, "b"),
        Renewed("a", Present, "lost too"),
        Renewed("b", Present, "c"),
        Refused("lost", Absent, "Ended"),
        Renewed("c", Present, "d"),
    ]);
}

#[test]
fn a_thief_who_renews_first_locks_renewal_and_binding_again_ends_that() {
    check(&[
        Bound("a"),
        Renewed("a", Absent, "stolen b"),
        Renewed("stolen b", Absent, "stolen c"),
        Refused("a", Present, "Reused"),
        Refused("stolen c", Absent, "Locked"),
        Refused("stolen c", Present, "Locked"),
        Refused("a", Present, "Locked"),
        Bound("n"),
        Refused("stolen c", Absent, "Ended"),
        Renewed("n", Present, "o"),
        Refused("stolen b", Absent, "Ended"),
        Renewed("o", Present, "p"),
    ]);
}

#[test]
fn a_thief_who_renews_later_is_refused() {
    check(&[
        Bound("a"),
        Renewed("a", Absent, "stolen"),
        Renewed("a", Present, "b"),
        Renewed("b", Present, "c"),
        Refused("stolen", Absent, "Ended"),
        Refused("a", Absent, "Ended"),
        Renewed("c", Present, "d"),
    ]);
}

#[test]
fn a_clone_is_refused_and_locks_nothing() {
    check(&[
        Bound("a"),
        Renewed("a", Present, "b"),
        // The clone has the token that is in use, or one that ended.
        Refused("a", Stale, "OtherHolder"),
        Renewed("b", Present, "c"),
        Refused("a", Stale, "OtherHolder"),
        Refused("b", Stale, "OtherHolder"),
        Renewed("c", Present, "d"),
    ]);
}

#[test]
fn an_older_konnector_is_renewed_and_locks_nothing() {
    check(&[
        Bound("a"),
        Renewed("a", Absent, "b"),
        Renewed("b", Absent, "c"),
        Refused("a", Absent, "Ended"),
        Renewed("c", Absent, "d"),
    ]);
}

#[test]
fn a_contract_that_an_earlier_server_renewed_goes_on() {
    check(&[
        Bound("a"),
        Unrecorded("b"),
        Renewed("b", Present, "c"),
        // The server was rolled back, and upgraded again.
        Unrecorded("d"),
        Unrecorded("e"),
        Renewed("e", Present, "f"),
        Refused("c", Absent, "Ended"),
        Renewed("f", Present, "g"),
    ]);
}

#[test]
fn a_second_bind_of_the_contract_ends_no_token_before_its_own_is_used() {
    check(&[
        Bound("a"),
        Renewed("a", Present, "b"),
        Bound("second"),
        Renewed("b", Present, "c"),
        Renewed("c", Present, "d"),
        // Its kubeconfig was installed only now.
        Renewed("second", Present, "e"),
        Refused("d", Absent, "Ended"),
        Bound("third"),
        Bound("fourth"),
        Renewed("e", Present, "f"),
        Renewed("fourth", Present, "g"),
        Refused("third", Absent, "Ended"),
        Renewed("g", Present, "h"),
    ]);
}

#[test]
fn a_credential_from_before_a_second_bind_is_renewed_until_that_of_the_bind_is_used() {
    // The konnector of a contract that was never renewed has not read its new kubeconfig yet.
    check(&[
        Bound("a"),
        Bound("b"),
        Renewed("a", Present, "c"),
        Renewed("b", Present, "d"),
    ]);
    check(&[
        Bound("a"),
        Bound("b"),
        Renewed("b", Present, "c"),
        Refused("a", Absent, "Ended"),
    ]);
    // The token of a server that keeps no record, with one that does after it.
    check(&[
        Unrecorded("a"),
        Bound("b"),
        Renewed("a", Present, "c"),
        Renewed("b", Present, "d"),
    ]);
    check(&[
        Unrecorded("a"),
        Bound("b"),
        Renewed("b", Present, "c"),
        Refused("a", Absent, "Ended"),
    ]);
}

#[test]
fn a_thief_who_uses_a_token_of_a_bind_first_is_seen() {
    check(&[
        Bound("a"),
        Renewed("a", Present, "b"),
        Bound("stolen"),
        Renewed("stolen", Absent, "c"),
        Refused("b", Present, "Reused"),
        Refused("c", Absent, "Locked"),
    ]);
}

#[test]
fn a_token_of_a_bind_in_the_second_of_a_renewal_is_good() {
    let record = RenewalRecord::begun(&token("a", 5)).granted(&token("b", 7));
    let owned = token("owner", 7);
    assert_eq!(record.used(&owned), None, "it cannot be told from one that ended");
    let noted = record.granted_to_owner(&owned);
    assert!(noted.used(&owned).is_some() && noted.used(&token("b", 7)).is_some());
}

#[test]
fn a_chain_has_an_end_and_binding_again_begins_another() {
    let mut contract = Contract {
        max_age: Some(Duration::from_hours(3)),
        ..Contract::default()
    };
    for event in [
        Bound("a"),
        Renewed("a", Present, "b"),
        Renewed("b", Present, "c"),
        Renewed("c", Present, "d"),
        Refused("d", Present, "TooOld"),
        Refused("d", Absent, "TooOld"),
        Bound("n"),
        Refused("d", Present, "TooOld"),
        Renewed("n", Present, "o"),
        Renewed("o", Present, "p"),
        Refused("d", Absent, "Ended"),
    ] {
        contract.pass(event);
    }
}

#[test]
fn a_record_is_read_as_it_is_written_and_what_cannot_be_read_is_locked() {
    let mut binding = ClusterBinding::new("cluster", ClusterBindingSpec::default());
    assert_eq!(renewal(&binding), None);
    let lock = Revocation {
        id: "0a1b".to_owned(),
        ..Revocation::default()
    };
    let written = RenewalRecord::begun(&token("a", 5))
        .granted(&token("b", 7))
        .locked(lock);
    let mut set = |text: &str| {
        let annotation = (annotations::RENEWAL.to_owned(), text.to_owned());
        binding.annotations_mut().extend([annotation]);
        renewal(&binding)
    };
    let text = written.annotation()[annotations::RENEWAL].clone();
    assert_eq!(set(text.as_str().unwrap()), Some(written));
    for broken in ["", "null", "[1]", "soon"] {
        assert!(set(broken).unwrap().lock.is_some(), "{broken:?}");
    }
}

#[test]
fn a_konnector_is_the_holder_by_any_record_that_the_provider_may_have() {
    let mut binding = ClusterBinding::new("cluster", ClusterBindingSpec::default());
    let proof = |sent: &str, binding: &ClusterBinding| HolderProof::of(sent, Some(binding));
    assert_eq!(proof("i/7/n", &binding), Absent, "the provider has no record");
    let record: HolderRecord = "i/7/n".parse().unwrap();
    let mut status = ClusterBindingStatus {
        last_heartbeat_time: Some(Time(at(5))),
        ..ClusterBindingStatus::default()
    };
    conditions::set(&mut status.conditions, record.condition(), at(5));
    binding.status = Some(status.clone());
    for (sent, expect) in [
        ("", Absent),
        (" ", Absent),
        ("i/7/n", Present),
        ("i/6/m i/7/n", Present),
        ("i/7/m", Stale),
        ("j/7/n i/8/n", Stale),
        ("hello", Stale),
    ] {
        assert_eq!(proof(sent, &binding), expect, "{sent:?}");
    }
    // An older konnector writes heartbeats too, so nothing tells which one comes.
    status.last_heartbeat_time = Some(Time(at(6)));
    binding.status = Some(status.clone());
    assert_eq!(proof("i/7/n", &binding), Absent);
    conditions::set(&mut status.conditions, record.contested(), at(7));
    binding.status = Some(status);
    assert_eq!(proof("i/7/n", &binding), Absent, "two konnectors are the holder");
    assert_eq!(HolderProof::of("i/7/n", None), Absent);
}

proptest! {
    /// A konnector that uses the newest token that it received is renewed, whatever answers are lost and whatever a clone and an
    /// older konnector do with tokens that ended; and a record never grows.
    #[test]
    fn who_uses_the_newest_token_is_renewed(steps in prop::collection::vec(0_u8..5, 1..60)) {
        let mut held = token("t0", 1);
        let mut ended = Vec::new();
        let mut record = None;
        for (number, step) in (2..).zip(steps) {
            let minted = token(&format!("t{number}"), number);
            match step {
                // The answer arrives, or it is lost.
                0 | 1 => {
                    let used = use_token(record.as_ref(), &held, Present, None, at(number));
                    prop_assert!(used.is_ok(), "{used:?}");
                    record = used.ok().map(|used| used.granted(&minted));
                    if step == 0 {
                        ended.push(std::mem::replace(&mut held, minted));
                    }
                }
                2 => {
                    let clone = use_token(record.as_ref(), &held, Stale, None, at(number));
                    prop_assert_eq!(clone, Err(RenewalRefusal::OtherHolder));
                }
                // Of the last token but one the successor was not used yet, so it may be renewed.
                3 if ended.len() > 1 => {
                    let reused = use_token(record.as_ref(), &ended[0], Absent, None, at(number));
                    prop_assert_eq!(reused, Err(RenewalRefusal::Ended));
                }
                // An owner binds for another template.
                _ => {
                    record = Some(record.unwrap_or_default().granted_to_owner(&minted));
                }
            }
            let unused = record.as_ref().map(|record| record.pending.len().max(record.owned.len()));
            prop_assert!(unused.is_none_or(|unused| unused <= UNUSED_MAX));
        }
    }

    /// Once a token was used, none that ended is ever good again.
    #[test]
    fn what_ended_stays_ended(renewals in 2_usize..20, reused in 0_usize..20) {
        let tokens: Vec<_> = (0..=i64::try_from(renewals).unwrap()).map(|number| token(&format!("t{number}"), number)).collect();
        let mut record = None;
        for pair in tokens.windows(2) {
            let used = use_token(record.as_ref(), &pair[0], Present, None, at(100)).unwrap();
            record = Some(used.granted(&pair[1]));
        }
        let reused = &tokens[reused % (renewals - 1)];
        prop_assert_eq!(use_token(record.as_ref(), reused, Present, None, at(100)), Err(RenewalRefusal::Reused));
        prop_assert_eq!(use_token(record.as_ref(), reused, Absent, None, at(100)), Err(RenewalRefusal::Ended));
    }
}
