//! Who watches what, and what changed lately.
//!
//! A replica notes every change that its caches show, in the order in which they show them. Streams of a scope (a
//! contract, or a principal) hold the set of names that changed since they last looked: a burst on one object is one
//! message. Recent changes are kept for those who come back, bounded in number and age.
//!
//! Where a stream stands is a [`Mark`]. On the replica that gave it, its sequence number says exactly what is missing.
//! On another, resource versions do: both see the changes of one kind in the same order, so all that happened since is
//! what was noted at that version or a later one. This holds for what a replica followed live, not across its lists, and
//! where both have seen the same object at that version: otherwise one of them lives in a cluster that was restored.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Weak},
    time::Duration,
};

use bindery_runtime::queue::Lane;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

mod landmarks;

pub(crate) use landmarks::Landmark;
use landmarks::Landmarks;

/// Kinds that feed one hub at most.
pub(crate) const SOURCES: usize = 2;
/// Changes kept per scope, and for how long.
const CHANGES_MAX: usize = 1_000;
const CHANGES_FOR: Duration = Duration::from_mins(5);
/// Quiet scopes are cleaned up once in so many changes.
const SWEEP_EVERY: u64 = 1_024;

/// How far a stream has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The replica's run that gave it.
    pub instance: u64,
    /// Number of the last change seen, within that run.
    pub sequence: u64,
    /// Highest resource version seen of each source.
    pub position: [u64; SOURCES],
    /// Hash of what was seen at that version.
    pub landmarks: [u64; SOURCES],
}

/// An object as it is at its resource version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version<'a> {
    /// The resource version.
    pub number: u64,
    /// What is there.
    pub object: &'a dyn Landmark,
}

/// A change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Note<'a> {
    /// Who may watch it.
    pub scope: &'a str,
    /// What changed, as the feed names it.
    pub name: &'a str,
    /// The object, if it is gone.
    pub gone: Option<Gone>,
    /// Which kind it is of, below [`SOURCES`].
    pub source: usize,
    /// As what it is there; none where it is gone.
    pub version: Option<Version<'a>>,
    /// Whether it was followed live or found in a list.
    pub lane: Lane,
}

/// An object that is gone, as the client knew it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gone {
    /// Its name, as the client knew it.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// What changed, by name, with what is gone.
pub(crate) type Dirty = BTreeMap<Arc<str>, Option<Gone>>;

/// How a stream begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// With all there is; the reason, where it hoped for less.
    Snapshot(Option<&'static str>),
    /// With what changed since.
    Resumed,
}

/// The hub.
#[derive(Debug)]
pub(crate) struct Hub {
    state: Mutex<State>,
    progress: watch::Sender<[u64; SOURCES]>,
}

#[derive(Debug)]
struct State {
    mark: Mark,
    /// The first live version since the last list: what is older may have been missed.
    horizon: [Option<u64>; SOURCES],
    landmarks: [Landmarks; SOURCES],
    scopes: HashMap<Arc<str>, Scope>,
}

#[derive(Debug, Default)]
struct Scope {
    changes: VecDeque<Change>,
    /// What is no longer kept: tokens must be newer.
    forgotten: Option<Mark>,
    members: Vec<Weak<Seat>>,
}

#[derive(Debug)]
struct Change {
    sequence: u64,
    source: usize,
    version: u64,
    name: Arc<str>,
    gone: Option<Gone>,
    at: Instant,
}

#[derive(Debug, Default)]
struct Seat {
    dirty: Mutex<Dirty>,
    wake: Notify,
}

/// A stream's place in the hub. Dropping it leaves.
#[derive(Debug)]
pub(crate) struct Member {
    hub: Arc<Hub>,
    seat: Arc<Seat>,
}

// === impl Hub ===

impl Hub {
    /// An empty hub.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                mark: Mark {
                    instance: rand::random(),
                    ..Mark::default()
                },
                horizon: [None; SOURCES],
                landmarks: Default::default(),
                scopes: HashMap::new(),
            }),
            progress: watch::Sender::new([0; SOURCES]),
        })
    }

    /// Notes a change and tells who watches it.
    pub(crate) fn note(&self, note: &Note<'_>) {
        let mut state = self.state.lock();
        state.note(note);
        let position = state.mark.position;
        drop(state);
        self.progress
            .send_if_modified(|known| std::mem::replace(known, position) != position);
    }

    /// Takes note of a change that nobody watches: it still says how far this replica has come.
    pub(crate) fn pass(&self, source: usize, version: Option<Version<'_>>, lane: Lane) {
        let mut state = self.state.lock();
        state.advance(source, version, lane);
        let position = state.mark.position;
        drop(state);
        self.progress
            .send_if_modified(|known| std::mem::replace(known, position) != position);
    }

    /// Says that nothing ever comes from a source, so that nothing of it can be missed.
    pub(crate) fn never_from(&self, source: usize) {
        self.state.lock().horizon[source] = Some(0);
    }

    /// Wakes the streams of a scope, to see whether they may go on.
    pub(crate) fn wake(&self, scope: &str) {
        if let Some(scope) = self.state.lock().scopes.get(scope) {
            scope
                .members
                .iter()
                .filter_map(Weak::upgrade)
                .for_each(|seat| seat.wake.notify_one());
        }
    }

    /// Waits until this replica has seen what the mark saw. False if that takes too long.
    pub(crate) async fn reached(&self, mark: &Mark, patience: Duration) -> bool {
        let mut progress = self.progress.subscribe();
        let behind = |position: &[u64; SOURCES]| position.iter().zip(&mark.position).any(|(here, there)| here < there);
        let reached = progress.wait_for(|position| !behind(position));
        tokio::time::timeout(patience, reached)
            .await
            .is_ok_and(|reached| reached.is_ok())
    }

    /// Joins a scope. From now on nothing is missed; `resume` says what was seen before.
    pub(crate) fn join(self: &Arc<Self>, scope: &str, resume: Option<&Mark>) -> (Member, Start) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let entry = state.scopes.entry(scope.into()).or_default();
        entry.prune();
        let seat = Arc::new(Seat::default());
        let start = match resume {
            None => Start::Snapshot(None),
            Some(mark) => match entry.since(mark, &state.mark, &state.horizon, &state.landmarks) {
                Ok(dirty) => {
                    *seat.dirty.lock() = dirty;
                    Start::Resumed
                }
                Err(reason) => Start::Snapshot(Some(reason)),
            },
        };
        entry.members.retain(|member| member.strong_count() > 0);
        entry.members.push(Arc::downgrade(&seat));
        let hub = Arc::clone(self);
        (Member { hub, seat }, start)
    }
}

