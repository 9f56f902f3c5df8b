//! The objects of the consumer whose end was seen last.

use std::collections::{HashSet, VecDeque};

use crate::model::uid::Uid;

/// At most this many ends are remembered, the newest ones.
const ENDS_MAX: usize = 16_384;

/// UIDs of the consumer's objects whose end was seen last. A pair without any object is forgotten, but the copy of such an object
/// may show up later: its creation may still be on the way to the provider.
#[derive(Debug, Default)]
pub(super) struct RecentEnds {
    uids: HashSet<Uid>,
    order: VecDeque<Uid>,
}

// === impl RecentEnds ===

impl RecentEnds {
    /// Remembers an end. The oldest one is forgotten for it if there are too many.
    pub(super) fn add(&mut self, uid: Uid) {
        if !self.uids.insert(uid.clone()) {
            return;
        }
        self.order.push_back(uid);
        if self.order.len() > ENDS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }

    /// Whether the end of this object is remembered.
    pub(super) fn contains(&self, uid: &Uid) -> bool {
        self.uids.contains(uid)
    }

    /// Forgets an end, since the object exists again, as after a restore.
    pub(super) fn remove(&mut self, uid: &Uid) {
        self.uids.remove(uid);
    }

    /// Forgets all ends, since the objects may exist again.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_ends_are_remembered() {
        let uid = |at: usize| Uid::from(&*at.to_string());
        let mut ends = RecentEnds::default();
        ends.add(uid(0));
        for at in 0..ENDS_MAX {
            ends.add(uid(at));
        }
        assert!(ends.contains(&uid(0)), "it was added twice and counts once");
        ends.add(uid(ENDS_MAX));
        assert!(!ends.contains(&uid(0)) && ends.contains(&uid(1)) && ends.contains(&uid(ENDS_MAX)));
        assert_eq!(ends.uids.len(), ENDS_MAX);
        ends.clear();
        assert!(!ends.contains(&uid(1)));
    }
}
