//! What a contract exports, as one state that either source keeps: the backend's stream, or a Kubernetes watch.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bindery_api::v1alpha2::APIServiceExport;
use parking_lot::{RwLock, RwLockWriteGuard};
use tokio::{sync::watch, time::Instant};

pub(crate) mod convert;
mod fallback;
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
    failure: Option<Failure>,
    /// Since when the source can be read without a break.
    steady: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Failure {
    message: String,
    since: Instant,
}

/// All that a contract exports, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listed {
    /// Each export by name, in the order of names.
    pub exports: Vec<(Arc<str>, Lookup)>,
    /// A complete list was seen, so that what is missing does not exist.
    pub complete: bool,
    /// Grows with every change.
    pub version: u64,
    /// Why the source cannot be read for now, and for how long that is so.
    pub failing: Option<(String, Duration)>,
    /// For how long it has been read without a break, so that what was missing was seen to be.
    pub steady: Duration,
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
            Some(entry) => entry.lookup(),
            None if view.complete => Lookup::Absent,
            None => Lookup::Unknown {
                failure: view.failure.as_ref().map(|failure| failure.message.clone()),
            },
        }
    }

    /// All of them.
    pub fn list(&self) -> Listed {
        let view = self.shared.view.read();
        // It is written under the same lock, so that it is the version of just this view.
        let version = self.version();
        let mut exports: Vec<_> = view
            .exports
            .iter()
            .map(|(name, entry)| (Arc::clone(name), entry.lookup()))
            .collect();
        exports.sort_by(|(one, _), (other, _)| one.cmp(other));
        Listed {
            exports,
            complete: view.complete,
            version,
            failing: view
                .failure
                .as_ref()
                .map(|failure| (failure.message.clone(), failure.since.elapsed())),
            steady: view.steady.map(|since| since.elapsed()).unwrap_or_default(),
        }
    }

    /// Grows with every change.
    pub fn version(&self) -> u64 {
        *self.shared.changes.borrow()
    }

    /// Tells of every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// An export is there, or changed, as the source tells live: it can be read.
    pub(crate) fn apply(&self, name: &str, entry: &Entry) {
        self.note(name, entry, true);
    }

    /// The same, as part of a list that may yet break off.
    pub(crate) fn learn(&self, name: &str, entry: &Entry) {
        self.note(name, entry, false);
    }

    fn note(&self, name: &str, entry: &Entry, is_well: bool) {
        let mut view = self.shared.view.write();
        let recovered = is_well && view.recover();
        let before = view.exports.insert(name.into(), entry.clone());
        self.tell(&view, recovered || before.as_ref() != Some(entry));
    }

    /// An export is gone, unless another lives under its name.
    pub(crate) fn remove(&self, name: &str, uid: &str) {
        let mut view = self.shared.view.write();
        let meant = view.exports.get(name).is_some_and(|entry| entry.uid() == uid);
        if meant {
            view.exports.remove(name);
        }
        self.tell(&view, meant);
    }

    /// A complete list: whatever it lacks is gone.
    pub(crate) fn replace(&self, snapshot: Snapshot) {
        let mut view = self.shared.view.write();
        let recovered = view.recover();
        let changed = recovered || !view.complete || view.exports != snapshot.exports;
        view.exports = snapshot.exports;
        view.complete = true;
        self.tell(&view, changed);
    }

    /// The source can be read again, and what is known is current.
    pub(crate) fn well(&self) {
        let mut view = self.shared.view.write();
        let recovered = view.recover();
        self.tell(&view, recovered);
    }

    /// The source cannot be read for now. What is known stays known.
    pub(crate) fn fail(&self, message: String) {
        let mut view = self.shared.view.write();
        let before = view.failure.take();
        // Of one that goes on only those hear who have nothing else.
        let changed = before
            .as_ref()
            .is_none_or(|before| !view.complete && before.message != message);
        let since = before.map_or_else(Instant::now, |before| before.since);
        view.failure = Some(Failure { message, since });
        view.steady = None;
        self.tell(&view, changed);
    }

    /// An export as it is known, for a list in which it cannot be read.
    pub(crate) fn known(&self, name: &str) -> Option<Entry> {
        self.shared.view.read().exports.get(name).cloned()
    }

    /// Whether the source cannot be read for now.
    pub(crate) fn is_failing(&self) -> bool {
        self.shared.view.read().failure.is_some()
    }

    /// Whether a complete list was seen.
    pub fn is_complete(&self) -> bool {
        self.shared.view.read().complete
    }

    /// Who reads the view finds the new version with it: a caller still holds the lock.
    fn tell(&self, _view: &RwLockWriteGuard<'_, View>, changed: bool) {
        if changed {
            self.shared.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
    }
}

// === impl View ===

impl View {
    /// The source can be read; true if it could not before.
    fn recover(&mut self) -> bool {
        self.steady.get_or_insert_with(Instant::now);
        self.failure.take().is_some()
    }
}

// === impl Entry ===

impl Entry {
    fn lookup(&self) -> Lookup {
        match self {
            Self::Whole(export) => Lookup::Present(Arc::clone(export)),
            Self::Broken { message, .. } => Lookup::Broken {
                message: message.clone(),
            },
        }
    }

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
    fn a_list_says_whether_it_proves_anything() {
        let exports = Exports::default();
        exports.apply("b", &export("b", "2"));
        exports.apply("a", &export("a", "1"));
        let listed = exports.list();
        let names: Vec<_> = listed.exports.iter().map(|(name, _)| &**name).collect();
        assert_eq!((names, listed.complete), (vec!["a", "b"], false));
        exports.replace(Snapshot::default());
        let empty = exports.list();
        assert!(empty.complete && empty.exports.is_empty() && empty.version > listed.version);
        exports.fail("no route".to_owned());
        exports.fail("still none".to_owned());
        let failing = exports.list();
        assert_eq!(
            failing.failing.as_ref().map(|(why, _)| why.as_str()),
            Some("still none")
        );
        assert!(failing.complete && failing.version > empty.version);
        exports.well();
        let well = exports.list();
        assert_eq!(well.failing, None);
        assert!(well.version > failing.version);
        exports.well();
        assert_eq!(exports.version(), well.version, "nothing new");
    }

    #[tokio::test(start_paused = true)]
    async fn time_counts_while_the_source_can_be_read() {
        let exports = Exports::default();
        let pass = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        let steady = || exports.list().steady.as_secs();
        pass(10).await;
        assert_eq!(steady(), 0, "nothing was read");
        exports.replace(Snapshot::default());
        pass(20).await;
        exports.apply("a", &export("a", "1"));
        exports.well();
        assert_eq!(steady(), 20);
        exports.fail("no route".to_owned());
        exports.learn("a", &export("a", "1"));
        pass(30).await;
        assert_eq!(steady(), 0);
        exports.well();
        pass(1).await;
        assert_eq!(steady(), 1, "it begins anew");
    }

    #[test]
    fn a_version_is_that_of_the_view_it_comes_with() {
        let exports = Exports::default();
        let writer = exports.clone();
        let changing = std::thread::spawn(move || {
            let entry = export("a", "1");
            for _ in 0..20_000 {
                writer.apply("a", &entry);
                writer.remove("a", "1");
            }
        });
        while !changing.is_finished() {
            let listed = exports.list();
            assert_eq!(listed.version % 2 == 1, !listed.exports.is_empty(), "{listed:?}");
        }
        changing.join().unwrap();
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
