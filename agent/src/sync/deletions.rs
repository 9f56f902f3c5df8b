//! Holds back deletions on the provider when too many sources are missing at once: that looks like a consumer cluster
//! that lost its objects, not like a user who deleted them.

use std::collections::HashMap;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

/// Fewer missing sources are no matter.
const MISSING_MIN: usize = 10;
/// Nor are those that are less than one in so many copies.
const SHARE: usize = 5;

/// The guard of one binding, which its engines share.
#[derive(Debug, Default)]
pub struct Deletions {
    state: Mutex<State>,
    frozen: watch::Sender<Option<Frozen>>,
}

/// Why nothing is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frozen {
    /// Copies, or mapped namespaces, whose source is missing.
    pub missing: usize,
    /// How many there are.
    pub known: usize,
    /// What is counted.
    pub kind: Kind,
}

/// What is counted, each for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Copies of the consumer's objects.
    Objects,
    /// Namespaces of the consumer that have one on the provider.
    Namespaces,
}

/// What an engine counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub missing: usize,
    pub known: usize,
}

#[derive(Debug, Default)]
struct State {
    tallies: HashMap<(u64, Kind), Tally>,
    consent: Option<Timestamp>,
}

// === impl Deletions ===

impl Deletions {
    /// The user consents, until then, that copies are deleted although many sources are missing.
    pub fn consent(&self, until: Option<Timestamp>) {
        self.state.lock().consent = until;
        self.decide();
    }

    /// Whether deletions are held back, to read or to wait for.
    pub fn frozen(&self) -> watch::Receiver<Option<Frozen>> {
        self.frozen.subscribe()
    }

    /// Notes what an engine counts now. Answers whether it may delete.
    pub(crate) fn count(&self, engine: u64, kind: Kind, tally: Tally) -> bool {
        self.state.lock().tallies.insert((engine, kind), tally);
        self.decide()
    }

    /// Forgets an engine that has ended.
    pub(crate) fn forget(&self, engine: u64) {
        self.state.lock().tallies.retain(|(of, _), _| *of != engine);
        self.decide();
    }

    fn decide(&self) -> bool {
        let frozen = self.state.lock().frozen(Timestamp::now());
        self.frozen.send_if_modified(|before| {
            // The numbers move on while it lasts.
            let news = *before != frozen;
            *before = frozen;
            news
        });
        frozen.is_none()
    }
}

// === impl State ===

impl State {
    fn frozen(&self, now: Timestamp) -> Option<Frozen> {
        if self.consent.is_some_and(|until| until > now) {
            return None;
        }
        [Kind::Objects, Kind::Namespaces].into_iter().find_map(|kind| {
            let tallies = self.tallies.iter().filter(|((_, of), _)| *of == kind);
            let tallies = tallies.map(|(_, tally)| (tally.missing, tally.known));
            let (missing, known) = match kind {
                // Each engine has its own.
                Kind::Objects => tallies.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)),
                // All engines see the same ones.
                Kind::Namespaces => tallies.max().unwrap_or_default(),
            };
            (missing > MISSING_MIN && missing * SHARE > known).then_some(Frozen { missing, known, kind })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tallies: &[(usize, usize)], allowed: bool) {
        let deletions = Deletions::default();
        let mut last = true;
        for (engine, (missing, known)) in (0..).zip(tallies) {
            let tally = Tally {
                missing: *missing,
                known: *known,
            };
            last = deletions.count(engine, Kind::Objects, tally);
        }
        assert_eq!(last, allowed, "{tallies:?}");
    }

    #[test]
    fn many_and_a_large_share_are_too_many() {
        check(&[(0, 100)], true);
        check(&[(10, 10)], true);
        check(&[(11, 11)], false);
        check(&[(11, 54)], false);
        check(&[(11, 55)], true);
        check(&[(1000, 10_000)], true);
        check(&[(2001, 10_000)], false);
    }

    #[test]
    fn resources_of_a_binding_are_counted_together() {
        check(&[(6, 6), (6, 6)], false);
        check(&[(11, 11), (0, 100)], true);
    }

    #[test]
    fn objects_and_namespaces_are_counted_apart() {
        let deletions = Deletions::default();
        let tally = |missing| Tally {
            missing,
            known: missing,
        };
        assert!(deletions.count(1, Kind::Objects, tally(8)));
        assert!(deletions.count(1, Kind::Namespaces, tally(8)));
        assert!(!deletions.count(1, Kind::Namespaces, tally(11)));
        let frozen = Frozen {
            missing: 11,
            known: 11,
            kind: Kind::Namespaces,
        };
        assert_eq!(*deletions.frozen().borrow(), Some(frozen));
    }

    #[test]
    fn a_namespace_that_several_engines_miss_is_missing_once() {
        let deletions = Deletions::default();
        for engine in 0..4 {
            let tally = Tally { missing: 6, known: 6 };
            assert!(deletions.count(engine, Kind::Namespaces, tally));
        }
        assert!(!deletions.count(9, Kind::Namespaces, Tally { missing: 11, known: 11 }));
    }

    #[test]
    fn it_ends_with_the_users_consent_with_the_sources_or_with_the_engine() {
        let deletions = Deletions::default();
        let all = Tally { missing: 20, known: 20 };
        assert!(!deletions.count(1, Kind::Objects, all));
        deletions.consent(Some(Timestamp::now() - jiff::SignedDuration::from_secs(1)));
        assert!(deletions.frozen().borrow().is_some(), "too late");
        deletions.consent(Some(Timestamp::now() + jiff::SignedDuration::from_mins(1)));
        assert!(deletions.count(1, Kind::Objects, all));
        deletions.consent(None);
        assert!(!deletions.count(1, Kind::Objects, all));
        assert!(deletions.count(1, Kind::Objects, Tally { missing: 0, known: 20 }));
        assert!(!deletions.count(1, Kind::Objects, all));
        deletions.forget(1);
        assert_eq!(*deletions.frozen().borrow(), None);
    }
}
