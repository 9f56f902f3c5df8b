//! Holds back deletions on the provider when too many sources are missing at once: that looks like a consumer cluster
//! that lost its objects, not like a user who deleted them.

use std::collections::HashMap;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::index::Tally;

/// Fewer missing sources are no matter.
const MISSING_MIN: usize = 10;
/// Nor are those that are less than one in so many copies.
const SHARE: usize = 5;

/// The guard of one binding, which its engines share.
#[derive(Debug, Default)]
pub struct Deletions {
    state: Mutex<State>,
    frozen: watch::Sender<Option<Frozen>>,
    /// Nothing is held back: neither too much is missing, nor has an engine still to count.
    allowed: watch::Sender<bool>,
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

#[derive(Debug, Default)]
struct State {
    engines: HashMap<u64, Counted>,
    consent: Option<Timestamp>,
}

/// What one engine counted; `None` while it does not know all there is.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    objects: Option<Tally>,
    namespaces: Option<Tally>,
}

// === impl Deletions ===

impl Deletions {
    /// The user consents, until then, that copies are deleted although many sources are missing.
    pub fn consent(&self, until: Option<Timestamp>) {
        self.change(|state| state.consent = until);
    }

    /// Whether deletions are held back because too much is missing, to read or to wait for.
    pub fn frozen(&self) -> watch::Receiver<Option<Frozen>> {
        self.frozen.subscribe()
    }

    /// Whether copies may go whose source is missing, to read or to wait for.
    pub(crate) fn allowed(&self) -> watch::Receiver<bool> {
        self.allowed.subscribe()
    }

    /// Whether that is so now.
    pub(crate) fn allows(&self) -> bool {
        *self.allowed.borrow()
    }

    /// From now on nothing is allowed before this engine has counted too.
    pub(crate) fn join(&self, engine: u64) {
        self.change(|state| {
            state.engines.entry(engine).or_default();
        });
    }

    /// Notes what an engine counts now; `None` if it does not know all there is. One that has not joined counts for nothing.
    pub(crate) fn count(&self, engine: u64, kind: Kind, tally: Option<Tally>) {
        self.change(|state| {
            if let Some(counted) = state.engines.get_mut(&engine) {
                *match kind {
                    Kind::Objects => &mut counted.objects,
                    Kind::Namespaces => &mut counted.namespaces,
                } = tally;
            }
        });
    }

