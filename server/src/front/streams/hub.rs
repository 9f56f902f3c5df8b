//! The hub between caches and streams: which streams subscribe to which scope, and which objects of it changed lately.
//!
//! A replica records every change of its caches, in their order. A scope is a contract, a principal or a group. Each subscriber
//! of some scopes holds the set of names that changed there since it last looked, so that a burst on one object is one message. Recent changes are
//! kept for streams that resume, bounded in number and age.
//!
//! A [`Cursor`] tells how far a stream has come. On the replica that issued it, its sequence number says exactly which changes
//! are missing. On another replica, resource versions do: both see the changes of one kind in the same order, so the missing
//! changes are those recorded at the cursor's version or a later one. This holds for changes that a replica followed live, not
//! for those that it found in a list, and only if both replicas saw the same object at that version: otherwise one of them
//! follows a cluster that was restored from a backup.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Weak},
    time::Duration,
};

use bindery_runtime::queue::Priority;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

mod history;

pub(crate) use history::Checksum;
use history::HistoryChecksums;

/// Number of kinds of objects whose changes one hub can record.
pub(crate) const KINDS: usize = 2;
/// Number of recent changes that are kept per scope.
const CHANGES_MAX: usize = 1_000;
/// Time for which recent changes are kept.
const CHANGES_FOR: Duration = Duration::from_mins(5);
/// Number of changes after which scopes without subscribers and changes are forgotten.
const SWEEP_EVERY: u64 = 1_024;

/// How far a stream has come. Resume tokens carry it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Random number of the replica's process that issued it.
    pub instance: u64,
    /// Number of the last change seen, counted by that process.
    pub sequence: u64,
    /// Highest resource version seen, by kind.
    pub versions: [u64; KINDS],
    /// Checksum of the object that was seen at that version, by kind.
    pub checksums: [u64; KINDS],
}

/// An object and its resource version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version<'a> {
    /// The resource version.
    pub number: u64,
    /// The object.
    pub object: &'a dyn Checksum,
}

/// A change of an object's kind and version, as a cache shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress<'a> {
    /// Number of the kind, below [`KINDS`].
    pub kind: usize,
    /// The object as it is now; none if it was removed.
    pub version: Option<Version<'a>>,
    /// Whether the change was followed live or found in a list.
    pub priority: Priority,
}

/// An object that was removed, as clients know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RemovedObject {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// Names that changed, each with the object if it was removed.
pub(crate) type ChangedNames = BTreeMap<Arc<str>, Option<RemovedObject>>;

/// How a stream begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamStart {
    /// With a snapshot of all objects; with the reason if the client asked to resume.
    Snapshot(Option<&'static str>),
    /// With the changes since its cursor.
    Resumed,
}

/// Records the changes of a replica's caches and tells the streams of them.
#[derive(Debug)]
pub(crate) struct Hub {
    state: Mutex<HubState>,
    versions: watch::Sender<[u64; KINDS]>,
}

#[derive(Debug)]
struct HubState {
    cursor: Cursor,
    /// The first version that was followed live since the last list. Changes before it may have been missed.
    live_since: [Option<u64>; KINDS],
    checksums: [HistoryChecksums; KINDS],
    scopes: HashMap<Arc<str>, Scope>,
}

#[derive(Debug, Default)]
struct Scope {
    changes: VecDeque<RecordedChange>,
    /// The last change that is no longer kept. A cursor must be newer to resume.
    forgotten: Option<Cursor>,
    subscribers: Vec<Weak<Inbox>>,
}

#[derive(Debug)]
struct RecordedChange {
    sequence: u64,
    kind: usize,
    version: u64,
    name: Arc<str>,
    removed: Option<RemovedObject>,
    at: Instant,
}

/// What changed for one subscriber since it last looked.
#[derive(Debug, Default)]
struct Inbox {
    changed: Mutex<ChangedNames>,
    wake: Notify,
}

/// The subscription of one stream to its scopes, which ends on drop.
#[derive(Debug)]
pub(crate) struct Subscriber {
    hub: Arc<Hub>,
    inbox: Arc<Inbox>,
}

