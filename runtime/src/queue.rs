//! A work queue of keys with two priorities. Each key is queued once, and one worker at a time gets it.
//!
//! A key that is added while a worker has it is queued again when the worker is done, so a burst of changes of one object costs
//! two runs instead of one each. Live changes overtake the backlog. A delayed key joins the queue when its delay ends.
//!
//! The keys of a fair queue belong to tenants, who take turns: however many keys one tenant has queued, each other tenant gets the
//! next worker in its turn.

mod lane;
mod state;

use std::{
    fmt::{self, Debug},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use self::{
    lane::Tenant,
    state::{Outcome, State, Taken},
};
use crate::backoff::Backoff;

/// How urgent a key is. A smaller value is more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// The object changed just now.
    Live,
    /// The object was part of a list, as after a start or a reconnect.
    Backlog,
}

/// A work queue. Clones are the same queue.
#[derive(Debug)]
pub struct Queue<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    state: Mutex<State<K>>,
    wake: Notify,
    tenant: TenantOf<K>,
}

/// Tells the tenant of a key.
type TellTenant<K> = Box<dyn Fn(&K) -> Arc<str> + Send + Sync>;

/// How the tenant of a key is found.
enum TenantOf<K> {
    /// All keys belong to this one.
    One(Tenant),
    /// The function tells.
    Each(TellTenant<K>),
}

/// A key that a worker got from the queue. No other worker gets the key until this is dropped; the drop counts as a success
/// unless [`Work::retry`] ended it.
#[derive(Debug)]
pub struct Work<K: Eq + Hash + Clone> {
    key: K,
    waited: Duration,
    changed: Option<Instant>,
    shared: Arc<Shared<K>>,
    outcome: Outcome,
}

// === impl Queue ===

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K: Eq + Hash + Clone> Default for Queue<K> {
    fn default() -> Self {
        Self::with(None, TenantOf::One(Arc::from("")))
    }
}

impl<K: Eq + Hash + Clone> Queue<K> {
    /// Makes an empty queue that knows no tenants.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes an empty queue that is fair between tenants, for this number of workers. Tenants take turns, each with its oldest live
    /// key, or its oldest one of the backlog. While keys of other tenants wait, no tenant gets the last free worker: one tenant has
    /// all workers but one at most. Keys of the backlog are not kept waiting by live ones for ever.
    ///
    /// `tenant` is called for each key that is added, without a lock of the queue. A key keeps its tenant while it is queued.
    pub fn fair(workers: usize, tenant: impl Fn(&K) -> Arc<str> + Send + Sync + 'static) -> Self {
        Self::with(Some(workers), TenantOf::Each(Box::new(tenant)))
    }

