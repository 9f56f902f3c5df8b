//! The state of a queue: which keys are queued, delayed or being worked on.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Priority,
    lane::{Lane, Tenant},
};
use crate::backoff::Backoff;

/// Number of keys that an empty queue keeps its capacity for.
const CAPACITY_KEPT: usize = 1024;
/// A fair queue gives at most this many live keys in a row while a key of the backlog waits, so that no tenant keeps others in the
/// backlog by changing its objects all the time.
const LIVE_IN_A_ROW: u32 = 7;

/// Everything that a queue knows of its keys.
#[derive(Debug)]
pub(super) struct State<K> {
    /// Every key that is queued, delayed, with a worker, or was left with failures.
    pub(super) keys: HashMap<K, KeyState>,
    pub(super) live: Lane<K>,
    pub(super) backlog: Lane<K>,
    /// Keys with a worker.
    pub(super) running: usize,
    /// Number of keys of each tenant with a worker; not counted unless the queue is fair.
    running_of: HashMap<Tenant, usize>,
    /// The workers of a fair queue; `None` for a queue that knows no tenants.
    workers: Option<usize>,
    /// Live keys that were given since the last key of the backlog.
    live_in_a_row: u32,
    /// Delayed keys by the time when they are due; the number tells apart keys that are due at the same instant.
    pub(super) delayed: BTreeMap<(Instant, u64), K>,
    next_number: u64,
    pub(super) closed: bool,
}

/// Where one key stands.
#[derive(Debug)]
pub(super) struct KeyState {
    /// The tenant that the key had when it was added first.
    tenant: Tenant,
    /// The priority in which the key is queued and since when; or, while a worker has the key, in which it is queued afterwards.
    wanted: Option<(Priority, Instant)>,
    /// Since when a live change waits for work that succeeds: the oldest one, also over failures. `None` if none waits, or a worker has it.
    changed: Option<Instant>,
    /// Whether a worker has the key.
    running: bool,
    /// Entry of the key in `delayed`.
    due: Option<(Instant, u64)>,
    /// Failures in a row.
    pub(super) failures: u32,
}

/// A key that is given to a worker.
#[derive(Debug)]
pub(super) struct Taken<K> {
    pub(super) key: K,
    /// Since when the key was queued.
    pub(super) since: Instant,
    /// When the oldest live change was added that no work has succeeded for since.
    pub(super) changed: Option<Instant>,
    priority: Priority,
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

impl<K> State<K> {
    /// Creates an empty state, for this number of workers if it is that of a fair queue.
    pub(super) fn new(workers: Option<usize>) -> Self {
        Self {
            keys: HashMap::new(),
            live: Lane::default(),
            backlog: Lane::default(),
            running: 0,
            running_of: HashMap::new(),
            workers,
            live_in_a_row: 0,
            delayed: BTreeMap::new(),
            next_number: 0,
            closed: false,
        }
    }
}

impl<K: Eq + Hash + Clone> State<K> {
    /// Queues a key, or moves it to a more urgent priority. The tenant counts only if the key is not known yet.
    pub(super) fn add(&mut self, key: K, tenant: &Tenant, priority: Priority, now: Instant) {
        let changed = (priority == Priority::Live).then_some(now);
        self.enqueue(key, tenant, priority, now, changed);
    }

    /// Queues a key, for the live change of that time if there is one.
    fn enqueue(&mut self, key: K, tenant: &Tenant, priority: Priority, now: Instant, changed: Option<Instant>) {
        let known = self.keys.entry(key.clone()).or_insert_with(|| KeyState::new(tenant));
        known.changed = known.changed.or(changed);
        if let Some(at) = known.due.take() {
            self.delayed.remove(&at);
        }
        let before = known.wanted;
        if before.is_some_and(|(before, _)| before <= priority) {
            return;
        }
        known.wanted = Some((priority, before.map_or(now, |(_, since)| since)));
        if !known.running {
            let tenant = Arc::clone(&known.tenant);
            if let Some((before, _)) = before {
                self.lane(before).remove(&tenant);
            }
            self.lane(priority).push(&tenant, key);
        }
    }

    /// Queues a key at a time, unless it is queued or due sooner already.
    pub(super) fn add_at(&mut self, key: K, tenant: &Tenant, at: Instant) {
        let number = self.next_number;
        self.next_number += 1;
        let known = self.keys.entry(key.clone()).or_insert_with(|| KeyState::new(tenant));
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
        self.live.len() + self.backlog.len()
    }

    /// Returns the number of queued keys of the tenant of a key that is known; 0 in a queue that knows no tenants.
    pub(super) fn queued_beside(&self, key: &K) -> usize {
        let known = self.keys.get(key).filter(|_| self.workers.is_some());
        known.map_or(0, |known| {
            self.live.len_of(&known.tenant) + self.backlog.len_of(&known.tenant)
        })
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
            .find(|(_, lane)| lane.len() > 0)
            .map(|(priority, _)| priority)
    }

