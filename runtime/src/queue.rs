//! A queue of keys to work on: each key is queued once, and worked on by one worker at a time.
//!
//! Keys that change while they are worked on are queued again when the worker is done, so a burst of changes of one
//! object costs two runs and not one each. Live changes pass a backlog. Work that waits for a time does not take part
//! in the queue until then; work that is due now involves no timer.

use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map::Entry},
    fmt::Debug,
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::backoff::Backoff;

/// How soon a key is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Something changed just now.
    Live,
    /// Part of a list: a start, a reconnect, a resync.
    Backlog,
}

/// A queue shared by those who add keys and those who work on them. Clones are the same queue.
#[derive(Debug)]
pub struct Queue<K> {
    shared: Arc<Shared<K>>,
}

#[derive(Debug)]
struct Shared<K> {
    state: Mutex<State<K>>,
    wake: Notify,
}

#[derive(Debug)]
struct State<K> {
    slots: HashMap<K, Slot>,
    /// How many slots are queued, and how many run.
    queued: usize,
    running: usize,
    live: VecDeque<K>,
    backlog: VecDeque<K>,
    /// What waits, by when; the number tells apart what falls on the same instant.
    delayed: BTreeMap<(Instant, u64), K>,
    next_number: u64,
    closed: bool,
}

#[derive(Debug, Default)]
struct Slot {
    queued: Option<Lane>,
    running: bool,
    /// Added while running: runs again at once.
    again: Option<Lane>,
    due: Option<(Instant, u64)>,
    failures: u32,
}

/// A key handed to a worker. Nobody else gets the key until this is dropped.
#[derive(Debug)]
pub struct Work<K: Eq + Hash + Clone> {
    key: K,
    shared: Arc<Shared<K>>,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy)]
enum Outcome {
    Forget,
    Retry(Backoff),
    Later(Duration),
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
        let state = State {
            slots: HashMap::new(),
            queued: 0,
            running: 0,
            live: VecDeque::new(),
            backlog: VecDeque::new(),
            delayed: BTreeMap::new(),
            next_number: 0,
            closed: false,
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                wake: Notify::new(),
            }),
        }
    }
}

impl<K: Eq + Hash + Clone> Queue<K> {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues a key. A key that waits for a time is due at once; one in the backlog moves up for a live change.
    pub fn add(&self, key: K, lane: Lane) {
        self.shared.state.lock().add(key, lane);
        self.shared.wake.notify_one();
    }

