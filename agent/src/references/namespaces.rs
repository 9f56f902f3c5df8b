//! The consumer namespaces that have objects of one bound resource.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use ahash::RandomState;
use bindery_runtime::cache::ObjectKey;

use crate::index::give_back;

/// The consumer namespaces that have objects of one bound resource, with the names of these.
#[derive(Default)]
pub(super) struct BoundNamespaces {
    names: HashMap<Arc<str>, HashMap<Arc<str>, u32, RandomState>>,
    /// Number of the list that began last.
    round: u32,
    /// A list was completed.
    complete: bool,
}

// === impl BoundNamespaces ===

impl BoundNamespaces {
    pub(super) fn has(&self, namespace: &str) -> bool {
        // A cluster-scoped object is in no namespace.
        !namespace.is_empty() && self.names.contains_key(namespace)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Notes an object. Returns true if it is the first of its namespace.
    pub(super) fn add(&mut self, key: &ObjectKey) -> bool {
        if key.namespace.is_empty() {
            return false;
        }
        let (names, is_first) = match self.names.entry(Arc::clone(&key.namespace)) {
            Entry::Occupied(entry) => (entry.into_mut(), false),
            Entry::Vacant(entry) => (entry.insert(HashMap::default()), true),
        };
        names.insert(Arc::clone(&key.name), self.round);
        is_first
    }

    /// Forgets an object. Returns true if it was the last of its namespace.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> bool {
        let Some(names) = self.names.get_mut(&key.namespace) else {
            return false;
        };
        names.remove(&key.name);
        if !names.is_empty() {
            return false;
        }
        self.names.remove(&key.namespace);
        give_back(&mut self.names);
        true
    }

    /// Notes that a list begins.
    pub(super) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Notes that the list is complete, and forgets the objects that were not in it, except those that are `kept`. Returns the namespaces
    /// that have none any more, or `None` if this was the first list, after which every namespace may be looked at anew.
    pub(super) fn end(&mut self, kept: impl Fn(&ObjectKey) -> bool) -> Option<Vec<Arc<str>>> {
        let round = self.round;
        let mut lost = Vec::new();
        self.names.retain(|namespace, names| {
            names.retain(|name, seen| *seen == round || kept(&ObjectKey::new(Arc::clone(namespace), Arc::clone(name))));
            if names.is_empty() {
                lost.push(Arc::clone(namespace));
            }
            !names.is_empty()
        });
        give_back(&mut self.names);
        let is_first = !std::mem::replace(&mut self.complete, true);
        (!is_first).then_some(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_counts_from_its_first_object_to_its_last() {
        let mut bound = BoundNamespaces::default();
        let (one, two) = (ObjectKey::new("west", "one"), ObjectKey::new("west", "two"));
        bound.begin();
        assert!(bound.add(&one) && !bound.add(&one) && !bound.add(&two));
        assert!(!bound.add(&ObjectKey::new("", "wide")) && !bound.has(""));
        assert!(!bound.is_complete() && bound.has("west") && !bound.has("east"));
        assert_eq!(bound.end(|_| false), None);
        assert!(bound.is_complete());
        assert!(!bound.remove(&one) && bound.remove(&two) && !bound.remove(&two));
        assert!(!bound.has("west"));
    }

    #[test]
    fn what_a_list_lacks_is_gone_unless_it_is_retained() {
        let mut bound = BoundNamespaces::default();
        let (one, other) = (ObjectKey::new("west", "one"), ObjectKey::new("east", "other"));
        bound.add(&one);
        bound.add(&other);
        bound.begin();
        bound.add(&one);
        bound.end(|_| true);
        bound.begin();
        bound.add(&one);
        assert_eq!(bound.end(|key| *key == other), Some(Vec::new()));
        bound.begin();
        bound.add(&one);
        assert_eq!(bound.end(|_| false), Some(vec![Arc::from("east")]));
        assert!(bound.has("west") && !bound.has("east"));
    }
}
