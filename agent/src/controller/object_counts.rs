//! Object counts of the bindings of bundles: published by the controller of bindings, read by the controller of bundles.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use bindery_runtime::queue::{Priority, Queue};
use parking_lot::Mutex;

/// The object count of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectCount {
    /// Objects of the binding on the consumer.
    pub objects: usize,
    /// Whether they were counted after the export was removed.
    pub export_is_gone: bool,
}

/// Object counts by UID of the binding. Clones share the same counts.
#[derive(Clone, Debug, Default)]
pub struct ObjectCounts {
    counts: Arc<Mutex<HashMap<Arc<str>, ObjectCount>>>,
    /// The queue of bundles, once the controller of bundles has started.
    queue: Arc<OnceLock<Queue<Arc<str>>>>,
}

impl ObjectCount {
    /// The facts whose change concerns the bundle: whether there are objects, and not how many.
    fn milestones(&self) -> (bool, bool) {
        (self.objects == 0, self.export_is_gone)
    }
}

impl ObjectCounts {
    /// Queues bundles whose bindings change from now on. Only the first queue is used.
    pub fn enqueue_changes(&self, queue: Queue<Arc<str>>) {
        let _ = self.queue.set(queue);
    }

    /// Sets the object count of a binding; `None` while it is not counted.
    pub fn set(&self, binding: &str, bundle: &str, count: Option<ObjectCount>) {
        let mut counts = self.counts.lock();
        let before = match count {
            Some(count) => counts.insert(binding.into(), count),
            None => counts.remove(binding),
        };
        drop(counts);
        let (before, now) = (
            before.as_ref().map(ObjectCount::milestones),
            count.as_ref().map(ObjectCount::milestones),
        );
        if let Some(queue) = self.queue.get().filter(|_| before != now) {
            queue.add(bundle.into(), Priority::Live);
        }
    }

    /// Removes the count of a binding that is gone.
    pub fn forget(&self, binding: Option<&str>) {
        if let Some(binding) = binding {
            self.counts.lock().remove(binding);
        }
    }

    /// Returns the count of a binding.
    pub fn get(&self, binding: &str) -> Option<ObjectCount> {
        self.counts.lock().get(binding).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_bundle_hears_when_the_first_comes_and_the_last_goes() {
        let (counts, queue) = (ObjectCounts::default(), Queue::new());
        counts.enqueue_changes(queue.clone());
        let count = |objects, export_is_gone| {
            Some(ObjectCount {
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
            counts.set("uid", "bundle", count);
            assert_eq!(counts.get("uid"), count);
            assert_eq!(!queue.is_empty(), hears, "{count:?}");
            if hears {
                drop(queue.next().await);
            }
        }
        counts.forget(Some("uid"));
        assert_eq!(counts.get("uid"), None);
    }
}