// === impl Hub ===

impl Hub {
    /// A hub without changes and subscribers.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(HubState {
                cursor: Cursor {
                    instance: rand::random(),
                    ..Cursor::default()
                },
                live_since: [None; KINDS],
                checksums: Default::default(),
                scopes: HashMap::new(),
            }),
            versions: watch::Sender::new([0; KINDS]),
        })
    }

    /// Records a change of `name` and tells the subscribers of these scopes. Without a scope, the change only says how far this
    /// replica has come.
    pub(crate) fn record<'a>(
        &self,
        scopes: impl IntoIterator<Item = &'a str>,
        name: &str,
        removed: Option<&RemovedObject>,
        progress: Progress<'_>,
    ) {
        // The checksum is computed before the lock is taken, which all streams and caches share. Versions only grow, so that
        // one that is known already needs none.
        let known = self.versions.borrow()[progress.kind];
        let seen = progress.version.filter(|version| version.number > known);
        let seen = seen.map(|version| (version.number, version.object.checksum()));
        let mut state = self.state.lock();
        state.advance(progress, seen);
        for scope in scopes {
            state.record(scope, name, removed, progress.kind);
        }
        let versions = state.cursor.versions;
        drop(state);
        self.versions
            .send_if_modified(|known| std::mem::replace(known, versions) != versions);
    }

    /// Declares that no change of this kind is ever recorded, so that none can be missed.
    pub(crate) fn disable_kind(&self, kind: usize) {
        self.state.lock().live_since[kind] = Some(0);
    }

    /// Wakes the streams of a scope, which then check whether they may go on.
    pub(crate) fn wake(&self, scope: &str) {
        if let Some(scope) = self.state.lock().scopes.get(scope) {
            let inboxes = scope.subscribers.iter().filter_map(Weak::upgrade);
            inboxes.for_each(|inbox| inbox.wake.notify_one());
        }
    }

    /// Waits until this replica has seen all versions of the cursor. False if that takes longer than `patience`.
    pub(crate) async fn reached(&self, cursor: &Cursor, patience: Duration) -> bool {
        let mut versions = self.versions.subscribe();
        let is_behind = |here: &[u64; KINDS]| here.iter().zip(&cursor.versions).any(|(here, there)| here < there);
        let reached = versions.wait_for(|here| !is_behind(here));
        tokio::time::timeout(patience, reached)
            .await
            .is_ok_and(|reached| reached.is_ok())
    }

    /// Subscribes to scopes, of which there is at least one. The subscriber gets all changes of each from now on, and those since
    /// `resume` if they are known.
    pub(crate) fn subscribe<'a>(
        self: &Arc<Self>,
        scopes: impl IntoIterator<Item = &'a str>,
        resume: Option<&Cursor>,
    ) -> (Subscriber, StreamStart) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let inbox = Arc::new(Inbox::default());
        let mut start = resume.map_or(StreamStart::Snapshot(None), |_| StreamStart::Resumed);
        for scope in scopes {
            let entry = state.scopes.entry(scope.into()).or_default();
            entry.forget_old_changes();
            if let (Some(cursor), StreamStart::Resumed) = (resume, &start) {
                match entry.since(cursor, &state.cursor, &state.live_since, &state.checksums) {
                    Ok(changed) => inbox.changed.lock().extend(changed),
                    Err(reason) => start = StreamStart::Snapshot(Some(reason)),
                }
            }
            entry.subscribers.retain(|subscriber| subscriber.strong_count() > 0);
            entry.subscribers.push(Arc::downgrade(&inbox));
        }
        let hub = Arc::clone(self);
        (Subscriber { hub, inbox }, start)
    }
}

// === impl HubState ===

