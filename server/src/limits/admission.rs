//! Which objects of a tenant are within a limit: the oldest, and of equally old ones the first by name. Each question and each change
//! takes time that grows with the logarithm of the number of objects.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use kube::Resource;

/// The place of an object in the order of admission: its time of creation, and its namespace and name.
pub type AdmissionRank = (Option<Timestamp>, Arc<str>, Arc<str>);

/// The objects of one tenant, in the order of admission.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    /// Those within the limit that was asked about last: each comes before each of `beyond`.
    within: BTreeSet<AdmissionRank>,
    beyond: BTreeSet<AdmissionRank>,
}

/// The place of an object in the order of admission.
pub fn rank<K: Resource>(object: &K) -> AdmissionRank {
    let meta = object.meta();
    let created = meta.creation_timestamp.as_ref().map(|time| time.0);
    let text = |text: Option<&str>| Arc::from(text.unwrap_or_default());
    (created, text(meta.namespace.as_deref()), text(meta.name.as_deref()))
}

impl Admission {
    /// Adds an object. One that is there already stays.
    pub fn insert(&mut self, rank: AdmissionRank) {
        if self.beyond.first().is_some_and(|first| *first <= rank) {
            self.beyond.insert(rank);
        } else {
            self.within.insert(rank);
        }
    }

    /// Removes an object, if it is there.
    pub fn remove(&mut self, rank: &AdmissionRank) {
        let _ = self.within.remove(rank) || self.beyond.remove(rank);
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.within.len() + self.beyond.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether an object is among the first `limit`.
    pub fn admits(&mut self, rank: &AdmissionRank, limit: usize) -> bool {
        self.fit(limit);
        self.within.contains(rank)
    }

    /// Returns the first `limit` objects, in order.
    pub fn admitted(&mut self, limit: usize) -> impl Iterator<Item = &AdmissionRank> {
        self.fit(limit);
        self.within.iter()
    }

    /// Moves objects between the two sets until as many are within as there may be.
    fn fit(&mut self, limit: usize) {
        while self.within.len() > limit {
            self.beyond.extend(self.within.pop_last());
        }
        while self.within.len() < limit {
            let Some(first) = self.beyond.pop_first() else {
                break;
            };
            self.within.insert(first);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn at(second: i64, name: u8) -> AdmissionRank {
        let created = Timestamp::from_second(second).ok();
        (created, Arc::from("kube-bind-a"), Arc::from(name.to_string()))
    }

    proptest! {
        /// After any changes, and for any limits, the admitted are the first of the sorted objects.
        #[test]
        fn the_first_are_admitted(steps in vec((0..4_i64, 0..6_u8, any::<bool>(), 0..8_usize), 0..60)) {
            let (mut admission, mut plain) = (Admission::default(), BTreeSet::new());
            for (second, name, added, limit) in steps {
                let rank = at(second, name);
                if added {
                    admission.insert(rank.clone());
                    plain.insert(rank.clone());
                } else {
                    admission.remove(&rank);
                    plain.remove(&rank);
                }
                prop_assert_eq!(admission.len(), plain.len());
                let first: Vec<_> = plain.iter().take(limit).cloned().collect();
                prop_assert_eq!(admission.admits(&rank, limit), first.contains(&rank));
                let admitted: Vec<_> = admission.admitted(limit).cloned().collect();
                prop_assert_eq!(admitted, first);
            }
        }
    }

    #[test]
    fn a_hundred_thousand_beyond_the_limit_cost_no_look_at_each_other() {
        let mut admission = Admission::default();
        for second in 0..100_000 {
            admission.insert(at(second, 0));
        }
        for second in 0..100_000 {
            assert_eq!(admission.admits(&at(second, 0), 10), second < 10);
        }
    }
}