    fn lane(&mut self, priority: Priority) -> &mut Lane<K> {
        match priority {
            Priority::Live => &mut self.live,
            Priority::Backlog => &mut self.backlog,
        }
    }

    /// Queues the delayed keys that are due.
    pub(super) fn queue_due(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry().filter(|first| first.key().0 <= now) {
            let ((due, _), key) = entry.remove_entry();
            let Some(known) = self.keys.get_mut(&key) else {
                continue;
            };
            known.due = None;
            let tenant = Arc::clone(&known.tenant);
            self.enqueue(key, &tenant, Priority::Live, due, None);
        }
    }

    /// Takes the next key for a worker.
    pub(super) fn take(&mut self, now: Instant) -> Option<Taken<K>> {
        self.queue_due(now);
        let first = self.next_priority()?;
        let full = self.tenant_at_limit();
        let other = match first {
            Priority::Live => Priority::Backlog,
            Priority::Backlog => Priority::Live,
        };
        let taken = match &full {
            None => self.take_from(first, None),
            // Nobody else waits if only keys of that tenant are queued: then it may have the last worker too.
            Some(_) => [(first, full.as_ref()), (other, full.as_ref()), (first, None)]
                .into_iter()
                .find_map(|(priority, except)| self.take_from(priority, except)),
        };
        let taken = taken?;
        match taken.priority {
            Priority::Live => self.live_in_a_row = self.live_in_a_row.saturating_add(1),
            Priority::Backlog => self.live_in_a_row = 0,
        }
        Some(taken)
    }

    /// Returns the priority from which the next key is taken: the first, but in a fair queue not for ever.
    fn next_priority(&self) -> Option<Priority> {
        let first = self.first_priority()?;
        let is_turn_of_backlog =
            self.workers.is_some() && self.live_in_a_row >= LIVE_IN_A_ROW && self.backlog.len() > 0;
        Some(if is_turn_of_backlog { Priority::Backlog } else { first })
    }

    /// Returns the tenant that has all workers but one; `None` in a queue that knows no tenants.
    fn tenant_at_limit(&self) -> Option<Tenant> {
        let limit = self.workers?.saturating_sub(1).max(1);
        let mut all = self.running_of.iter();
        let full = all.find(|(_, running)| **running >= limit);
        full.map(|(tenant, _)| Arc::clone(tenant))
    }

    /// Takes the next key of a priority that is not one of the excepted tenant.
    fn take_from(&mut self, priority: Priority, except: Option<&Tenant>) -> Option<Taken<K>> {
        let Self {
            keys, live, backlog, ..
        } = self;
        let lane = match priority {
            Priority::Live => live,
            Priority::Backlog => backlog,
        };
        let mut since = None;
        let key = lane.take(except, |key| {
            let known = keys.get_mut(key).filter(|known| !known.running);
            since = known.and_then(|known| known.wanted.take_if(|(wanted, _)| *wanted == priority));
            since.is_some()
        })?;
        let (_, since) = since?;
        let known = self.keys.get_mut(&key)?;
        known.running = true;
        self.running += 1;
        if self.workers.is_some() {
            *self.running_of.entry(Arc::clone(&known.tenant)).or_default() += 1;
        }
        Some(Taken {
            key,
            since,
            changed: known.changed.take(),
            priority,
        })
    }

    /// Takes a key back from its worker. `changed` is the time of the change that the work was for, which waits on if the work failed.
    pub(super) fn finish(&mut self, key: &K, outcome: Outcome, changed: Option<Instant>) {
        let Entry::Occupied(mut entry) = self.keys.entry(key.clone()) else {
            return;
        };
        let known = entry.get_mut();
        known.running = false;
        self.running -= 1;
        let tenant = Arc::clone(&known.tenant);
        if let Some(running) = self.running_of.get_mut(&tenant) {
            *running -= 1;
            if *running == 0 {
                self.running_of.remove(&tenant);
            }
        }
        let failures = known.failures;
        known.failures = match outcome {
            Outcome::Retry(_) => failures.saturating_add(1),
            Outcome::Forget | Outcome::Later(_) => 0,
        };
        if matches!(outcome, Outcome::Retry(_)) {
            known.changed = changed.or(known.changed);
        }
        if let Some((priority, _)) = known.wanted {
            self.lane(priority).push(&tenant, key.clone());
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
            Outcome::Later(delay) => self.add_at(key.clone(), &tenant, Instant::now() + delay),
            Outcome::Retry(backoff) => {
                self.add_at(key.clone(), &tenant, Instant::now() + backoff.delay(failures));
            }
        }
    }

    /// Frees the memory that a large backlog took.
    fn shrink(&mut self) {
        self.keys.shrink_to(CAPACITY_KEPT);
        self.live.shrink(CAPACITY_KEPT);
        self.backlog.shrink(CAPACITY_KEPT);
    }
}

// === impl KeyState ===

impl KeyState {
    fn new(tenant: &Tenant) -> Self {
        Self {
            tenant: Arc::clone(tenant),
            wanted: None,
            changed: None,
            running: false,
            due: None,
            failures: 0,
        }
    }
}
