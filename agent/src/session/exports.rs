//! What a contract exports, as one state that either source keeps: the backend's stream, or a Kubernetes watch.

use std::{collections::HashMap, sync::Arc};

use bindery_api::v1alpha2::APIServiceExport;
use parking_lot::RwLock;
use tokio::sync::watch;

pub(crate) mod convert;
pub(crate) mod follow;

/// The exports of a contract. Clones are the same state.
#[derive(Clone, Debug)]
pub struct Exports {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    view: RwLock<View>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct View {
    exports: HashMap<Arc<str>, Entry>,
    complete: bool,
    failure: Option<String>,
}

/// An export as it came: whole, or not to be understood.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Entry {
    Whole(Arc<APIServiceExport>),
    Broken { uid: String, message: String },
}

/// What is known of one export.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup {
    /// No complete list was seen yet, so absence proves nothing.
    Unknown {
        /// Why none was seen, where that is known.
        failure: Option<String>,
    },
    /// It does not exist: a complete list was without it.
    Absent,
    /// It exists, and what it says cannot be used.
    Broken {
        /// Why.
        message: String,
    },
    /// It exists.
    Present(Arc<APIServiceExport>),
}

/// A snapshot while it arrives.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    exports: HashMap<Arc<str>, Entry>,
}

// === impl Exports ===

impl Default for Exports {
    fn default() -> Self {
        Self {
            shared: Arc::new(Shared {
                view: RwLock::default(),
                changes: watch::Sender::new(0),
            }),
        }
    }
}

impl Exports {
    /// One export.
    pub fn get(&self, name: &str) -> Lookup {
        let view = self.shared.view.read();
        match view.exports.get(name) {
            Some(Entry::Whole(export)) => Lookup::Present(Arc::clone(export)),
            Some(Entry::Broken { message, .. }) => Lookup::Broken {
                message: message.clone(),
            },
            None if view.complete => Lookup::Absent,
            None => Lookup::Unknown {
                failure: view.failure.clone(),
            },
        }
    }

    /// Tells of every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// An export is there, or changed.
    pub(crate) fn apply(&self, name: &str, entry: &Entry) {
        let mut view = self.shared.view.write();
        view.failure = None;
        let before = view.exports.insert(name.into(), entry.clone());
        let changed = before.as_ref() != Some(entry);
        drop(view);
        self.tell(changed);
    }

    /// An export is gone, unless another lives under its name.
    pub(crate) fn remove(&self, name: &str, uid: &str) {
        let mut view = self.shared.view.write();
        let meant = view.exports.get(name).is_some_and(|entry| entry.uid() == uid);
        if meant {
            view.exports.remove(name);
        }
        drop(view);
        self.tell(meant);
    }

    /// A complete list: whatever it lacks is gone.
    pub(crate) fn replace(&self, snapshot: Snapshot) {
        let mut view = self.shared.view.write();
        let changed = !view.complete || view.exports != snapshot.exports;
        view.exports = snapshot.exports;
        view.complete = true;
        view.failure = None;
        drop(view);
        self.tell(changed);
    }

    /// All that exists has been told: whatever else is known is gone.
    pub(crate) fn settle(&self, exists: impl Fn(&str) -> bool) {
        let mut view = self.shared.view.write();
        let before = view.exports.len();
        view.exports.retain(|name, _| exists(name));
        let changed = !view.complete || view.exports.len() != before;
        view.complete = true;
        view.failure = None;
        drop(view);
        self.tell(changed);
    }

    /// The source cannot be read for now. What is known stays known.
    pub(crate) fn fail(&self, failure: String) {
        let mut view = self.shared.view.write();
        let changed = !view.complete && view.failure.as_ref() != Some(&failure);
        view.failure = Some(failure);
        drop(view);
        self.tell(changed);
    }

    /// Whether a complete list was seen.
    pub fn is_complete(&self) -> bool {
        self.shared.view.read().complete
    }

    fn tell(&self, changed: bool) {
        if changed {
            self.shared.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
    }
}

// === impl Entry ===

impl Entry {
    fn uid(&self) -> &str {
        match self {
            Self::Whole(export) => export.metadata.uid.as_deref().unwrap_or_default(),
            Self::Broken { uid, .. } => uid,
        }
    }
}

// === impl Snapshot ===

impl Snapshot {
    pub(crate) fn add(&mut self, name: &str, entry: Entry) {
        self.exports.insert(name.into(), entry);
    }

    pub(crate) fn remove(&mut self, name: &str, uid: &str) {
        if self.exports.get(name).is_some_and(|entry| entry.uid() == uid) {
            self.exports.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(name: &str, uid: &str) -> Entry {
        let mut export = APIServiceExport::new(name, bindery_api::v1alpha2::APIServiceExportSpec::default());
        export.metadata.uid = Some(uid.to_owned());
        Entry::Whole(Arc::new(export))
    }

    #[test]
    fn only_a_complete_list_proves_an_absence() {
        let exports = Exports::default();
        exports.apply("a", &export("a", "1"));
        assert!(matches!(exports.get("a"), Lookup::Present(_)));
        assert_eq!(exports.get("b"), Lookup::Unknown { failure: None });
        exports.fail("no route".to_owned());
        let failure = Some("no route".to_owned());
        assert_eq!(exports.get("b"), Lookup::Unknown { failure });
        exports.replace(Snapshot::default());
        assert_eq!(exports.get("a"), Lookup::Absent);
        exports.fail("no route".to_owned());
        assert_eq!(exports.get("a"), Lookup::Absent, "what is known stays known");
    }

    #[test]
    fn a_late_word_of_an_old_export_removes_no_new_one() {
        let exports = Exports::default();
        exports.replace(Snapshot::default());
        exports.apply("a", &export("a", "2"));
        exports.remove("a", "1");
        assert!(matches!(exports.get("a"), Lookup::Present(_)));
        exports.remove("a", "2");
        assert_eq!(exports.get("a"), Lookup::Absent);
    }

    #[test]
    fn what_changes_nothing_is_not_told() {
        let exports = Exports::default();
        let mut changes = exports.changes();
        exports.apply("a", &export("a", "1"));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        exports.apply("a", &export("a", "1"));
        assert!(!changes.has_changed().unwrap());
    }
}
