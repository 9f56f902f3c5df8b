//! Calls a second by key, such as the address of a peer or the name of a principal.

use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use bindery_proto::v1alpha2::ErrorReason;
use governor::{
    Quota, RateLimiter,
    clock::{Clock as _, MonotonicClock},
    middleware::NoOpMiddleware,
    state::keyed::DefaultKeyedStateStore,
};

use parking_lot::RwLock;

use crate::front::{Failure, Outcome};

/// After this number of calls, keys without recent calls are forgotten.
const SWEEP_EVERY: u32 = 4_096;

/// Limits the calls a second of each key.
pub(crate) struct Rate<K: Hash + Eq + Clone> {
    limiter: RateLimiter<K, DefaultKeyedStateStore<K>, MonotonicClock, NoOpMiddleware<Instant>>,
    clock: MonotonicClock,
    calls: AtomicU32,
}

impl<K: Hash + Eq + Clone> Rate<K> {
    /// Allows `per_second` calls a second for each key, and a burst of `burst` calls after a pause.
    pub(crate) fn new((per_second, burst): (u32, u32)) -> Self {
        let or_one = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_second(or_one(per_second)).allow_burst(or_one(burst));
        Self {
            limiter: RateLimiter::dashmap_with_clock(quota, MonotonicClock),
            clock: MonotonicClock,
            calls: AtomicU32::new(0),
        }
    }

    /// Counts one call of `key`, or refuses it with the time after which the client may retry.
    pub(crate) fn check(&self, key: &K) -> Outcome<()> {
        if self.calls.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1 {
            self.limiter.retain_recent();
            self.limiter.shrink_to_fit();
        }
        self.limiter.check_key(key).map_err(|refused| {
            // Clients that retry in the same instant would only refuse each other.
            let delay = refused.wait_time_from(self.clock.now()).max(Duration::from_millis(50));
            Failure::new(
                ErrorReason::RateLimited,
                "too many calls a second; retry after the delay of the RetryInfo",
            )
            .retry_after(delay)
        })
    }
}

/// Limits the calls a second of callers that may have different limits.
#[derive(Debug)]
pub(crate) struct CallerRates<K: Hash + Eq + Clone> {
    /// By the limit. There are as many as the admin has given contracts different ones.
    by_limit: RwLock<HashMap<u32, Arc<Rate<K>>>>,
}

impl<K: Hash + Eq + Clone> CallerRates<K> {
    /// Knows no caller yet.
    pub(crate) fn new() -> Self {
        Self {
            by_limit: RwLock::default(),
        }
    }

    /// Counts one call of a caller that may make `per_second` calls a second and twice as many after a pause, or refuses it with the
    /// time after which the client may retry.
    pub(crate) fn check(&self, key: &K, per_second: u32) -> Outcome<()> {
        let known = self.by_limit.read().get(&per_second).map(Arc::clone);
        let rate = known.unwrap_or_else(|| {
            let mut by_limit = self.by_limit.write();
            let rate = by_limit
                .entry(per_second)
                .or_insert_with(|| Arc::new(Rate::new((per_second, per_second.saturating_mul(2)))));
            Arc::clone(rate)
        });
        rate.check(key)
    }
}

impl<K: Hash + Eq + Clone> fmt::Debug for Rate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rate")
            .field("keys", &self.limiter.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tonic::Status;
    use tonic_types::StatusExt as _;

    use super::*;

    #[test]
    fn a_burst_is_cut_for_one_key_and_not_for_another() {
        let rate = Rate::new((1, 3));
        let allowed = (0..10).filter(|_| rate.check(&"a").is_ok()).count();
        assert_eq!(allowed, 3);
        let status = Status::from(rate.check(&"a").expect_err("a refusal"));
        let delay = status
            .get_error_details()
            .retry_info()
            .and_then(|info| info.retry_delay)
            .expect("a delay");
        assert!(
            delay >= Duration::from_millis(50) && delay <= Duration::from_secs(1),
            "{delay:?}"
        );
        assert!(rate.check(&"b").is_ok());
    }

    #[test]
    fn each_caller_has_the_limit_that_is_its_own() {
        let rates = CallerRates::new();
        let allowed = |key: &'static str, limit| (0..100).filter(|_| rates.check(&key, limit).is_ok()).count();
        assert_eq!((allowed("a", 2), allowed("b", 5)), (4, 10));
    }

    #[test]
    fn quiet_keys_are_forgotten() {
        let rate = Rate::new((1_000_000, 1));
        for key in 0..SWEEP_EVERY * 2 {
            let _ = rate.check(&key);
        }
        assert!(
            rate.limiter.len() <= SWEEP_EVERY as usize + 64,
            "{}",
            rate.limiter.len()
        );
    }
}
