//! Which UIDs of the contract namespace a session has read, and what they tell of the contract.

use std::sync::Arc;

use crate::contract::is_unverified;

/// The UIDs of the contract namespace that a session has read.
#[derive(Clone, Debug, Default)]
pub(super) struct FoundUids {
    /// The UID that was read before anything else was; `None` if it could not be read then.
    pub(super) first: Option<Arc<str>>,
    /// The UID that was read last, also if it can no longer be read.
    pub(super) last: Option<Arc<str>>,
    /// The UID that was read last; `None` while it cannot be read.
    pub(super) now: Option<Arc<str>>,
}

impl FoundUids {
    /// The UID, if all that the session knows was read after it, and it has not changed since.
    pub(super) fn throughout(&self) -> Option<&Arc<str>> {
        self.now.as_ref().filter(|uid| self.first.as_ref() == Some(*uid))
    }

    /// The UID of the contract for a binding or bundle with this pin, in the session of the contract `own`; `None` if it is not known. What
    /// was read once is known also while it can no longer be read, but it is told to none that is not pinned.
    pub(super) fn known(&self, own: &Arc<str>, pinned: Option<&str>) -> Option<Arc<str>> {
        let before = || {
            let is_own = pinned? == &**own;
            self.last.clone().or_else(|| is_own.then(|| Arc::clone(own)))
        };
        self.now.clone().or_else(before)
    }

    /// Whether the session of the contract `own` learned the UID `reached` too late: what it read before may be another contract's.
    pub(super) fn is_late(&self, own: &str, reached: Option<&Arc<str>>) -> bool {
        is_unverified(own) && reached.is_some() && reached == self.now.as_ref() && reached != self.first.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "unverified-d";

    fn uids(first: Option<&str>, last: Option<&str>, now: Option<&str>) -> FoundUids {
        let [first, last, now] = [first, last, now].map(|uid| uid.map(Arc::from));
        FoundUids { first, last, now }
    }

    #[test]
    fn a_uid_that_was_read_counts_more_than_the_pin() {
        let check = |last: Option<&str>, now: Option<&str>, pinned: Option<&str>, expect: Option<&str>| {
            let known = uids(None, last, now).known(&"x".into(), pinned);
            assert_eq!(known.as_deref(), expect, "{last:?}, {now:?}, {pinned:?}");
        };
        for pinned in [None, Some("x"), Some("y"), Some(DIGEST)] {
            check(Some("y"), Some("y"), pinned, Some("y"));
        }
        for pinned in [Some("x"), Some("y"), Some(DIGEST)] {
            check(Some("y"), None, pinned, Some("y"));
        }
        check(Some("y"), None, None, None);
        check(None, None, Some("x"), Some("x"));
        check(None, None, None, None);
        check(None, None, Some(DIGEST), None);
    }

    #[test]
    fn what_was_read_before_the_uid_proves_nothing() {
        let check = |first: Option<&str>, now: Option<&str>, throughout: bool, late: bool| {
            let uids = uids(first, now, now);
            assert_eq!(uids.throughout().is_some(), throughout, "{uids:?}");
            assert_eq!(uids.is_late(DIGEST, now.map(Arc::from).as_ref()), late, "{uids:?}");
            assert!(
                !uids.is_late("x", now.map(Arc::from).as_ref()),
                "a UID never comes back"
            );
            assert!(!uids.is_late(DIGEST, Some(&"z".into())), "read elsewhere");
        };
        check(None, None, false, false);
        check(None, Some("y"), false, true);
        check(Some("x"), Some("y"), false, true);
        check(Some("x"), None, false, false);
        check(Some("y"), Some("y"), true, false);
    }
}
