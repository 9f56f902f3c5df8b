//! The exports of a contract, kept up to date by the backend's stream or by a Kubernetes watch.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bindery_api::v1alpha2::APIServiceExport;
use bindery_runtime::guard::{Guard, Held};
use parking_lot::{RwLock, RwLockWriteGuard};
use tokio::{sync::watch, time::Instant};

pub(crate) mod convert;
mod fallback;
pub(crate) mod follower;

/// The exports of a contract. Clones share the same state.
#[derive(Clone, Debug, Default)]
pub struct Exports {
    shared: Arc<Shared>,
}

/// The exports and the version of their state.
#[derive(Debug, Default)]
struct Shared {
    view: RwLock<ExportView>,
    changes: watch::Sender<u64>,
    /// Counts what is held of the provider.
    guard: Option<Guard>,
}

/// The state of the exports.
#[derive(Debug, Default)]
struct ExportView {
    exports: HashMap<Arc<str>, ExportEntry>,
    /// The count of each, if the exports are counted.
    held: HashMap<Arc<str>, Held>,
    complete: bool,
    failure: Option<ReadFailure>,
    /// Since when the source is read without a break.
    reading_since: Option<Instant>,
}

/// Why and since when the source cannot be read.
#[derive(Clone, Debug)]
struct ReadFailure {
    message: String,
    since: Instant,
}

/// All known exports of a contract.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExportList {
    /// Each export by name, in the order of names.
    pub exports: Vec<(Arc<str>, ExportLookup)>,
    /// Whether a complete list was read, so that other exports do not exist.
    pub complete: bool,
    /// Version of the state, which grows with every change.
    pub version: u64,
    /// Why the source cannot be read now, and for how long.
    pub failing: Option<(String, Duration)>,
    /// For how long the source has been read without a break.
    pub read_for: Duration,
}

/// An export as it was read: usable, or with content that this konnector does not know.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExportEntry {
    Whole(Arc<APIServiceExport>),
    Broken { uid: String, message: String },
}

/// What is known about one export.
#[derive(Clone, Debug, PartialEq)]
pub enum ExportLookup {
    /// No complete list was read yet, so the export may exist.
    Unknown {
        /// Why no complete list was read, if known.
        failure: Option<String>,
    },
    /// The export does not exist: a complete list did not contain it.
    Absent,
    /// The export exists, but its content cannot be used.
    Broken {
        /// Why the content cannot be used.
        message: String,
    },
    /// The export exists.
    Present(Arc<APIServiceExport>),
}

/// A list of exports while it is being read.
#[derive(Debug, Default)]
pub(crate) struct ExportSnapshot {
    exports: HashMap<Arc<str>, ExportEntry>,
}

impl ExportLookup {
    /// The export, if it exists and can be used.
    pub fn present(&self) -> Option<&Arc<APIServiceExport>> {
        let Self::Present(export) = self else { return None };
        Some(export)
    }
}

impl ExportList {
    /// Returns the export of that name, if the list has it.
    pub fn get(&self, name: &str) -> Option<&ExportLookup> {
        let at = self.exports.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.exports[at].1)
    }
}

impl Exports {
    /// Exports that are counted by the guard of their provider.
    pub(super) fn guarded(guard: &Guard) -> Self {
        Self {
            shared: Arc::new(Shared {
                guard: Some(guard.clone()),
                ..Shared::default()
            }),
        }
    }

    /// Counts an export.
    fn hold(&self, name: &str, entry: &ExportEntry) -> Option<(Arc<str>, Held)> {
        let guard = self.shared.guard.as_ref()?;
        Some((name.into(), guard.hold(1, entry.length())))
    }

    /// Returns what is known about one export.
    pub fn get(&self, name: &str) -> ExportLookup {
        let view = self.shared.view.read();
        match view.exports.get(name) {
            Some(entry) => entry.lookup(),
            None if view.complete => ExportLookup::Absent,
            None => ExportLookup::Unknown {
                failure: view.failure.as_ref().map(|failure| failure.message.clone()),
            },
        }
    }

    /// Returns all known exports.
    pub fn list(&self) -> ExportList {
        let view = self.shared.view.read();
        // The version changes only under this lock, so it is the version of this view.
        let version = self.version();
        let mut exports: Vec<_> = view
            .exports
            .iter()
            .map(|(name, entry)| (Arc::clone(name), entry.lookup()))
            .collect();
        exports.sort_by(|(one, _), (other, _)| one.cmp(other));
        ExportList {
            exports,
            complete: view.complete,
            version,
            failing: view
                .failure
                .as_ref()
                .map(|failure| (failure.message.clone(), failure.since.elapsed())),
            read_for: view.reading_since.map(|since| since.elapsed()).unwrap_or_default(),
        }
    }

