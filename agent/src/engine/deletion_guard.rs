//! Holds back deletions of copies when too many sources are missing at once: that looks like a cluster that lost its
//! objects, not like a user who deleted them.

use std::collections::HashMap;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::index::Tally;

/// This many missing sources, or fewer, never freeze deletions, unless a cluster went back in time.
const MISSING_MIN: usize = 10;
/// Deletions freeze only if more than one in this many copies lost its source, unless a cluster went back in time.
const SHARE: usize = 5;

/// The deletion guard of one binding. The engines of the binding share it.
#[derive(Debug, Default)]
pub struct Deletions {
    state: Mutex<State>,
    frozen: watch::Sender<Option<Frozen>>,
    /// Whether copies may be deleted: nothing is withheld, and the user consents, or every engine has counted and not too much is
    /// missing.
    allowed: watch::Sender<bool>,
    /// Whether all deletions are withheld.
    withheld: watch::Sender<bool>,
}

/// Why deletions are frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frozen {
    /// The number of copies, or of mapped namespaces, whose source is missing.
    pub missing: usize,
    /// The number of all copies, or of all mapped namespaces.
    pub known: usize,
    /// Whether copies or namespaces are counted.
    pub kind: Kind,
}

/// What a deletion guard counts. Each kind is counted by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Copies of objects.
    Objects,
    /// Consumer namespaces that have a provider namespace.
    Namespaces,
}

#[derive(Debug, Default)]
struct State {
    engines: HashMap<u64, Counted>,
    consent: Option<Timestamp>,
}

/// The counts of one engine; `None` before the first one, and while not all objects are known.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    objects: Option<Tally>,
    namespaces: Option<Tally>,
}

// === impl Deletions ===

impl Deletions {
    /// Notes until when the user consents to deletions although many sources are missing.
    pub fn consent(&self, until: Option<Timestamp>) {
        self.change(|state| state.consent = until);
    }

    /// Withholds all deletions, or no longer: also those of copies whose source was seen to end, and whatever the user consents to.
    pub fn withhold(&self, withheld: bool) {
        self.withheld
            .send_if_modified(|before| std::mem::replace(before, withheld) != withheld);
        self.change(|_| ());
    }

    /// Whether all deletions are withheld, to read or to wait for.
    pub(crate) fn withheld(&self) -> watch::Receiver<bool> {
        self.withheld.subscribe()
    }

    /// Whether all deletions are withheld now.
    pub(crate) fn withholds(&self) -> bool {
        *self.withheld.borrow()
    }

    /// Why deletions are frozen, to read or to wait for; `None` unless too many sources are missing.
    pub fn frozen(&self) -> watch::Receiver<Option<Frozen>> {
        self.frozen.subscribe()
    }

    /// Whether copies whose source is missing may be deleted, to read or to wait for.
    pub(crate) fn allowed(&self) -> watch::Receiver<bool> {
        self.allowed.subscribe()
    }

    /// Whether copies whose source is missing may be deleted now.
    pub(crate) fn allows(&self) -> bool {
        // The user's consent may have ended since the last change.
        self.change(|_| ());
        *self.allowed.borrow()
    }

    /// Adds an engine. The guard allows no deletion before the engine has counted its objects, unless the user consents.
    pub(crate) fn join(&self, engine: u64) {
        self.change(|state| {
            state.engines.entry(engine).or_default();
        });
    }

    /// Notes the count of an engine; `None` if not all objects are known. Counts of engines that did not join are ignored.
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

    /// Removes an engine that has ended, with its counts.
    pub(crate) fn forget(&self, engine: u64) {
        self.change(|state| {
            state.engines.remove(&engine);
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        // Locked until the outcome is published, so that an older one is never published last.
        let mut state = self.state.lock();
        change(&mut state);
        let consented = state.consent.is_some_and(|until| until > Timestamp::now());
        let frozen = state.frozen().filter(|_| !consented);
        let allowed = !self.withholds() && (consented || (frozen.is_none() && state.is_counted()));
        self.frozen
            .send_if_modified(|before| std::mem::replace(before, frozen) != frozen);
        self.allowed
            .send_if_modified(|before| std::mem::replace(before, allowed) != allowed);
    }
}

// === impl State ===

impl State {
    /// Whether every engine has counted its objects.
    fn is_counted(&self) -> bool {
        self.engines.values().all(|counted| counted.objects.is_some())
    }

    fn frozen(&self) -> Option<Frozen> {
        // Objects are added up, since each engine has its own. Namespaces are not, since all engines see the same ones.
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

/// Whether so many sources are missing that it looks like a loss of data.
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
    fn withheld_deletions_wait_whatever_the_user_consents_to() {
        let deletions = Deletions::default();
        deletions.join(1);
        deletions.count(1, OBJECTS, tally(0, 10));
        deletions.withhold(true);
        deletions.consent(Some(Timestamp::MAX));
        assert!(deletions.withholds() && !deletions.allows());
        assert!(deletions.frozen().borrow().is_none(), "nothing is missing");
        deletions.withhold(false);
        assert!(!deletions.withholds() && deletions.allows());
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
        // Another engine counts the same namespaces, which are not added up.
        deletions.join(2);
        deletions.count(2, Kind::Namespaces, tally(11, 11));
        assert_eq!(*deletions.frozen().borrow(), Some(frozen));
    }

    #[test]
    fn consent_ends_at_its_time_although_nothing_is_counted() {
        let deletions = Deletions::default();
        deletions.join(1);
        deletions.count(1, OBJECTS, tally(20, 20));
        let until = Timestamp::now() + jiff::SignedDuration::from_millis(20);
        deletions.consent(Some(until));
        while Timestamp::now() <= until {
            std::thread::yield_now();
        }
        assert!(!deletions.allows());
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
