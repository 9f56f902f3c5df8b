//! Holds back deletions of one binding: all while its contract is not verified, and those of claimed copies that an orphan may need.

use std::collections::HashMap;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

/// The deletion guard of one binding. The engines of the binding share it.
#[derive(Debug, Default)]
pub struct Deletions {
    state: Mutex<State>,
    /// Whether copies may be deleted whose source is there and is only not claimed any more.
    allowed: watch::Sender<bool>,
    /// Whether all deletions are withheld.
    withheld: watch::Sender<bool>,
    /// Whether the binding has orphans.
    orphaned: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of orphans of each engine of a bound resource; `None` while not all objects are known.
    orphans: HashMap<u64, Option<usize>>,
    consent: Option<Timestamp>,
}

// === impl Deletions ===

impl Deletions {
    /// Notes until when the user consents that copies are deleted although their source is missing, as former versions asked for it.
    pub fn consent(&self, until: Option<Timestamp>) {
        self.change(|state| state.consent = until);
    }

    /// Whether the user consents now that copies are deleted although their source is missing.
    pub(crate) fn consents(&self) -> bool {
        self.state.lock().consents()
    }

    /// Withholds all deletions, or no longer: also those of copies whose source was seen to end, and whatever the user orders.
    ///
    /// What proves that this konnector may act for the contract ends up here: without that proof, what it sees is no evidence.
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

    /// Whether the binding has orphans, to read or to wait for.
    pub(crate) fn orphaned(&self) -> watch::Receiver<bool> {
        self.orphaned.subscribe()
    }

    /// Whether claimed copies may be deleted whose source is there, to read or to wait for.
    pub(crate) fn allowed(&self) -> watch::Receiver<bool> {
        self.allowed.subscribe()
    }

    /// Whether claimed copies may be deleted whose source is there.
    pub(crate) fn allows(&self) -> bool {
        // The user's consent may have ended since the last change.
        self.change(|_| ());
        *self.allowed.borrow()
    }

    /// Adds an engine of a bound resource. The guard allows no deletion before the engine knows all objects.
    pub(crate) fn join(&self, engine: u64) {
        self.change(|state| {
            state.orphans.entry(engine).or_default();
        });
    }

    /// Notes the number of orphans of an engine; `None` if not all objects are known. Engines that did not join are ignored.
    pub(crate) fn count(&self, engine: u64, orphans: Option<usize>) {
        let before = self.state.lock().orphans.get(&engine).copied();
        if before.is_none_or(|before| before == orphans) {
            return;
        }
        self.change(|state| {
            if let Some(counted) = state.orphans.get_mut(&engine) {
                *counted = orphans;
            }
        });
    }

    /// Removes an engine that has ended.
    pub(crate) fn forget(&self, engine: u64) {
        self.change(|state| {
            state.orphans.remove(&engine);
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        // Locked until the outcome is published, so that an older one is never published last.
        let mut state = self.state.lock();
        change(&mut state);
        let is_known = state.orphans.values().all(Option::is_some);
        let orphaned = state.orphans.values().flatten().any(|orphans| *orphans > 0);
        let allowed = !self.withholds() && (state.consents() || (is_known && !orphaned));
        self.orphaned
            .send_if_modified(|before| std::mem::replace(before, orphaned) != orphaned);
        self.allowed
            .send_if_modified(|before| std::mem::replace(before, allowed) != allowed);
    }
}

// === impl State ===

impl State {
    fn consents(&self) -> bool {
        self.consent.is_some_and(|until| until > Timestamp::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(orphans: &[Option<usize>], allowed: bool) {
        let deletions = Deletions::default();
        for (engine, orphans) in (0..).zip(orphans) {
            deletions.join(engine);
            deletions.count(engine, *orphans);
        }
        assert_eq!(deletions.allows(), allowed, "{orphans:?}");
        let orphaned = orphans.iter().flatten().any(|orphans| *orphans > 0);
        assert_eq!(*deletions.orphaned().borrow(), orphaned, "{orphans:?}");
    }

    #[test]
    fn one_orphan_holds_back_what_it_may_need() {
        check(&[], true);
        check(&[Some(0)], true);
        check(&[Some(0), Some(1)], false);
        check(&[Some(0), None], false);
        check(&[None], false);
    }

    #[test]
    fn withheld_deletions_wait_whatever_the_user_consents_to() {
        let deletions = Deletions::default();
        deletions.join(1);
        deletions.count(1, Some(0));
        deletions.withhold(true);
        deletions.consent(Some(Timestamp::MAX));
        assert!(deletions.withholds() && !deletions.allows());
        deletions.withhold(false);
        assert!(!deletions.withholds() && deletions.allows());
    }

    #[test]
    fn it_ends_with_the_users_consent_with_the_orphans_or_with_the_engine() {
        let deletions = Deletions::default();
        deletions.count(1, Some(1));
        assert!(deletions.allows(), "it did not join");
        deletions.join(1);
        deletions.count(1, Some(1));
        assert!(!deletions.allows() && !deletions.consents());
        deletions.consent(Some(Timestamp::now() - jiff::SignedDuration::from_secs(1)));
        assert!(!deletions.allows() && !deletions.consents(), "too late");
        deletions.consent(Some(Timestamp::now() + jiff::SignedDuration::from_mins(1)));
        assert!(deletions.allows() && deletions.consents());
        deletions.consent(None);
        assert!(!deletions.allows());
        deletions.count(1, Some(0));
        assert!(deletions.allows());
        deletions.count(1, None);
        assert!(!deletions.allows(), "it lists anew");
        deletions.forget(1);
        assert!(deletions.allows());
        deletions.count(1, Some(1));
        assert!(deletions.allows(), "it has ended");
    }
}