    fn with(workers: Option<usize>, tenant: TenantOf<K>) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State::new(workers)),
                wake: Notify::new(),
                tenant,
            }),
        }
    }

    /// Queues a key. A delayed key is queued at once; a key of the backlog moves up if it is now added as live.
    pub fn add(&self, key: K, priority: Priority) {
        let tenant = self.shared.tenant.of(&key);
        self.shared.state.lock().add(key, &tenant, priority, Instant::now());
        self.shared.wake.notify_one();
    }

    /// Queues a key as live after a delay, unless it is queued or due sooner already.
    pub fn add_after(&self, key: K, delay: Duration) {
        let tenant = self.shared.tenant.of(&key);
        self.shared.state.lock().add_at(key, &tenant, Instant::now() + delay);
        self.shared.wake.notify_one();
    }

    /// Returns the number of queued keys; delayed keys and those with a worker are not counted.
    pub fn len(&self) -> usize {
        self.shared.state.lock().queued()
    }

    /// Returns how long the key that is queued longest has been queued; `None` if none is. It looks at every key.
    pub fn longest_wait(&self) -> Option<Duration> {
        let since = self.shared.state.lock().oldest()?;
        Some(since.elapsed())
    }

    /// Whether no key is queued, delayed or with a worker.
    pub fn is_idle(&self) -> bool {
        self.shared.state.lock().keys.is_empty()
    }

    /// Whether no key is queued or with a worker; delayed keys are not counted.
    pub fn is_quiet(&self) -> bool {
        let state = self.shared.state.lock();
        state.queued() == 0 && state.running == 0
    }

    /// Whether no key is queued; delayed keys are not counted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes the queue: from now on [`Queue::next`] returns `None` to every worker.
    pub fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.wake.notify_waiters();
        self.shared.wake.notify_one();
    }

    /// Waits for a key and takes it, the most urgent and oldest first, and in a fair queue that of the next tenant; returns `None` once the
    /// queue is closed.
    pub async fn next(&self) -> Option<Work<K>> {
        while self.ready(Priority::Backlog).await.is_some() {
            let work = self.try_next();
            if work.is_some() {
                return work;
            }
        }
        None
    }

    /// Takes the most urgent and oldest key, if any is queued.
    pub fn try_next(&self) -> Option<Work<K>> {
        let mut state = self.shared.state.lock();
        let now = Instant::now();
        let Taken {
            key, since, changed, ..
        } = state.take(now)?;
        let more = state.queued() > 0 || !state.delayed.is_empty();
        drop(state);
        if more {
            self.shared.wake.notify_one();
        }
        Some(Work {
            key,
            waited: now - since,
            changed,
            shared: Arc::clone(&self.shared),
            outcome: Outcome::Forget,
        })
    }

    /// Waits until a key of this priority or a more urgent one is queued, and returns the priority of the first key, which stays
    /// queued; returns `None` once the queue is closed.
    pub async fn ready(&self, least: Priority) -> Option<Priority> {
        loop {
            let wake = self.shared.wake.notified();
            let due = {
                let mut state = self.shared.state.lock();
                if state.closed {
                    drop(state);
                    // One permit wakes one waiter, which wakes the next.
                    self.shared.wake.notify_one();
                    return None;
                }
                state.queue_due(Instant::now());
                if let Some(priority) = state.first_priority().filter(|priority| *priority <= least) {
                    return Some(priority);
                }
                state.delayed.keys().next().map(|(at, _)| *at)
            };
            match due {
                Some(at) => tokio::select! { () = wake => {}, () = sleep_until(at) => {} },
                None => wake.await,
            }
        }
    }
}

// === impl Shared ===

impl<K: Debug> Debug for Shared<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

// === impl TenantOf ===

impl<K> TenantOf<K> {
    fn of(&self, key: &K) -> Tenant {
        match self {
            Self::One(tenant) => Arc::clone(tenant),
            Self::Each(tenant) => tenant(key),
        }
    }
}

// === impl Work ===

impl<K: Eq + Hash + Clone> Work<K> {
    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns how long the key was queued, since the first change that this work is for.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Returns when the oldest live change was added that no work has succeeded for since: unlike [`Work::waited`] it counts the time of
    /// failed attempts. `None` for work on the backlog.
    pub fn changed(&self) -> Option<Instant> {
        self.changed
    }

    /// Returns how many other keys of the same tenant are queued; 0 in a queue that knows no tenants.
    pub fn queued_beside(&self) -> usize {
        self.shared.state.lock().queued_beside(&self.key)
    }

    /// Returns how many times in a row work on this key has failed.
    pub fn failures(&self) -> u32 {
        self.shared
            .state
            .lock()
            .keys
            .get(&self.key)
            .map_or(0, |known| known.failures)
    }

    /// Ends the work as a failure: the key is queued again after a delay that grows with each failure in a row.
    pub fn retry(mut self, backoff: Backoff) {
        self.outcome = Outcome::Retry(backoff);
    }

    /// Ends the work as a success, and queues the key again after a delay.
    pub fn again_after(mut self, delay: Duration) {
        self.outcome = Outcome::Later(delay);
    }
}

impl<K: Eq + Hash + Clone> Drop for Work<K> {
    fn drop(&mut self) {
        self.shared.state.lock().finish(&self.key, self.outcome, self.changed);
        self.shared.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    mod fair;
    mod plain;
}
