//! How often a provider is asked, as a bundle says it.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::watch;

/// No pause after a failure is longer.
const PAUSE_MAX: Duration = Duration::from_mins(10);

/// How often a provider is asked while it answers, and how much longer each pause after a failure is than the one before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// While it answers.
    pub interval: Duration,
    /// After the first failure: however seldom it is asked while all is well, an outage is to end soon.
    pub retry: Duration,
    /// At least 1.
    pub multiplier: f64,
}

/// The intervals that several want of one session, of which the shortest counts.
#[derive(Debug)]
pub(crate) struct Intervals {
    wanted: Mutex<(u64, BTreeMap<u64, Duration>)>,
    shortest: watch::Sender<Duration>,
    otherwise: Duration,
}

/// That an interval is wanted. Dropping it ends that.
#[derive(Debug)]
pub struct Wish {
    intervals: Arc<Intervals>,
    id: u64,
}

// === impl Pace ===

impl Pace {
    /// At this interval, and after a failure no later than the konnector asks whom nobody says anything about.
    pub fn new(interval: Duration, multiplier: f64, otherwise: Duration) -> Self {
        Self {
            interval,
            retry: interval.min(otherwise),
            multiplier,
        }
    }

    /// The pause after a failure, counted from 0.
    pub fn after_failure(&self, attempt: u32) -> Duration {
        let growth = self.multiplier.max(1.0).powi(attempt.min(64).cast_signed());
        let pause = Duration::try_from_secs_f64(self.retry.as_secs_f64() * growth).unwrap_or(PAUSE_MAX);
        pause.min(PAUSE_MAX)
    }
}

impl Eq for Pace {}

impl Hash for Pace {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.interval.hash(state);
        self.retry.hash(state);
        self.multiplier.to_bits().hash(state);
    }
}

// === impl Intervals ===

impl Intervals {
    /// Nobody wants anything, so that this one counts.
    pub(crate) fn new(otherwise: Duration) -> Self {
        Self {
            wanted: Mutex::default(),
            shortest: watch::Sender::new(otherwise),
            otherwise,
        }
    }

    /// The one that counts, to read or to wait for.
    pub(crate) fn shortest(&self) -> watch::Receiver<Duration> {
        self.shortest.subscribe()
    }

    /// Somebody wants this one.
    pub(crate) fn wish(self: &Arc<Self>, interval: Duration) -> Wish {
        let mut wanted = self.wanted.lock();
        let (next, wishes) = &mut *wanted;
        let id = *next;
        *next += 1;
        wishes.insert(id, interval);
        self.settle(wishes);
        Wish {
            intervals: Arc::clone(self),
            id,
        }
    }

    fn settle(&self, wishes: &BTreeMap<u64, Duration>) {
        let shortest = wishes.values().min().copied().unwrap_or(self.otherwise);
        self.shortest
            .send_if_modified(|known| std::mem::replace(known, shortest) != shortest);
    }
}

// === impl Wish ===

impl Drop for Wish {
    fn drop(&mut self) {
        let mut wanted = self.intervals.wanted.lock();
        wanted.1.remove(&self.id);
        self.intervals.settle(&wanted.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_interval_that_is_wanted_counts() {
        let intervals = Arc::new(Intervals::new(Duration::from_secs(15)));
        let shortest = intervals.shortest();
        let now = || shortest.borrow().as_secs();
        assert_eq!(now(), 15);
        let long = intervals.wish(Duration::from_mins(1));
        assert_eq!(now(), 60, "what is wanted counts, and not the default");
        let short = intervals.wish(Duration::from_secs(5));
        assert_eq!(now(), 5);
        drop(short);
        assert_eq!(now(), 60);
        drop(long);
        assert_eq!(now(), 15);
    }

    #[track_caller]
    fn check(interval: u64, multiplier: f64, attempt: u32, expect: u64) {
        let interval = Duration::from_secs(interval);
        let pace = Pace::new(interval, multiplier, Duration::from_secs(15));
        assert_eq!(pace.interval, interval, "while it answers");
        assert_eq!(pace.after_failure(attempt), Duration::from_secs(expect));
    }

    #[test]
    fn pauses_grow_up_to_a_limit_and_never_end() {
        check(15, 2.0, 0, 15);
        check(15, 2.0, 1, 30);
        check(15, 2.0, 5, 480);
        check(15, 2.0, 6, 600);
        check(15, 1.0, 1000, 15);
        check(15, 10.0, u32::MAX, 600);
        check(3600, 2.0, 0, 15);
        check(3600, 2.0, 7, 600);
        check(5, 2.0, 1, 10);
        check(1, 0.0, 3, 1);
        let seldom = Pace::new(Duration::from_hours(24), 1.0, Duration::from_hours(1));
        assert_eq!(seldom.after_failure(0), Duration::from_mins(10));
    }
}