impl HubState {
    /// Moves the cursor past a change; `seen` is its version and checksum, if the version is new.
    fn advance(&mut self, progress: Progress<'_>, seen: Option<(u64, u64)>) {
        let kind = progress.kind;
        self.cursor.sequence += 1;
        if let Some((version, checksum)) = seen.filter(|(version, _)| *version > self.cursor.versions[kind]) {
            self.cursor.versions[kind] = version;
            self.cursor.checksums[kind] = checksum;
            self.checksums[kind].push(version, checksum);
        }
        let live_since = &mut self.live_since[kind];
        match progress.priority {
            Priority::Backlog => *live_since = None,
            Priority::Live => *live_since = live_since.or(progress.version.map(|version| version.number)),
        }
        if self.cursor.sequence.is_multiple_of(SWEEP_EVERY) {
            self.sweep();
        }
    }

    fn record(&mut self, scope: &str, name: &str, removed: Option<&RemovedObject>, kind: usize) {
        let scope = self.scopes.entry(scope.into()).or_default();
        let name: Arc<str> = name.into();
        scope.subscribers.retain(|subscriber| {
            let Some(inbox) = subscriber.upgrade() else {
                return false;
            };
            inbox.changed.lock().insert(Arc::clone(&name), removed.cloned());
            inbox.wake.notify_one();
            true
        });
        scope.changes.push_back(RecordedChange {
            sequence: self.cursor.sequence,
            kind,
            version: self.cursor.versions[kind],
            name,
            removed: removed.cloned(),
            at: Instant::now(),
        });
        scope.forget_old_changes();
    }

    fn sweep(&mut self) {
        self.scopes.retain(|_, scope| {
            scope.forget_old_changes();
            scope.subscribers.retain(|subscriber| subscriber.strong_count() > 0);
            !scope.subscribers.is_empty() || !scope.changes.is_empty() || scope.forgotten.is_some()
        });
    }
}

// === impl Scope ===

impl Scope {
    fn forget_old_changes(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.changes.front()
            && (self.changes.len() > CHANGES_MAX || now.duration_since(first.at) > CHANGES_FOR)
        {
            let mut forgotten = self.forgotten.unwrap_or_default();
            forgotten.sequence = first.sequence;
            forgotten.versions[first.kind] = first.version;
            self.forgotten = Some(forgotten);
            self.changes.pop_front();
        }
    }

    /// The names that changed since the cursor, or why they are not known. `now` is the cursor of this replica.
    fn since(
        &self,
        cursor: &Cursor,
        now: &Cursor,
        live_since: &[Option<u64>; KINDS],
        checksums: &[HistoryChecksums; KINDS],
    ) -> Result<ChangedNames, &'static str> {
        let forgotten = self.forgotten.unwrap_or_default();
        let is_missing = |change: &RecordedChange| {
            if cursor.instance == now.instance {
                change.sequence > cursor.sequence
            } else {
                change.version >= cursor.versions[change.kind]
            }
        };
        if cursor.instance == now.instance {
            if cursor.sequence < forgotten.sequence {
                return Err("more has changed since than is kept");
            }
        } else {
            for kind in 0..KINDS {
                let (there, here) = (cursor.versions[kind], now.versions[kind]);
                if there > here {
                    return Err("the token is ahead of this server");
                }
                if live_since[kind].is_none_or(|since| there < since) {
                    return Err("this replica has not followed all changes since");
                }
                if there > 0 && !checksums[kind].contains(there, cursor.checksums[kind]) {
                    return Err("the token is of another history of the cluster, or too old");
                }
                // A kind that never changed has nothing forgotten.
                if there <= forgotten.versions[kind] && forgotten.versions[kind] > 0 {
                    return Err("more has changed since than is kept");
                }
            }
        }
        let missing = self.changes.iter().filter(|change| is_missing(change));
        Ok(missing
            .map(|change| (Arc::clone(&change.name), change.removed.clone()))
            .collect())
    }
}

// === impl Subscriber ===

impl Subscriber {
    /// Waits until something may have changed.
    pub(crate) async fn changed(&self) {
        self.inbox.wake.notified().await;
    }

    /// Takes the names that changed, and the cursor of a client that has seen them.
    pub(crate) fn drain(&self) -> (ChangedNames, Cursor) {
        // Both under the hub's lock, so that no change comes between them.
        let state = self.hub.state.lock();
        let changed = std::mem::take(&mut *self.inbox.changed.lock());
        (changed, state.cursor)
    }
}

#[cfg(test)]
mod tests;
