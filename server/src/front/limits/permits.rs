//! Permits by key: how many of something one caller, contract or peer may have at the same time.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::Mutex;

/// Hands out at most `max` permits for each key.
#[derive(Debug)]
pub(crate) struct Permits<K: Hash + Eq + Clone> {
    held: Arc<Mutex<HashMap<K, usize>>>,
    max: usize,
}

/// One permit of a key, which is given back on drop.
#[derive(Debug)]
#[must_use = "a dropped permit is given back at once"]
pub(crate) struct Permit<K: Hash + Eq + Clone> {
    held: Arc<Mutex<HashMap<K, usize>>>,
    key: K,
}

impl<K: Hash + Eq + Clone> Permits<K> {
    /// Allows `max` permits for each key.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            held: Arc::default(),
            max,
        }
    }

    /// A permit of this key, or none if as many are held as there may be.
    pub(crate) fn try_acquire(&self, key: K) -> Option<Permit<K>> {
        self.try_acquire_of(key, self.max)
    }

    /// Number of permits of this key that are held.
    pub(crate) fn held(&self, key: &K) -> usize {
        self.held.lock().get(key).copied().unwrap_or_default()
    }

    /// A permit of this key, or none if `max` are held, whatever the number of other keys is.
    pub(crate) fn try_acquire_of(&self, key: K, max: usize) -> Option<Permit<K>> {
        let mut held = self.held.lock();
        let count = held.get(&key).copied().unwrap_or_default();
        if count >= max {
            return None;
        }
        held.insert(key.clone(), count + 1);
        Some(Permit {
            held: Arc::clone(&self.held),
            key,
        })
    }
}

impl<K: Hash + Eq + Clone> Drop for Permit<K> {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        if let Some(count) = held.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_permit_can_be_acquired_again_and_no_key_is_left_behind() {
        let permits = Permits::new(2);
        let (one, two) = (permits.try_acquire("a"), permits.try_acquire("a"));
        assert!(one.is_some() && two.is_some() && permits.try_acquire("a").is_none());
        assert!(permits.try_acquire("b").is_some(), "each key has permits of its own");
        drop(one);
        assert!(permits.try_acquire("a").is_some());
        drop(two);
        assert!(permits.held.lock().is_empty());
    }
}
