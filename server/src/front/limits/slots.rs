//! How many of something one key may have at the same time.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::Mutex;

/// Counts what is taken, by key.
#[derive(Debug)]
pub struct Slots<K: Hash + Eq + Clone> {
    taken: Arc<Mutex<HashMap<K, usize>>>,
    max: usize,
}

/// One that is taken. Dropping it gives it back.
#[derive(Debug)]
#[must_use = "a dropped slot is free at once"]
pub struct Slot<K: Hash + Eq + Clone> {
    taken: Arc<Mutex<HashMap<K, usize>>>,
    key: K,
}

impl<K: Hash + Eq + Clone> Slots<K> {
    /// So many for each key.
    pub fn new(max: usize) -> Self {
        Self {
            taken: Arc::default(),
            max,
        }
    }

    /// Takes one, if one is free.
    pub fn take(&self, key: K) -> Option<Slot<K>> {
        let mut taken = self.taken.lock();
        let count = taken.entry(key.clone()).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(Slot {
            taken: Arc::clone(&self.taken),
            key,
        })
    }
}

impl<K: Hash + Eq + Clone> Drop for Slot<K> {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        if let Some(count) = taken.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_comes_back_and_leaves_nothing_behind() {
        let slots = Slots::new(2);
        let (one, two) = (slots.take("a"), slots.take("a"));
        assert!(one.is_some() && two.is_some() && slots.take("a").is_none());
        assert!(slots.take("b").is_some(), "another key has its own");
        drop(one);
        assert!(slots.take("a").is_some());
        drop(two);
        assert!(slots.taken.lock().is_empty());
    }
}
