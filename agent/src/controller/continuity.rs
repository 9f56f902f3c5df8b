//! Tells whether a contract that was pinned before its UID could be read is still the same, now that the UID can be read.
//!
//! Such a pin is a digest of the place of the contract. A provider that was made anew at that place has the same digest, so a UID
//! takes the place of the digest only if each binding with that pin finds copies there that it has made before, or has made none.

use std::{collections::BTreeSet, sync::Arc};

use bindery_api::v1alpha2::APIServiceBinding;

use super::context::ControllerContext;
use crate::{contract::is_unverified, session::Session};

impl ControllerContext {
    /// Returns the UID of the contract of a session, if it is proven to be the contract that this pin stands for.
    pub fn proven(&self, session: Option<&Arc<Session>>, pinned: Option<&str>) -> Option<Arc<str>> {
        let pinned = pinned.filter(|uid| is_unverified(uid))?;
        let session = session.filter(|session| *session.contract().uid == *pinned)?;
        let found = session.found_throughout()?;
        let is_holder = |binding: &APIServiceBinding| {
            binding.contract_uid() == Some(pinned) && self.other_konnectors.serves_binding(binding)
        };
        let holders = self.consumer.bindings.list(is_holder);
        let uids = holders.iter().map(|binding| binding.metadata.uid.as_deref());
        all_continue(uids, &session.continued().borrow()).then_some(found)
    }
}

/// Whether all bindings of these UIDs are known to continue.
fn all_continue<'a>(holders: impl IntoIterator<Item = Option<&'a str>>, continued: &BTreeSet<Arc<str>>) -> bool {
    holders
        .into_iter()
        .all(|uid| uid.is_some_and(|uid| continued.contains(uid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(holders: &[Option<&str>], continued: &[&str], expect: bool) {
        let continued = continued.iter().map(|uid| Arc::from(*uid)).collect();
        assert_eq!(
            all_continue(holders.iter().copied(), &continued),
            expect,
            "{holders:?}, {continued:?}"
        );
    }

    #[test]
    fn one_binding_without_proof_holds_all() {
        check(&[], &[], true);
        check(&[Some("a")], &["a"], true);
        check(&[Some("a")], &[], false);
        check(&[Some("a"), Some("b")], &["a"], false);
        check(&[Some("a"), Some("b")], &["a", "b", "c"], true);
        check(&[Some("a"), None], &["a"], false);
    }
}
