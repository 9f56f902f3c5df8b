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

/// An empty queue keeps room for so many keys.
const ROOM: usize = 1024;

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
    live: Line<K>,
    backlog: Line<K>,
    /// How many slots run.
    running: usize,
    /// What waits, by when; the number tells apart what falls on the same instant.
    delayed: BTreeMap<(Instant, u64), K>,
    next_number: u64,
    closed: bool,
}

/// The queued keys of one lane.
#[derive(Debug)]
struct Line<K> {
    /// In their order, and among them some that have left for the other lane.
    keys: VecDeque<K>,
    /// How many have not.
    len: usize,
}

#[derive(Debug, Default)]
struct Slot {
    /// The lane, and since when: queued in it, or to be when the work ends that is under way.
    wanted: Option<(Lane, Instant)>,
    running: bool,
    due: Option<(Instant, u64)>,
    failures: u32,
}

/// A key handed to a worker. Nobody else gets the key until this is dropped.
#[derive(Debug)]
pub struct Work<K: Eq + Hash + Clone> {
    key: K,
    waited: Duration,
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
            live: Line::default(),
            backlog: Line::default(),
            running: 0,
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
        self.shared.state.lock().add(key, lane, Instant::now());
        self.shared.wake.notify_one();
    }

    /// Queues a key after a delay, unless it is wanted sooner already.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.shared.state.lock().add_at(key, Instant::now() + delay);
        self.shared.wake.notify_one();
    }

    /// Keys that wait to be worked on, those with a delay not counted.
    pub fn len(&self) -> usize {
        self.shared.state.lock().queued()
    }

    /// True when no key is queued, delayed or being worked on.
    pub fn is_idle(&self) -> bool {
        self.shared.state.lock().slots.is_empty()
    }

    /// True when no key waits to be worked on or is being worked on; keys with a delay are not counted.
    pub fn is_quiet(&self) -> bool {
        let state = self.shared.state.lock();
        state.queued() == 0 && state.running == 0
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
        while self.ready(Lane::Backlog).await.is_some() {
            let work = self.try_next();
            if work.is_some() {
                return work;
            }
        }
        None
    }

    /// The next key to work on, if one is queued.
    pub fn try_next(&self) -> Option<Work<K>> {
        let mut state = self.shared.state.lock();
        let now = Instant::now();
        let (key, since) = state.take(now)?;
        let more = state.queued() > 0 || !state.delayed.is_empty();
        drop(state);
        if more {
            self.shared.wake.notify_one();
        }
        Some(Work {
            key,
            waited: now - since,
            shared: Arc::clone(&self.shared),
            outcome: Outcome::Forget,
        })
    }

    /// Waits until a key is queued that is at least as urgent, and answers how urgent the first is; `None` once the queue
    /// is closed.
    pub async fn ready(&self, least: Lane) -> Option<Lane> {
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
                state.queue_due(Instant::now());
                if let Some(lane) = state.first().filter(|lane| *lane <= least) {
                    return Some(lane);
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
    fn add(&mut self, key: K, lane: Lane, now: Instant) {
        let slot = self.slots.entry(key.clone()).or_default();
        if let Some(at) = slot.due.take() {
            self.delayed.remove(&at);
        }
        let before = slot.wanted;
        if before.is_some_and(|(before, _)| before <= lane) {
            return;
        }
        slot.wanted = Some((lane, before.map_or(now, |(_, since)| since)));
        if !slot.running {
            if let Some((before, _)) = before {
                self.line(before).leave();
            }
            self.line(lane).join(key);
        }
    }

    fn add_at(&mut self, key: K, at: Instant) {
        let number = self.next_number;
        self.next_number += 1;
        let slot = self.slots.entry(key.clone()).or_default();
        let sooner = slot.due.is_some_and(|(due, _)| due <= at);
        if slot.wanted.is_some() || sooner {
            return;
        }
        if let Some(before) = slot.due.replace((at, number)) {
            self.delayed.remove(&before);
        }
        self.delayed.insert((at, number), key);
    }

    fn queued(&self) -> usize {
        self.live.len + self.backlog.len
    }

    /// The lane of the first key.
    fn first(&self) -> Option<Lane> {
        let lanes = [(Lane::Live, &self.live), (Lane::Backlog, &self.backlog)];
        lanes.into_iter().find(|(_, line)| line.len > 0).map(|(lane, _)| lane)
    }

    fn line(&mut self, lane: Lane) -> &mut Line<K> {
        match lane {
            Lane::Live => &mut self.live,
            Lane::Backlog => &mut self.backlog,
        }
    }

    /// Queues what has waited long enough.
    fn queue_due(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry().filter(|first| first.key().0 <= now) {
            let ((due, _), key) = entry.remove_entry();
            if let Some(slot) = self.slots.get_mut(&key) {
                slot.due = None;
            }
            self.add(key, Lane::Live, due);
        }
    }

    /// The next key, and since when it has been queued.
    fn take(&mut self, now: Instant) -> Option<(K, Instant)> {
        self.queue_due(now);
        let lane = self.first()?;
        loop {
            let key = self.line(lane).keys.pop_front()?;
            let Some(slot) = self.slots.get_mut(&key).filter(|slot| !slot.running) else {
                continue;
            };
            if let Some((_, since)) = slot.wanted.take_if(|(wanted, _)| *wanted == lane) {
                slot.running = true;
                self.running += 1;
                self.line(lane).leave();
                return Some((key, since));
            }
        }
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
        if let Some((lane, _)) = slot.wanted {
            self.line(lane).join(key.clone());
            return;
        }
        match outcome {
            Outcome::Forget if slot.due.is_none() => {
                entry.remove();
                if self.slots.is_empty() {
                    self.shrink();
                }
            }
            Outcome::Forget => {}
            Outcome::Later(delay) => self.add_at(key.clone(), Instant::now() + delay),
            Outcome::Retry(backoff) => self.add_at(key.clone(), Instant::now() + backoff.delay(failures)),
        }
    }

    /// Gives back what a crowd of keys took up.
    fn shrink(&mut self) {
        self.slots.shrink_to(ROOM);
        self.live.keys.shrink_to(ROOM);
        self.backlog.keys.shrink_to(ROOM);
    }
}

// === impl Line ===

impl<K> Default for Line<K> {
    fn default() -> Self {
        Self {
            keys: VecDeque::new(),
            len: 0,
        }
    }
}

impl<K> Line<K> {
    fn join(&mut self, key: K) {
        self.keys.push_back(key);
        self.len += 1;
    }

    /// One of them leaves. Its place stays behind, to be passed over, unless it was the last.
    fn leave(&mut self) {
        self.len -= 1;
        if self.len == 0 {
            self.keys.clear();
        }
    }
}

// === impl Work ===

impl<K: Eq + Hash + Clone> Work<K> {
    /// What to work on.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// How long the key was queued, since the first change that this work is for.
    pub fn waited(&self) -> Duration {
        self.waited
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
    async fn a_wait_is_counted_from_the_first_change_and_a_delay_is_none() {
        let second = Duration::from_secs(1);
        let queue = Queue::new();
        queue.add("a", Lane::Backlog);
        tokio::time::advance(second).await;
        queue.add("a", Lane::Live);
        tokio::time::advance(second).await;
        let work = next(&queue).await;
        assert_eq!(work.waited(), 2 * second, "moved up, not queued anew");
        queue.add("a", Lane::Live);
        tokio::time::advance(second).await;
        queue.add("a", Lane::Live);
        drop(work);
        assert_eq!(next(&queue).await.waited(), second, "it came while it was worked on");
        queue.add_after("a", second);
        tokio::time::advance(3 * second).await;
        assert_eq!(next(&queue).await.waited(), 2 * second);
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
    async fn who_looks_before_it_takes_sees_what_is_urgent_enough() {
        let queue = Queue::new();
        queue.add("listed", Lane::Backlog);
        assert_eq!(queue.ready(Lane::Backlog).await, Some(Lane::Backlog));
        let waiting = queue.ready(Lane::Live);
        let change = async { queue.add("listed", Lane::Live) };
        assert_eq!(tokio::join!(waiting, change).0, Some(Lane::Live));
        assert_eq!(queue.len(), 1);
        let work = queue.try_next().expect("it is still there");
        assert!(queue.try_next().is_none());
        work.again_after(Duration::from_secs(1));
        assert_eq!(
            queue.ready(Lane::Live).await,
            Some(Lane::Live),
            "what was delayed is due"
        );
        drop(queue.try_next());
        assert!(queue.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn who_moves_up_and_down_leaves_nothing_behind() {
        let queue = Queue::new();
        for _ in 0..10 {
            for key in ["a", "b", "c"] {
                queue.add(key, Lane::Backlog);
            }
            for key in ["a", "b", "c"] {
                queue.add(key, Lane::Live);
                drop(next(&queue).await);
            }
        }
        assert!(queue.is_idle());
        let state = queue.shared.state.lock();
        assert!(state.live.keys.is_empty() && state.backlog.keys.is_empty());
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
