//! Which UIDs of the contract namespace a session has read, and what they tell of the contract.

use std::sync::Arc;

/// The UIDs of the contract namespace that a session has read.
#[derive(Clone, Debug, Default)]
pub(super) struct FoundUids {
    /// The UID that was read last, also if it can no longer be read.
    pub(super) last: Option<Arc<str>>,
    /// The UID that was read last; `None` while it cannot be read.
    pub(super) now: Option<Arc<str>>,
}

impl FoundUids {
    /// The UID of the contract for a binding or bundle with this pin, in the session of the contract `own`; `None` if it is not known. What
    /// was read once is known also while it can no longer be read, but it is told to none that is not pinned.
    pub(super) fn known(&self, own: &Arc<str>, pinned: Option<&str>) -> Option<Arc<str>> {
        let before = || {
            let is_own = pinned? == &**own;
            self.last.clone().or_else(|| is_own.then(|| Arc::clone(own)))
        };
        self.now.clone().or_else(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "unverified-d";

    #[test]
    fn a_uid_that_was_read_counts_more_than_the_pin() {
        let check = |last: Option<&str>, now: Option<&str>, pinned: Option<&str>, expect: Option<&str>| {
            let [last_uid, now_uid] = [last, now].map(|uid| uid.map(Arc::from));
            let uids = FoundUids {
                last: last_uid,
                now: now_uid,
            };
            let known = uids.known(&"x".into(), pinned);
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
}