    /// Forgets an engine that has ended.
    pub(crate) fn forget(&self, engine: u64) {
        self.change(|state| {
            state.engines.remove(&engine);
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        // Held until it is told, or an older answer might be told last.
        let mut state = self.state.lock();
        change(&mut state);
        let consented = state.consent.is_some_and(|until| until > Timestamp::now());
        let frozen = state.frozen().filter(|_| !consented);
        let allowed = consented || (frozen.is_none() && state.is_counted());
        self.frozen
            .send_if_modified(|before| std::mem::replace(before, frozen) != frozen);
        self.allowed
            .send_if_modified(|before| std::mem::replace(before, allowed) != allowed);
    }
}

// === impl State ===

impl State {
    /// Whether every engine knows all its objects.
    fn is_counted(&self) -> bool {
        self.engines.values().all(|counted| counted.objects.is_some())
    }

    fn frozen(&self) -> Option<Frozen> {
        // Each engine has objects of its own, and all see the same namespaces.
        let objects = self.engines.values().filter_map(|counted| counted.objects);
        let objects = objects.fold(Tally::default(), Tally::and);
        let namespaces = self.engines.values().filter_map(|counted| counted.namespaces);
        let namespaces = namespaces.max_by_key(|tally| (tally.missing, tally.known));
        [
            (Kind::Objects, objects),
            (Kind::Namespaces, namespaces.unwrap_or_default()),
        ]
        .into_iter()
        .find(|(_, tally)| is_too_much(*tally))
        .map(|(kind, Tally { missing, known, .. })| Frozen { missing, known, kind })
    }
}

/// Whether so much is missing that it looks like a loss.
fn is_too_much(tally: Tally) -> bool {
    let min = if tally.rewound { 0 } else { MISSING_MIN };
    tally.missing > min && (tally.rewound || tally.missing * SHARE > tally.known)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECTS: Kind = Kind::Objects;

    #[expect(clippy::unnecessary_wraps, reason = "as an engine tells it")]
    fn tally(missing: usize, known: usize) -> Option<Tally> {
        Some(Tally {
            missing,
            known,
            rewound: false,
        })
    }

    #[track_caller]
    fn check(tallies: &[(usize, usize)], allowed: bool) {
        let deletions = Deletions::default();
        for (engine, (missing, known)) in (0..).zip(tallies) {
            deletions.join(engine);
            deletions.count(engine, OBJECTS, tally(*missing, *known));
        }
        assert_eq!(deletions.allows(), allowed, "{tallies:?}");
        assert_eq!(deletions.frozen().borrow().is_none(), allowed, "{tallies:?}");
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
    fn after_the_consumer_went_back_in_time_one_is_too_many() {
        let deletions = Deletions::default();
        deletions.join(1);
        deletions.join(2);
        let after = |missing| {
            Some(Tally {
                missing,
                known: 1000,
                rewound: true,
            })
        };
        deletions.count(2, OBJECTS, tally(0, 10));
        deletions.count(1, OBJECTS, after(1));
        assert!(!deletions.allows());
        deletions.count(1, OBJECTS, after(0));
        assert!(deletions.allows(), "all are there");
        deletions.count(1, Kind::Namespaces, after(1));
        assert!(!deletions.allows());
    }

    #[test]
    fn resources_of_a_binding_are_counted_together() {
        check(&[(6, 6), (6, 6)], false);
        check(&[(11, 11), (0, 100)], true);
    }

    #[test]
    fn nothing_goes_before_every_engine_has_counted() {
        let deletions = Deletions::default();
        deletions.join(1);
        deletions.join(2);
        deletions.count(1, OBJECTS, tally(8, 8));
        assert!(!deletions.allows());
        assert!(deletions.frozen().borrow().is_none(), "it is only not known");
        deletions.count(2, OBJECTS, tally(8, 8));
        assert!(!deletions.allows());
        assert!(deletions.frozen().borrow().is_some());
        deletions.count(2, OBJECTS, tally(0, 100));
        assert!(deletions.allows());
        deletions.count(1, OBJECTS, None);
        assert!(!deletions.allows(), "it lists anew");
    }

    #[test]
    fn objects_and_namespaces_are_counted_apart() {
        let deletions = Deletions::default();
        deletions.join(1);
        deletions.count(1, OBJECTS, tally(8, 8));
        deletions.count(1, Kind::Namespaces, tally(8, 8));
        assert!(deletions.allows());
        deletions.count(1, Kind::Namespaces, tally(11, 11));
        let frozen = Frozen {
            missing: 11,
            known: 11,
            kind: Kind::Namespaces,
        };
        assert_eq!(*deletions.frozen().borrow(), Some(frozen));
        // Another engine sees the same ones, and they are no more for that.
        deletions.join(2);
        deletions.count(2, Kind::Namespaces, tally(11, 11));
        assert_eq!(*deletions.frozen().borrow(), Some(frozen));
    }

    #[test]
    fn it_ends_with_the_users_consent_with_the_sources_or_with_the_engine() {
        let deletions = Deletions::default();
        deletions.join(1);
        let all = tally(20, 20);
        deletions.count(1, OBJECTS, all);
        assert!(!deletions.allows());
        deletions.consent(Some(Timestamp::now() - jiff::SignedDuration::from_secs(1)));
        assert!(deletions.frozen().borrow().is_some(), "too late");
        deletions.consent(Some(Timestamp::now() + jiff::SignedDuration::from_mins(1)));
        assert!(deletions.allows());
        deletions.consent(None);
        assert!(!deletions.allows());
        deletions.count(1, OBJECTS, tally(0, 20));
        assert!(deletions.allows());
        deletions.count(1, OBJECTS, all);
        assert!(!deletions.allows());
        deletions.forget(1);
        assert!(deletions.allows());
        deletions.count(1, OBJECTS, all);
        assert!(deletions.allows(), "it has ended");
    }
}