    /// Version of the state, which grows with every change.
    pub fn version(&self) -> u64 {
        *self.shared.changes.borrow()
    }

    /// Notifies of every change, with the new version.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// Adds or replaces an export from a live event, which shows that the source can be read.
    pub(crate) fn apply(&self, name: &str, entry: &ExportEntry) {
        self.note(name, entry, true);
    }

    /// Adds or replaces an export from a list that may still break off.
    pub(crate) fn apply_listed(&self, name: &str, entry: &ExportEntry) {
        self.note(name, entry, false);
    }

    /// Adds or replaces an export. `is_well` is true if the source can be read.
    fn note(&self, name: &str, entry: &ExportEntry, is_well: bool) {
        let mut view = self.shared.view.write();
        let recovered = is_well && view.recover();
        let before = view.exports.insert(name.into(), entry.clone());
        if before.as_ref() != Some(entry) {
            view.held.extend(self.hold(name, entry));
        }
        self.publish(&view, recovered || before.as_ref() != Some(entry));
    }

    /// Removes the export with this UID. A later export of the same name stays.
    pub(crate) fn remove(&self, name: &str, uid: &str) {
        let mut view = self.shared.view.write();
        let meant = view.exports.get(name).is_some_and(|entry| entry.uid() == uid);
        if meant {
            view.exports.remove(name);
            view.held.remove(name);
        }
        self.publish(&view, meant);
    }

    /// Replaces all exports by a complete list.
    pub(crate) fn replace(&self, snapshot: ExportSnapshot) {
        let mut view = self.shared.view.write();
        let recovered = view.recover();
        let changed = recovered || !view.complete || view.exports != snapshot.exports;
        view.exports = snapshot.exports;
        if changed {
            view.held = view
                .exports
                .iter()
                .filter_map(|(name, entry)| self.hold(name, entry))
                .collect();
        }
        view.complete = true;
        self.publish(&view, changed);
    }

    /// Notes that the source can be read and the state is current.
    pub(crate) fn recovered(&self) {
        let mut view = self.shared.view.write();
        let recovered = view.recover();
        self.publish(&view, recovered);
    }

    /// Notes that the source cannot be read now. Known exports are kept.
    pub(crate) fn fail(&self, message: String) {
        let mut view = self.shared.view.write();
        let before = view.failure.take();
        // A lasting failure is published again only if its message is all that is known.
        let changed = before
            .as_ref()
            .is_none_or(|before| !view.complete && before.message != message);
        let since = before.map_or_else(Instant::now, |before| before.since);
        view.failure = Some(ReadFailure { message, since });
        view.reading_since = None;
        self.publish(&view, changed);
    }

    /// Returns an export as it was read last, for a list in which it cannot be read.
    pub(crate) fn known(&self, name: &str) -> Option<ExportEntry> {
        self.shared.view.read().exports.get(name).cloned()
    }

    /// For how long the source could not be read; `None` while it can.
    pub fn failing_for(&self) -> Option<Duration> {
        let view = self.shared.view.read();
        view.failure.as_ref().map(|failure| failure.since.elapsed())
    }

    /// Whether the source cannot be read now.
    pub(crate) fn is_failing(&self) -> bool {
        self.shared.view.read().failure.is_some()
    }

    /// Whether a complete list was read.
    pub fn is_complete(&self) -> bool {
        self.shared.view.read().complete
    }

