//! Which consumer namespaces an engine watches, and which of them were listed.

use std::{collections::BTreeSet, sync::Arc};

/// The consumer namespaces that an engine watches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConsumerScope {
    /// All namespaces, with one watch of the whole cluster.
    #[default]
    Cluster,
    /// These namespaces, with one watch each. An object in any other namespace counts as one that does not exist, and before an object
    /// of the provider is deleted for that, the consumer is asked.
    Namespaces(BTreeSet<Arc<str>>),
}

/// Which lists of the consumer were complete.
#[derive(Debug, Default)]
pub(super) struct ConsumerLists {
    scope: ConsumerScope,
    /// The list of the whole cluster was complete.
    whole: bool,
    /// The namespaces whose own list was complete.
    listed: BTreeSet<Arc<str>>,
}

// === impl ConsumerScope ===

impl ConsumerScope {
    /// Whether the objects of a namespace are watched.
    pub(crate) fn has(&self, namespace: &str) -> bool {
        match self {
            Self::Cluster => true,
            Self::Namespaces(namespaces) => namespaces.contains(namespace),
        }
    }

    /// Whether a watch belongs to the scope: that of a namespace, or with `None` that of the whole cluster. Events of another watch come
    /// from one that is ending.
    pub(crate) fn has_watch(&self, namespace: Option<&str>) -> bool {
        match (self, namespace) {
            (Self::Cluster, None) => true,
            (Self::Namespaces(namespaces), Some(namespace)) => namespaces.contains(namespace),
            _ => false,
        }
    }

    /// The watches of the scope, by namespace; `None` for that of the whole cluster.
    pub(crate) fn watches(&self) -> BTreeSet<Option<Arc<str>>> {
        match self {
            Self::Cluster => BTreeSet::from([None]),
            Self::Namespaces(namespaces) => namespaces.iter().cloned().map(Some).collect(),
        }
    }
}

// === impl ConsumerLists ===

impl ConsumerLists {
    pub(super) fn scope(&self) -> &ConsumerScope {
        &self.scope
    }

    /// Replaces the scope. What was listed stays known as far as it is watched still. Returns false if the scope is the same.
    pub(super) fn set_scope(&mut self, scope: &ConsumerScope) -> bool {
        if self.scope == *scope {
            return false;
        }
        match scope {
            // The lists of single namespaces stay until that of all is complete.
            ConsumerScope::Cluster => {}
            ConsumerScope::Namespaces(namespaces) => {
                if std::mem::take(&mut self.whole) {
                    self.listed.clone_from(namespaces);
                } else {
                    self.listed.retain(|namespace| namespaces.contains(namespace));
                }
            }
        }
        self.scope = scope.clone();
        true
    }

    /// Notes that a list was complete, of a namespace or, with `None`, of the whole cluster.
    pub(super) fn complete(&mut self, namespace: Option<&Arc<str>>) {
        match namespace {
            None => {
                self.whole = true;
                self.listed.clear();
            }
            Some(namespace) => drop(self.listed.insert(Arc::clone(namespace))),
        }
    }

    /// Whether an object of a namespace that is not known does not exist, as far as lists tell.
    pub(super) fn is_listed(&self, namespace: &str) -> bool {
        self.whole || self.listed.contains(namespace) || !self.scope.has(namespace)
    }

    /// Whether all that is watched was listed.
    pub(super) fn is_complete(&self) -> bool {
        match &self.scope {
            ConsumerScope::Cluster => self.whole,
            ConsumerScope::Namespaces(namespaces) => namespaces.is_subset(&self.listed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(namespaces: &[&str]) -> ConsumerScope {
        ConsumerScope::Namespaces(namespaces.iter().copied().map(Arc::from).collect())
    }

    /// Checks what is known after some steps: whether all is listed, and which of three namespaces.
    #[track_caller]
    fn check(lists: &ConsumerLists, complete: bool, listed: [bool; 3]) {
        assert_eq!(lists.is_complete(), complete);
        assert_eq!(["west", "east", "north"].map(|one| lists.is_listed(one)), listed);
    }

    #[test]
    fn a_cluster_is_listed_at_once() {
        let mut lists = ConsumerLists::default();
        check(&lists, false, [false; 3]);
        lists.complete(None);
        check(&lists, true, [true; 3]);
    }

    #[test]
    fn each_namespace_is_listed_by_itself() {
        let mut lists = ConsumerLists::default();
        assert!(lists.set_scope(&scope(&["west", "east"])));
        assert!(!lists.set_scope(&scope(&["west", "east"])));
        check(&lists, false, [false, false, true]);
        lists.complete(Some(&"west".into()));
        check(&lists, false, [true, false, true]);
        lists.complete(Some(&"east".into()));
        check(&lists, true, [true; 3]);
    }

    #[test]
    fn what_is_watched_still_stays_known() {
        let mut lists = ConsumerLists::default();
        lists.complete(None);
        lists.set_scope(&scope(&["west", "east"]));
        check(&lists, true, [true; 3]);
        lists.set_scope(&scope(&["west"]));
        check(&lists, true, [true; 3]);
        // It was not watched for a time.
        lists.set_scope(&scope(&["west", "east"]));
        check(&lists, false, [true, false, true]);
        lists.set_scope(&ConsumerScope::Cluster);
        check(&lists, false, [true, false, false]);
        lists.complete(None);
        check(&lists, true, [true; 3]);
    }

    #[test]
    fn nothing_is_watched_where_nothing_is_listed() {
        let mut lists = ConsumerLists::default();
        lists.set_scope(&scope(&[]));
        check(&lists, true, [true; 3]);
    }

    #[test]
    fn the_events_of_a_watch_that_is_ending_do_not_count() {
        for (scope, namespace, expect) in [
            (ConsumerScope::Cluster, None, true),
            (ConsumerScope::Cluster, Some("west"), false),
            (scope(&["west"]), None, false),
            (scope(&["west"]), Some("west"), true),
            (scope(&["west"]), Some("east"), false),
        ] {
            assert_eq!(scope.has_watch(namespace), expect, "{scope:?} {namespace:?}");
            assert_eq!(scope.watches().contains(&namespace.map(Arc::from)), expect);
        }
    }
}
