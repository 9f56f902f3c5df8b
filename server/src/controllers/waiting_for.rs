//! An index of what waits for what.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

/// Waiting objects by key, each with a value, and found by any of the subjects that it waits for.
#[derive(Debug)]
pub(super) struct WaitingFor<Subject, Key, Value> {
    waiting: HashMap<Key, (Vec<Subject>, Value)>,
    by_subject: HashMap<Subject, BTreeSet<Key>>,
}

// === impl WaitingFor ===

impl<Subject, Key, Value> WaitingFor<Subject, Key, Value>
where
    Subject: Eq + Hash + Clone,
    Key: Eq + Hash + Ord + Clone,
{
    /// Notes that the object of this key waits for these subjects, and for no others any more.
    pub(super) fn insert(&mut self, key: Key, subjects: impl Into<Vec<Subject>>, value: Value) {
        self.remove(&key);
        let subjects = subjects.into();
        for subject in &subjects {
            self.by_subject.entry(subject.clone()).or_default().insert(key.clone());
        }
        self.waiting.insert(key, (subjects, value));
    }

    /// Notes that the object of this key waits for nothing any more.
    pub(super) fn remove(&mut self, key: &Key) {
        let Some((subjects, _)) = self.waiting.remove(key) else {
            return;
        };
        for subject in subjects {
            if let Some(keys) = self.by_subject.get_mut(&subject) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_subject.remove(&subject);
                }
            }
        }
    }

    /// The objects that wait for a subject, in the order of their keys.
    pub(super) fn of(&self, subject: &Subject) -> impl Iterator<Item = (&Key, &Value)> {
        let keys = self.by_subject.get(subject).into_iter().flatten();
        keys.filter_map(|key| Some((key, &self.waiting.get(key)?.1)))
    }

    /// All waiting objects, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.waiting.iter().map(|(key, (_, value))| (key, value))
    }
}

impl<Subject, Key, Value> Default for WaitingFor<Subject, Key, Value> {
    fn default() -> Self {
        Self {
            waiting: HashMap::new(),
            by_subject: HashMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_found_by_each_subject_that_it_waits_for_now() {
        let mut index = WaitingFor::default();
        index.insert("request", ["cluster", "template"], 1);
        index.insert("other", ["template"], 2);
        let of = |index: &WaitingFor<_, _, _>, subject| {
            let found: Vec<(&str, i32)> = index.of(&subject).map(|(key, value)| (*key, *value)).collect();
            found
        };
        assert_eq!(of(&index, "cluster"), [("request", 1)]);
        assert_eq!(of(&index, "template"), [("other", 2), ("request", 1)]);
        index.insert("request", ["cluster"], 3);
        assert_eq!(of(&index, "cluster"), [("request", 3)]);
        assert_eq!(of(&index, "template"), [("other", 2)]);
        index.remove(&"request");
        index.remove(&"other");
        assert_eq!(index.all().count(), 0);
        assert!(
            index.by_subject.is_empty(),
            "nothing is kept for subjects that nobody waits for"
        );
    }
}
