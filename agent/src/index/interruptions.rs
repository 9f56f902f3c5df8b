//! Which watches of the consumer are interrupted, and whose copies wait for them.

use std::{collections::HashSet, sync::Arc};

use bindery_runtime::cache::ObjectKey;

/// The interrupted watches of an engine. What was seen before an interruption proves no deletion until the watch goes on: the consumer may
/// have been restored from a backup since, which the next list would show.
#[derive(Debug, Default)]
pub(super) struct Interruptions {
    /// The watches: each of a consumer namespace or, with `None`, of the whole cluster.
    watches: HashSet<Option<Arc<str>>>,
    /// The objects whose copies are not deleted until then.
    waiting: HashSet<ObjectKey>,
}

// === impl Interruptions ===

impl Interruptions {
    /// Notes that a watch was interrupted.
    pub(super) fn begin(&mut self, watch: Option<&Arc<str>>) {
        self.watches.insert(watch.cloned());
    }

    /// Notes that a watch goes on. Returns the objects that waited for it.
    pub(super) fn end(&mut self, watch: Option<&Arc<str>>) -> Vec<ObjectKey> {
        self.watches.remove(&watch.cloned());
        let mut waiting = std::mem::take(&mut self.waiting);
        let over = waiting.extract_if(|key| !self.concerns(key)).collect();
        self.waiting = waiting;
        over
    }

    /// Forgets the watches that there are not any more.
    pub(super) fn keep_watches(&mut self, is_kept: impl Fn(Option<&str>) -> bool) {
        self.watches.retain(|watch| is_kept(watch.as_deref()));
    }

    /// Whether the copy of an object has to wait before it is deleted. If it has, the end of the interruption returns the object.
    pub(super) fn holds(&mut self, key: &ObjectKey) -> bool {
        let holds = self.concerns(key);
        if holds {
            self.waiting.insert(key.clone());
        }
        holds
    }

    fn concerns(&self, key: &ObjectKey) -> bool {
        self.watches.contains(&None) || self.watches.contains(&Some(Arc::clone(&key.namespace)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_goes_on_with_its_watch() {
        let mut interruptions = Interruptions::default();
        let (east, west) = (ObjectKey::new("east", "a"), ObjectKey::new("west", "b"));
        assert!(!interruptions.holds(&east));
        interruptions.begin(Some(&east.namespace));
        assert!(interruptions.holds(&east) && !interruptions.holds(&west));
        interruptions.begin(None);
        assert!(interruptions.holds(&west));
        assert_eq!(
            interruptions.end(Some(&east.namespace)),
            [],
            "the other watch shows both"
        );
        let mut over = interruptions.end(None);
        over.sort();
        assert_eq!(over, [east.clone(), west]);
        assert!(!interruptions.holds(&east));
        assert_eq!(interruptions.end(None), [], "each is returned once");
        interruptions.begin(Some(&east.namespace));
        interruptions.keep_watches(|watch| watch.is_none());
        assert!(!interruptions.holds(&east), "nobody watches the namespace any more");
    }
}
