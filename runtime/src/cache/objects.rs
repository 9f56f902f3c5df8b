//! A map of objects by namespace and name, in which those of one namespace are found without looking at all others.

use std::{collections::HashMap, sync::Arc};

use super::ObjectKey;
use crate::guard::Held;

/// The objects of a cache. A namespace without objects has no entry.
pub(super) struct Objects<K> {
    namespaces: HashMap<Arc<str>, HashMap<Arc<str>, Entry<K>>>,
}

/// An object, and the count of it where its API server is not trusted.
type Entry<K> = (Arc<K>, Option<Box<Held>>);

impl<K> Objects<K> {
    pub(super) fn len(&self) -> usize {
        self.namespaces.values().map(HashMap::len).sum()
    }

    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        self.namespaces.get(namespace)?.get(name).map(|(object, _)| object)
    }

    /// Returns an object with its count.
    pub(super) fn entry(&self, namespace: &str, name: &str) -> Option<Entry<K>> {
        let (object, held) = self.namespaces.get(namespace)?.get(name)?;
        Some((Arc::clone(object), held.clone()))
    }

    /// Stores an object; returns the one that it replaces.
    pub(super) fn insert(&mut self, key: &ObjectKey, object: Arc<K>, held: Option<Box<Held>>) -> Option<Arc<K>> {
        let namespace = self.namespaces.entry(Arc::clone(&key.namespace)).or_default();
        let before = namespace.insert(Arc::clone(&key.name), (object, held));
        before.map(|(object, _)| object)
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<K>> {
        let namespace = self.namespaces.get_mut(&key.namespace)?;
        let removed = namespace.remove(&key.name);
        if namespace.is_empty() {
            self.namespaces.remove(&key.namespace);
        }
        removed.map(|(object, _)| object)
    }

    /// All objects of a namespace, in no order.
    pub(super) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<K>> {
        let objects = self.namespaces.get(namespace).into_iter().flat_map(HashMap::values);
        objects.map(|(object, _)| object)
    }

    /// All objects, in no order.
    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<K>> {
        self.namespaces
            .values()
            .flat_map(HashMap::values)
            .map(|(object, _)| object)
    }

    /// All objects with their keys, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ObjectKey, &Arc<K>)> {
        self.namespaces.iter().flat_map(|(namespace, objects)| {
            let key = |name| ObjectKey::new(Arc::clone(namespace), Arc::clone(name));
            objects.iter().map(move |(name, (object, _))| (key(name), object))
        })
    }

    /// Takes out all objects with their keys and counts, in no order.
    pub(super) fn into_entries(self) -> impl Iterator<Item = (ObjectKey, Arc<K>, Option<Box<Held>>)> {
        self.namespaces.into_iter().flat_map(|(namespace, objects)| {
            let key = move |name| ObjectKey::new(Arc::clone(&namespace), name);
            let entries = objects.into_iter();
            entries.map(move |(name, (object, held))| (key(name), object, held))
        })
    }
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self {
            namespaces: HashMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// After any insertions and removals, the cache holds what a plain map would, and each namespace its part of that.
        #[test]
        fn holds_what_a_plain_map_holds(steps in proptest::collection::vec((0..3_u8, 0..4_u8, any::<Option<u8>>()), 0..40)) {
            let (mut objects, mut plain) = (Objects::default(), BTreeMap::new());
            for (namespace, name, value) in steps {
                let key = ObjectKey::new(format!("ns{namespace}"), name.to_string());
                let (was, expect) = match value {
                    Some(value) => (objects.insert(&key, Arc::new(value), None), plain.insert(key.clone(), value)),
                    None => (objects.remove(&key), plain.remove(&key)),
                };
                prop_assert_eq!(was.map(|value| *value), expect);
                prop_assert_eq!(objects.get(&key.namespace, &key.name).map(|value| **value), value);
            }
            prop_assert_eq!(objects.len(), plain.len());
            prop_assert_eq!(objects.values().count(), plain.len());
            let all: BTreeMap<_, _> = objects.iter().map(|(key, value)| (key, **value)).collect();
            prop_assert_eq!(&all, &plain);
            let used: BTreeSet<_> = plain.keys().map(|key| key.namespace.to_string()).collect();
            prop_assert_eq!(objects.namespaces.len(), used.len(), "empty namespaces are kept");
            for namespace in used {
                let mut found: Vec<_> = objects.in_namespace(&namespace).map(|value| **value).collect();
                let mut expect: Vec<_> = plain.iter().filter(|(key, _)| *key.namespace == namespace).map(|(_, value)| *value).collect();
                found.sort_unstable();
                expect.sort_unstable();
                prop_assert_eq!(found, expect);
            }
        }
    }
}
