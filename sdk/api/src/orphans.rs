//! Orphans: copies on the provider whose source is missing although nobody was seen to delete it. The konnector keeps them until
//! the user ends them by an order, which names them by their number and a digest of their UIDs.

use std::{fmt, str::FromStr};

use crate::hash;

/// A digest of a set of UIDs. It does not depend on their order, and the digest of two disjoint sets is that of each, added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrphanDigest(u128);

/// The orphans of a binding, or of a part of it, by number and digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrphanSet {
    /// The number of orphans.
    pub count: usize,
    /// The digest of the UIDs of these copies.
    pub digest: OrphanDigest,
}

/// How orphans end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanAction {
    /// Their copies are deleted.
    Delete,
    /// Their copies stay with the provider and are marked as released.
    Release,
    /// Their copies become the copies of the objects that have the names of their sources now.
    Relink,
}

/// What the user says about the orphans of a binding, as annotation [`crate::annotations::END_ORPHANS`] holds it:
/// `<action>/<count>/<digest>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrphanOrder {
    /// How the orphans end.
    pub action: OrphanAction,
    /// The orphans that the user saw. The order holds for exactly these.
    pub orphans: OrphanSet,
}

/// The text is no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not <delete|release|relink>/<count>/<digest>")]
pub struct OrphanOrderError;

// === impl OrphanDigest ===

impl OrphanDigest {
    fn of(uid: &str) -> Self {
        let hash = hash::of_parts([uid]);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash[..16]);
        Self(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for OrphanDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

// === impl OrphanSet ===

impl OrphanSet {
    /// Adds the copy of this UID.
    pub fn add(&mut self, uid: &str) {
        *self = self.and(Self {
            count: 1,
            digest: OrphanDigest::of(uid),
        });
    }

    /// Joins two sets that have no copy in common.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            digest: OrphanDigest(self.digest.0.wrapping_add(other.digest.0)),
        }
    }

    /// Reads the set that ends a message of condition [`crate::conditions::ORPHANED_OBJECTS`], as [`Self::closing`] writes it.
    pub fn of_message(message: &str) -> Option<Self> {
        let (_, told) = message.rsplit_once(CLOSING)?;
        told.strip_suffix(')')?.parse().ok()
    }

    /// The end of a message that names the set, so that a program can order its end.
    pub fn closing(&self) -> String {
        format!("{CLOSING}{self})")
    }
}

/// What comes before the set at the end of a message.
const CLOSING: &str = " (orphans ";

impl fmt::Display for OrphanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.digest)
    }
}

impl FromStr for OrphanSet {
    type Err = OrphanOrderError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (count, digest) = text.split_once('/').ok_or(OrphanOrderError)?;
        let is_digest = digest.len() == 32 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let digest = is_digest.then(|| u128::from_str_radix(digest, 16).ok()).flatten();
        Ok(Self {
            count: count.parse().map_err(|_| OrphanOrderError)?,
            digest: OrphanDigest(digest.ok_or(OrphanOrderError)?),
        })
    }
}

// === impl OrphanAction ===

impl OrphanAction {
    /// All actions.
    pub const ALL: [Self; 3] = [Self::Delete, Self::Release, Self::Relink];

    /// The name of the action in an order, which is that of the flag of `kubectl bind orphans` too.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Release => "release",
            Self::Relink => "relink",
        }
    }
}

// === impl OrphanOrder ===

impl fmt::Display for OrphanOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.action.as_str(), self.orphans)
    }
}

impl FromStr for OrphanOrder {
    type Err = OrphanOrderError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (action, orphans) = text.split_once('/').ok_or(OrphanOrderError)?;
        let mut all = OrphanAction::ALL.into_iter();
        Ok(Self {
            action: all.find(|known| known.as_str() == action).ok_or(OrphanOrderError)?,
            orphans: orphans.parse()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(uids: &[&str]) -> OrphanSet {
        let mut set = OrphanSet::default();
        for uid in uids {
            set.add(uid);
        }
        set
    }

    #[test]
    fn an_order_is_read_as_it_is_written() {
        for action in OrphanAction::ALL {
            let order = OrphanOrder {
                action,
                orphans: set(&["a", "b"]),
            };
            let text = order.to_string();
            assert!(text.starts_with(&format!("{}/2/", action.as_str())), "{text}");
            assert_eq!(text.parse(), Ok(order));
        }
        let digest = set(&["a"]).digest;
        for wrong in [
            String::new(),
            "delete".to_owned(),
            "delete/1".to_owned(),
            "delete/1/abc".to_owned(),
            format!("delete/-1/{digest}"),
            format!("remove/1/{digest}"),
            format!("delete/1/{digest}0"),
            format!("delete/1/+{}", &digest.to_string()[1..]),
            format!(
                "delete/1/{}",
                digest.to_string().to_uppercase().replace(char::is_numeric, "A")
            ),
        ] {
            assert_eq!(wrong.parse::<OrphanOrder>(), Err(OrphanOrderError), "{wrong}");
        }
    }

    #[test]
    fn a_message_names_its_set_at_its_end() {
        let known = set(&["a", "b", "c"]);
        let message = format!("3 copies have lost their source (orphans are kept){}", known.closing());
        assert_eq!(OrphanSet::of_message(&message), Some(known));
        for wrong in ["", "3 copies have lost their source", " (orphans )", " (orphans 1/2"] {
            assert_eq!(OrphanSet::of_message(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_set_is_what_it_holds(uids in prop::collection::btree_set("[a-f0-9]{1,8}", 1..8), at in any::<prop::sample::Index>()) {
            let uids: Vec<_> = uids.iter().map(String::as_str).collect();
            let mut turned = uids.clone();
            turned.reverse();
            prop_assert_eq!(set(&uids), set(&turned));
            let (head, tail) = uids.split_at(at.index(uids.len()));
            prop_assert_eq!(set(head).and(set(tail)), set(&uids));
            prop_assert!(head.is_empty() || set(tail) != set(&uids));
        }
    }
}