    /// Queues a key after a delay, unless it is wanted sooner already.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.shared.state.lock().add_at(key, Instant::now() + delay);
        self.shared.wake.notify_one();
    }

    /// Keys that wait to be worked on, those with a delay not counted.
    pub fn len(&self) -> usize {
        self.shared.state.lock().queued
    }

    /// True when no key is queued, delayed or being worked on.
    pub fn is_idle(&self) -> bool {
        self.shared.state.lock().slots.is_empty()
    }

    /// True when no key waits to be worked on or is being worked on; keys with a delay are not counted.
    pub fn is_quiet(&self) -> bool {
        let state = self.shared.state.lock();
        state.queued == 0 && state.running == 0
    }

    /// True when no key waits to be worked on.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the queue: [`Queue::next`] answers `None` to all from now on.
    pub fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.wake.notify_waiters();
        self.shared.wake.notify_one();
    }

    /// The next key to work on, waiting for one; `None` once the queue is closed.
    pub async fn next(&self) -> Option<Work<K>> {
        loop {
            let wake = self.shared.wake.notified();
            let due = {
                let mut state = self.shared.state.lock();
                if state.closed {
                    drop(state);
                    // Pass the word on: a permit wakes one waiter only.
                    self.shared.wake.notify_one();
                    return None;
                }
                if let Some(key) = state.take(Instant::now()) {
                    let more = !state.live.is_empty() || !state.backlog.is_empty() || !state.delayed.is_empty();
                    drop(state);
                    if more {
                        self.shared.wake.notify_one();
                    }
                    return Some(Work {
                        key,
                        shared: Arc::clone(&self.shared),
                        outcome: Outcome::Forget,
                    });
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

// === impl State ===

impl<K: Eq + Hash + Clone> State<K> {
    fn add(&mut self, key: K, lane: Lane) {
        let slot = self.slots.entry(key.clone()).or_default();
        if let Some(at) = slot.due.take() {
            self.delayed.remove(&at);
        }
        if slot.running {
            slot.again = Some(slot.again.map_or(lane, |before| before.min(lane)));
            return;
        }
        match (slot.queued, lane) {
            (Some(Lane::Live), _) | (Some(Lane::Backlog), Lane::Backlog) => return,
            // The place in the backlog stays behind and is passed over when its turn comes.
            (Some(Lane::Backlog) | None, Lane::Live) => self.live.push_back(key),
            (None, Lane::Backlog) => self.backlog.push_back(key),
        }
        if slot.queued.replace(lane).is_none() {
            self.queued += 1;
        }
    }

    fn add_at(&mut self, key: K, at: Instant) {
        let number = self.next_number;
        self.next_number += 1;
        let slot = self.slots.entry(key.clone()).or_default();
        let sooner = slot.due.is_some_and(|(due, _)| due <= at);
        if slot.queued.is_some() || slot.again.is_some() || sooner {
            return;
        }
        if let Some(before) = slot.due.replace((at, number)) {
            self.delayed.remove(&before);
        }
        self.delayed.insert((at, number), key);
    }

    fn take(&mut self, now: Instant) -> Option<K> {
        while let Some(due) = self.delayed.first_entry().filter(|first| first.key().0 <= now) {
            let key = due.remove();
            if let Some(slot) = self.slots.get_mut(&key) {
                slot.due = None;
            }
            self.add(key, Lane::Live);
        }
        for lane in [Lane::Live, Lane::Backlog] {
            let line = match lane {
                Lane::Live => &mut self.live,
                Lane::Backlog => &mut self.backlog,
            };
            while let Some(key) = line.pop_front() {
                if let Some(slot) = self.slots.get_mut(&key).filter(|slot| slot.queued == Some(lane)) {
                    slot.queued = None;
                    slot.running = true;
                    self.queued -= 1;
                    self.running += 1;
                    return Some(key);
                }
            }
        }
        None
    }

    fn finish(&mut self, key: &K, outcome: Outcome) {
        let Entry::Occupied(mut entry) = self.slots.entry(key.clone()) else {
            return;
        };
        let slot = entry.get_mut();
        slot.running = false;
        self.running -= 1;
        let failures = slot.failures;
        slot.failures = match outcome {
            Outcome::Retry(_) => failures.saturating_add(1),
            Outcome::Forget | Outcome::Later(_) => 0,
        };
        if let Some(lane) = slot.again.take() {
            self.add(key.clone(), lane);
            return;
        }
        match outcome {
            Outcome::Forget if slot.due.is_none() => {
                entry.remove();
            }
            Outcome::Forget => {}
            Outcome::Later(delay) => self.add_at(key.clone(), Instant::now() + delay),
            Outcome::Retry(backoff) => self.add_at(key.clone(), Instant::now() + backoff.delay(failures)),
        }
    }
}

// === impl Work ===

impl<K: Eq + Hash + Clone> Work<K> {
    /// What to work on.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// How often this key has failed in a row.
    pub fn failures(&self) -> u32 {
        self.shared
            .state
            .lock()
            .slots
            .get(&self.key)
            .map_or(0, |slot| slot.failures)
    }

    /// Ends the work with a failure: the key comes again after a delay that grows with each.
    pub fn retry(mut self, backoff: Backoff) {
        self.outcome = Outcome::Retry(backoff);
    }

    /// Ends the work well, to be looked at again after a while.
    pub fn again_after(mut self, delay: Duration) {
        self.outcome = Outcome::Later(delay);
    }
}

impl<K: Eq + Hash + Clone> Drop for Work<K> {
    fn drop(&mut self) {
        self.shared.state.lock().finish(&self.key, self.outcome);
        self.shared.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn next(queue: &Queue<&'static str>) -> Work<&'static str> {
        tokio::time::timeout(Duration::from_hours(1), queue.next())
            .await
            .expect("a key within the hour")
            .expect("an open queue")
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_queued_once_and_live_passes_the_backlog() {
        let queue = Queue::new();
        queue.add("listed", Lane::Backlog);
        queue.add("changed", Lane::Backlog);
        queue.add("changed", Lane::Live);
        queue.add("changed", Lane::Live);
        assert_eq!(queue.len(), 2);
        assert_eq!(*next(&queue).await.key(), "changed");
        assert_eq!(*next(&queue).await.key(), "listed");
        assert!(queue.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_key_is_given_to_nobody_else_and_comes_again() {
        let queue = Queue::new();
        queue.add("a", Lane::Live);
        let work = next(&queue).await;
        queue.add("a", Lane::Live);
        queue.add("a", Lane::Live);
        queue.add("b", Lane::Backlog);
        assert_eq!(*next(&queue).await.key(), "b");
        assert!(!queue.is_quiet(), "a is being worked on");
        drop(work);
        assert_eq!(*next(&queue).await.key(), "a");
        assert!(queue.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_longer_each_time_and_a_change_ends_the_wait() {
        let queue = Queue::new();
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
        let start = Instant::now();
        queue.add("a", Lane::Live);
        next(&queue).await.retry(backoff);
        assert!(queue.is_quiet() && !queue.is_idle(), "a waits for its time");
        next(&queue).await.retry(backoff);
        let work = next(&queue).await;
        assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
        assert_eq!(work.failures(), 2);
        work.retry(backoff);
        let before = Instant::now();
        queue.add("a", Lane::Live);
        drop(next(&queue).await);
        assert_eq!(before.elapsed(), Duration::ZERO);
        queue.add("a", Lane::Live);
        assert_eq!(next(&queue).await.failures(), 0, "a success forgets the failures");
    }

    #[tokio::test(start_paused = true)]
    async fn the_sooner_of_two_delays_holds() {
        let queue = Queue::new();
        let start = Instant::now();
        queue.add_after("a", Duration::from_secs(10));
        queue.add_after("a", Duration::from_secs(5));
        queue.add_after("a", Duration::from_secs(20));
        drop(next(&queue).await);
        assert_eq!(start.elapsed().as_secs(), 5);
        assert!(queue.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn counts_are_those_of_the_keys_whatever_happens_to_them() {
        let counts = |queue: &Queue<&'static str>| (queue.len(), queue.is_quiet(), queue.is_idle());
        let queue = Queue::new();
        assert_eq!(counts(&queue), (0, true, true));
        queue.add("a", Lane::Backlog);
        queue.add("a", Lane::Live);
        queue.add("b", Lane::Backlog);
        queue.add_after("c", Duration::from_secs(1));
        assert_eq!(counts(&queue), (2, false, false));
        let (a, b) = (next(&queue).await, next(&queue).await);
        queue.add("a", Lane::Live);
        assert_eq!(counts(&queue), (0, false, false), "a runs, and comes again after that");
        drop(a);
        assert_eq!(counts(&queue), (1, false, false));
        drop(next(&queue).await);
        b.again_after(Duration::from_secs(2));
        assert_eq!(counts(&queue), (0, true, false), "b and c wait for their time");
        queue.add("b", Lane::Live);
        assert_eq!(counts(&queue), (1, false, false));
        drop(next(&queue).await);
        next(&queue)
            .await
            .retry(Backoff::new(Duration::from_secs(1), Duration::from_secs(1)));
        assert_eq!(counts(&queue), (0, true, false));
        drop(next(&queue).await);
        assert_eq!(counts(&queue), (0, true, true));
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_every_worker() {
        let queue = Queue::<u8>::new();
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.next().await.is_none() })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.close();
        for worker in workers {
            assert!(worker.await.unwrap());
        }
    }
}
