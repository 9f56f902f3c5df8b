//! How many objects the bindings of bundles have: told by those who watch them, for those who must know that none is left.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use bindery_runtime::queue::{Lane, Queue};
use parking_lot::Mutex;

use super::Key;

/// What is counted of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Its objects on the consumer.
    pub objects: usize,
    /// They were counted after its export was gone.
    pub export_is_gone: bool,
}

/// Counts by UID of the binding. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    counts: Arc<Mutex<HashMap<Arc<str>, Count>>>,
    /// Who is to hear of changes, once somebody is.
    listener: Arc<OnceLock<Queue<Key>>>,
}

// === impl Count ===

impl Count {
    /// Of a change, whether there are some matters, and not how many.
    fn matter(&self) -> (bool, bool) {
        (self.objects == 0, self.export_is_gone)
    }
}

// === impl Tally ===

impl Tally {
    /// From now on changes queue the bundle there. The first that listens is heard.
    pub(super) fn listen(&self, queue: Queue<Key>) {
        let _ = self.listener.set(queue);
    }

    /// So many objects a binding of a bundle has; `None` while nobody knows.
    pub fn tell(&self, binding: &str, bundle: &str, count: Option<Count>) {
        let mut counts = self.counts.lock();
        let before = match count {
            Some(count) => counts.insert(binding.into(), count),
            None => counts.remove(binding),
        };
        drop(counts);
        let (before, now) = (before.as_ref().map(Count::matter), count.as_ref().map(Count::matter));
        if let Some(queue) = self.listener.get().filter(|_| before != now) {
            queue.add(bundle.into(), Lane::Live);
        }
    }

    /// A binding is gone.
    pub fn forget(&self, binding: Option<&str>) {
        if let Some(binding) = binding {
            self.counts.lock().remove(binding);
        }
    }

    /// What is known of a binding.
    pub fn count(&self, binding: &str) -> Option<Count> {
        self.counts.lock().get(binding).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_bundle_hears_when_the_first_comes_and_the_last_goes() {
        let (tally, queue) = (Tally::default(), Queue::new());
        tally.listen(queue.clone());
        let count = |objects, export_is_gone| {
            Some(Count {
                objects,
                export_is_gone,
            })
        };
        let steps = [
            (None, false),
            (count(0, false), true),
            (count(0, false), false),
            (count(7, false), true),
            (count(1, false), false),
            (None, true),
            (count(1, true), true),
            (count(0, true), true),
            (count(0, false), true),
        ];
        for (count, hears) in steps {
            tally.tell("uid", "bundle", count);
            assert_eq!(tally.count("uid"), count);
            assert_eq!(!queue.is_empty(), hears, "{count:?}");
            if hears {
                drop(queue.next().await);
            }
        }
        tally.forget(Some("uid"));
        assert_eq!(tally.count("uid"), None);
    }
}
