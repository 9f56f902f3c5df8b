//! The state of a queue: which keys are queued, delayed or being worked on.

use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map::Entry},
    hash::Hash,
    time::Duration,
};

use tokio::time::Instant;

use super::Priority;
use crate::backoff::Backoff;

/// Number of keys that an empty queue keeps its capacity for.
const CAPACITY_KEPT: usize = 1024;

/// Everything that a queue knows of its keys.
#[derive(Debug)]
pub(super) struct State<K> {
    /// Every key that is queued, delayed, with a worker, or was left with failures.
    pub(super) keys: HashMap<K, KeyState>,
    pub(super) live: Fifo<K>,
    pub(super) backlog: Fifo<K>,
    /// Keys with a worker.
    pub(super) running: usize,
    /// Delayed keys by the time when they are due; the number tells apart keys that are due at the same instant.
    pub(super) delayed: BTreeMap<(Instant, u64), K>,
    next_number: u64,
    pub(super) closed: bool,
}

/// The queued keys of one priority, oldest first.
#[derive(Debug)]
pub(super) struct Fifo<K> {
    /// The keys, among them stale entries of keys that moved to the other priority.
    pub(super) entries: VecDeque<K>,
    /// Number of keys that are not stale.
    len: usize,
}

/// Where one key stands.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    /// The priority in which the key is queued and since when; or, while a worker has the key, in which it is queued afterwards.
    wanted: Option<(Priority, Instant)>,
    /// Whether a worker has the key.
    running: bool,
    /// Entry of the key in `delayed`.
    due: Option<(Instant, u64)>,
    /// Failures in a row.
    pub(super) failures: u32,
}

/// How a worker ended its work on a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome {
    /// The work succeeded.
    Forget,
    /// The work failed; the key is queued again after a delay that grows with each failure.
    Retry(Backoff),
    /// The work succeeded; the key is queued again after this delay.
    Later(Duration),
}

// === impl State ===

impl<K> Default for State<K> {
    fn default() -> Self {
        Self {
            keys: HashMap::new(),
            live: Fifo::default(),
            backlog: Fifo::default(),
            running: 0,
            delayed: BTreeMap::new(),
            next_number: 0,
            closed: false,
        }
    }
}

impl<K: Eq + Hash + Clone> State<K> {
    /// Queues a key, or moves it to a more urgent priority.
    pub(super) fn add(&mut self, key: K, priority: Priority, now: Instant) {
        let known = self.keys.entry(key.clone()).or_default();
        if let Some(at) = known.due.take() {
            self.delayed.remove(&at);
        }
        let before = known.wanted;
        if before.is_some_and(|(before, _)| before <= priority) {
            return;
        }
        known.wanted = Some((priority, before.map_or(now, |(_, since)| since)));
        if !known.running {
            if let Some((before, _)) = before {
                self.fifo(before).remove();
            }
            self.fifo(priority).push(key);
        }
    }

    /// Queues a key at a time, unless it is queued or due sooner already.
    pub(super) fn add_at(&mut self, key: K, at: Instant) {
        let number = self.next_number;
        self.next_number += 1;
        let known = self.keys.entry(key.clone()).or_default();
        let sooner = known.due.is_some_and(|(due, _)| due <= at);
        if known.wanted.is_some() || sooner {
            return;
        }
        if let Some(before) = known.due.replace((at, number)) {
            self.delayed.remove(&before);
        }
        self.delayed.insert((at, number), key);
    }

    /// Returns the number of queued keys.
    pub(super) fn queued(&self) -> usize {
        self.live.len + self.backlog.len
    }

    /// Returns since when the key that is queued longest has been queued. Keys with a worker do not count.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let queued = self.keys.values().filter(|known| !known.running);
        queued.filter_map(|known| Some(known.wanted?.1)).min()
    }

    /// Returns the priority of the first queued key.
    pub(super) fn first_priority(&self) -> Option<Priority> {
        let priorities = [(Priority::Live, &self.live), (Priority::Backlog, &self.backlog)];
        priorities
            .into_iter()
            .find(|(_, fifo)| fifo.len > 0)
            .map(|(priority, _)| priority)
    }

    fn fifo(&mut self, priority: Priority) -> &mut Fifo<K> {
        match priority {
            Priority::Live => &mut self.live,
            Priority::Backlog => &mut self.backlog,
        }
    }

    /// Queues the delayed keys that are due.
    pub(super) fn queue_due(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry().filter(|first| first.key().0 <= now) {
            let ((due, _), key) = entry.remove_entry();
            if let Some(known) = self.keys.get_mut(&key) {
                known.due = None;
            }
            self.add(key, Priority::Live, due);
        }
    }

    /// Takes the first key for a worker; returns it and since when it has been queued.
    pub(super) fn take(&mut self, now: Instant) -> Option<(K, Instant)> {
        self.queue_due(now);
        let priority = self.first_priority()?;
        loop {
            let key = self.fifo(priority).entries.pop_front()?;
            let Some(known) = self.keys.get_mut(&key).filter(|known| !known.running) else {
                continue;
            };
            if let Some((_, since)) = known.wanted.take_if(|(wanted, _)| *wanted == priority) {
                known.running = true;
                self.running += 1;
                self.fifo(priority).remove();
                return Some((key, since));
            }
        }
    }

    /// Takes a key back from its worker.
    pub(super) fn finish(&mut self, key: &K, outcome: Outcome) {
        let Entry::Occupied(mut entry) = self.keys.entry(key.clone()) else {
            return;
        };
        let known = entry.get_mut();
        known.running = false;
        self.running -= 1;
        let failures = known.failures;
        known.failures = match outcome {
            Outcome::Retry(_) => failures.saturating_add(1),
            Outcome::Forget | Outcome::Later(_) => 0,
        };
        if let Some((priority, _)) = known.wanted {
            self.fifo(priority).push(key.clone());
            return;
        }
        match outcome {
            Outcome::Forget if known.due.is_none() => {
                entry.remove();
                if self.keys.is_empty() {
                    self.shrink();
                }
            }
            Outcome::Forget => {}
            Outcome::Later(delay) => self.add_at(key.clone(), Instant::now() + delay),
            Outcome::Retry(backoff) => self.add_at(key.clone(), Instant::now() + backoff.delay(failures)),
        }
    }

    /// Frees the memory that a large backlog took.
    fn shrink(&mut self) {
        self.keys.shrink_to(CAPACITY_KEPT);
        self.live.entries.shrink_to(CAPACITY_KEPT);
        self.backlog.entries.shrink_to(CAPACITY_KEPT);
    }
}

// === impl Fifo ===

impl<K> Default for Fifo<K> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            len: 0,
        }
    }
}

impl<K> Fifo<K> {
    fn push(&mut self, key: K) {
        self.entries.push_back(key);
        self.len += 1;
    }

    /// Counts out a key that was taken or moved. Its entry may stay behind as a stale one, which is skipped.
    fn remove(&mut self) {
        self.len -= 1;
        if self.len == 0 {
            self.entries.clear();
        }
    }
}