    /// Publishes a new version. The caller still holds the lock, so that readers see state and version together.
    fn publish(&self, _view: &RwLockWriteGuard<'_, ExportView>, changed: bool) {
        if changed {
            self.shared.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
    }
}

impl ExportView {
    /// Notes that the source can be read. Returns true if it could not before.
    fn recover(&mut self) -> bool {
        self.reading_since.get_or_insert_with(Instant::now);
        self.failure.take().is_some()
    }
}

impl ExportEntry {
    /// The length of its text, in bytes.
    fn length(&self) -> u64 {
        /// Counts bytes that are written.
        struct Length(u64);

        impl std::io::Write for Length {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0 += bytes.len() as u64;
                Ok(bytes.len())
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        match self {
            Self::Whole(export) => {
                let mut length = Length(0);
                // What cannot be written as JSON was not read from JSON: it is short.
                let _ = serde_json::to_writer(&mut length, &**export);
                length.0
            }
            Self::Broken { uid, message } => (uid.len() + message.len()) as u64,
        }
    }

    /// What is known about the export.
    fn lookup(&self) -> ExportLookup {
        match self {
            Self::Whole(export) => ExportLookup::Present(Arc::clone(export)),
            Self::Broken { message, .. } => ExportLookup::Broken {
                message: message.clone(),
            },
        }
    }

    /// UID of the export; empty if it is unknown.
    fn uid(&self) -> &str {
        match self {
            Self::Whole(export) => export.metadata.uid.as_deref().unwrap_or_default(),
            Self::Broken { uid, .. } => uid,
        }
    }
}

impl ExportSnapshot {
    /// Adds or replaces an export.
    pub(crate) fn add(&mut self, name: &str, entry: ExportEntry) {
        self.exports.insert(name.into(), entry);
    }

    /// Removes the export with this UID. A later export of the same name stays.
    pub(crate) fn remove(&mut self, name: &str, uid: &str) {
        if self.exports.get(name).is_some_and(|entry| entry.uid() == uid) {
            self.exports.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(name: &str, uid: &str) -> ExportEntry {
        let mut export = APIServiceExport::new(name, bindery_api::v1alpha2::APIServiceExportSpec::default());
        export.metadata.uid = Some(uid.to_owned());
        ExportEntry::Whole(Arc::new(export))
    }

    #[test]
    fn only_a_complete_list_proves_absence() {
        let exports = Exports::default();
        exports.apply("a", &export("a", "1"));
        assert!(matches!(exports.get("a"), ExportLookup::Present(_)));
        assert_eq!(exports.get("b"), ExportLookup::Unknown { failure: None });
        exports.fail("no route".to_owned());
        let failure = Some("no route".to_owned());
        assert_eq!(exports.get("b"), ExportLookup::Unknown { failure });
        exports.replace(ExportSnapshot::default());
        assert_eq!(exports.get("a"), ExportLookup::Absent);
        exports.fail("no route".to_owned());
        assert_eq!(exports.get("a"), ExportLookup::Absent, "what is known stays known");
    }

    #[test]
    fn a_list_says_whether_it_is_complete() {
        let exports = Exports::default();
        exports.apply("b", &export("b", "2"));
        exports.apply("a", &export("a", "1"));
        let listed = exports.list();
        let names: Vec<_> = listed.exports.iter().map(|(name, _)| &**name).collect();
        assert_eq!((names, listed.complete), (vec!["a", "b"], false));
        exports.replace(ExportSnapshot::default());
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
        exports.recovered();
        let well = exports.list();
        assert_eq!(well.failing, None);
        assert!(well.version > failing.version);
        exports.recovered();
        assert_eq!(exports.version(), well.version, "nothing new");
    }

    #[tokio::test(start_paused = true)]
    async fn reading_time_starts_anew_after_a_failure() {
        let exports = Exports::default();
        let pass = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        let read_for = || exports.list().read_for.as_secs();
        pass(10).await;
        assert_eq!(read_for(), 0, "nothing was read");
        exports.replace(ExportSnapshot::default());
        pass(20).await;
        exports.apply("a", &export("a", "1"));
        exports.recovered();
        assert_eq!(read_for(), 20);
        exports.fail("no route".to_owned());
        exports.apply_listed("a", &export("a", "1"));
        pass(30).await;
        assert_eq!(read_for(), 0);
        exports.recovered();
        pass(1).await;
        assert_eq!(read_for(), 1, "it starts anew");
    }

    #[test]
    fn state_and_version_are_read_together() {
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
    fn a_late_removal_of_an_old_export_keeps_the_new_one() {
        let exports = Exports::default();
        exports.replace(ExportSnapshot::default());
        exports.apply("a", &export("a", "2"));
        exports.remove("a", "1");
        assert!(matches!(exports.get("a"), ExportLookup::Present(_)));
        exports.remove("a", "2");
        assert_eq!(exports.get("a"), ExportLookup::Absent);
    }

    #[test]
    fn unchanged_exports_are_not_published() {
        let exports = Exports::default();
        let mut changes = exports.changes();
        exports.apply("a", &export("a", "1"));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        exports.apply("a", &export("a", "1"));
        assert!(!changes.has_changed().unwrap());
    }
}