// === impl State ===

impl State {
    fn advance(&mut self, source: usize, version: Option<Version<'_>>, lane: Lane) {
        self.mark.sequence += 1;
        if let Some(version) = version.filter(|version| version.number > self.mark.position[source]) {
            let hash = version.object.landmark();
            self.mark.position[source] = version.number;
            self.mark.landmarks[source] = hash;
            self.landmarks[source].push(version.number, hash);
        }
        let horizon = &mut self.horizon[source];
        match lane {
            Lane::Backlog => *horizon = None,
            Lane::Live => *horizon = horizon.or(version.map(|version| version.number)),
        }
    }

    fn note(&mut self, note: &Note<'_>) {
        self.advance(note.source, note.version, note.lane);
        if self.mark.sequence.is_multiple_of(SWEEP_EVERY) {
            self.sweep();
        }
        let scope = self.scopes.entry(note.scope.into()).or_default();
        let name: Arc<str> = note.name.into();
        scope.members.retain(|member| {
            let Some(seat) = member.upgrade() else {
                return false;
            };
            seat.dirty.lock().insert(Arc::clone(&name), note.gone.clone());
            seat.wake.notify_one();
            true
        });
        scope.changes.push_back(Change {
            sequence: self.mark.sequence,
            source: note.source,
            version: self.mark.position[note.source],
            name,
            gone: note.gone.clone(),
            at: Instant::now(),
        });
        scope.prune();
    }

    fn sweep(&mut self) {
        self.scopes.retain(|_, scope| {
            scope.prune();
            scope.members.retain(|member| member.strong_count() > 0);
            !scope.members.is_empty() || !scope.changes.is_empty() || scope.forgotten.is_some()
        });
    }
}

// === impl Scope ===

impl Scope {
    /// Forgets what is too old or too much.
    fn prune(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.changes.front()
            && (self.changes.len() > CHANGES_MAX || now.duration_since(first.at) > CHANGES_FOR)
        {
            let mut forgotten = self.forgotten.unwrap_or_default();
            forgotten.sequence = first.sequence;
            forgotten.position[first.source] = first.version;
            self.forgotten = Some(forgotten);
            self.changes.pop_front();
        }
    }

    /// What changed since the mark, or why that cannot be told.
    fn since(
        &self,
        mark: &Mark,
        now: &Mark,
        horizon: &[Option<u64>; SOURCES],
        landmarks: &[Landmarks; SOURCES],
    ) -> Result<Dirty, &'static str> {
        let forgotten = self.forgotten.unwrap_or_default();
        let missed: Vec<&Change> = if mark.instance == now.instance {
            if mark.sequence < forgotten.sequence {
                return Err("more has changed since than is kept");
            }
            self.changes
                .iter()
                .filter(|change| change.sequence > mark.sequence)
                .collect()
        } else {
            for source in 0..SOURCES {
                let (there, here) = (mark.position[source], now.position[source]);
                if there > here {
                    return Err("the token is ahead of this server");
                }
                if horizon[source].is_none_or(|horizon| there < horizon) {
                    return Err("this replica has not followed all changes since");
                }
                if there > 0 && !landmarks[source].has(there, mark.landmarks[source]) {
                    return Err("the token is of another history of the cluster, or too old");
                }
                // Nothing is forgotten of a source from which nothing came.
                if there <= forgotten.position[source] && forgotten.position[source] > 0 {
                    return Err("more has changed since than is kept");
                }
            }
            let since = |change: &&Change| change.version >= mark.position[change.source];
            self.changes.iter().filter(since).collect()
        };
        let latest = missed
            .into_iter()
            .map(|change| (Arc::clone(&change.name), change.gone.clone()));
        Ok(latest.collect())
    }
}

// === impl Member ===

impl Member {
    /// Waits until something may have changed.
    pub(crate) async fn changed(&self) {
        self.seat.wake.notified().await;
    }

    /// Takes what changed, and how far one has come with it.
    pub(crate) fn drain(&self) -> (Dirty, Mark) {
        // Under the hub's lock, so that no change falls between the two.
        let state = self.hub.state.lock();
        let dirty = std::mem::take(&mut *self.seat.dirty.lock());
        (dirty, state.mark)
    }
}

#[cfg(test)]
mod tests;
