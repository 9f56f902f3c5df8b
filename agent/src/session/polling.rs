//! How often a provider is polled.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::watch;

/// The longest pause after a failure.
const PAUSE_MAX: Duration = Duration::from_mins(10);

/// Polling interval of a provider, and the backoff after failures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PollPolicy {
    /// Interval while the provider answers.
    pub interval: Duration,
    /// Pause after the first failure. It is short even if the interval is long, so that the end of an outage is noticed.
    pub retry: Duration,
    /// Factor by which each pause after a failure exceeds the one before; at least 1.
    pub multiplier: f64,
}

/// The polling intervals that bindings and bundles request of one session. The shortest counts.
#[derive(Debug)]
pub(crate) struct PollIntervals {
    requested: Mutex<(u64, BTreeMap<u64, Duration>)>,
    shortest: watch::Sender<Duration>,
    default: Duration,
}

/// A requested polling interval. Dropping it withdraws the request.
#[derive(Debug)]
pub struct PollRequest {
    intervals: Arc<PollIntervals>,
    id: u64,
}

impl PollPolicy {
    /// A policy with this interval. The pause after the first failure is never longer than `default`.
    pub fn new(interval: Duration, multiplier: f64, default: Duration) -> Self {
        Self {
            interval,
            retry: interval.min(default),
            multiplier,
        }
    }

    /// The pause after a failure. The first failure is number 0.
    pub fn after_failure(&self, attempt: u32) -> Duration {
        let growth = self.multiplier.max(1.0).powi(attempt.min(64).cast_signed());
        let pause = Duration::try_from_secs_f64(self.retry.as_secs_f64() * growth).unwrap_or(PAUSE_MAX);
        pause.min(PAUSE_MAX)
    }
}

impl Eq for PollPolicy {}

impl Hash for PollPolicy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.interval.hash(state);
        self.retry.hash(state);
        self.multiplier.to_bits().hash(state);
    }
}

impl PollIntervals {
    /// Starts without any request, so that the default counts.
    pub(crate) fn new(default: Duration) -> Self {
        Self {
            requested: Mutex::default(),
            shortest: watch::Sender::new(default),
            default,
        }
    }

    /// The shortest requested interval, or else the default, to read or to wait for.
    pub(crate) fn shortest(&self) -> watch::Receiver<Duration> {
        self.shortest.subscribe()
    }

    /// Requests an interval until the request is dropped.
    pub(crate) fn request(self: &Arc<Self>, interval: Duration) -> PollRequest {
        let mut requested = self.requested.lock();
        let (next, requests) = &mut *requested;
        let id = *next;
        *next += 1;
        requests.insert(id, interval);
        self.update(requests);
        PollRequest {
            intervals: Arc::clone(self),
            id,
        }
    }

    /// Publishes the shortest interval.
    fn update(&self, requests: &BTreeMap<u64, Duration>) {
        let shortest = requests.values().min().copied().unwrap_or(self.default);
        self.shortest
            .send_if_modified(|known| std::mem::replace(known, shortest) != shortest);
    }
}

impl Drop for PollRequest {
    fn drop(&mut self) {
        let mut requested = self.intervals.requested.lock();
        requested.1.remove(&self.id);
        self.intervals.update(&requested.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_requested_interval_counts() {
        let intervals = Arc::new(PollIntervals::new(Duration::from_secs(15)));
        let shortest = intervals.shortest();
        let now = || shortest.borrow().as_secs();
        assert_eq!(now(), 15);
        let long = intervals.request(Duration::from_mins(1));
        assert_eq!(now(), 60, "a request replaces the default");
        let short = intervals.request(Duration::from_secs(5));
        assert_eq!(now(), 5);
        drop(short);
        assert_eq!(now(), 60);
        drop(long);
        assert_eq!(now(), 15);
    }

    #[track_caller]
    fn check(interval: u64, multiplier: f64, attempt: u32, expect: u64) {
        let interval = Duration::from_secs(interval);
        let pace = PollPolicy::new(interval, multiplier, Duration::from_secs(15));
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
        let seldom = PollPolicy::new(Duration::from_hours(24), 1.0, Duration::from_hours(1));
        assert_eq!(seldom.after_failure(0), Duration::from_mins(10));
    }
}
