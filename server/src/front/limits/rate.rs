//! Calls a second, by key.

use std::{
    fmt,
    hash::Hash,
    num::NonZeroU32,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use bindery_proto::v1alpha2::ErrorReason;
use governor::{
    DefaultKeyedRateLimiter, Quota,
    clock::{Clock as _, DefaultClock},
};

use crate::front::error::{Failure, Outcome};

/// Keys that have been quiet are forgotten once in so many calls.
const SWEEP_EVERY: u32 = 4_096;

/// A limiter per key.
pub struct Rate<K: Hash + Eq + Clone> {
    limiter: DefaultKeyedRateLimiter<K>,
    clock: DefaultClock,
    calls: AtomicU32,
}

impl<K: Hash + Eq + Clone> Rate<K> {
    /// Allows so many calls a second, and so many at once after a pause.
    pub fn new((per_second, burst): (u32, u32)) -> Self {
        let or_one = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_second(or_one(per_second)).allow_burst(or_one(burst));
        Self {
            limiter: DefaultKeyedRateLimiter::keyed(quota),
            clock: DefaultClock::default(),
            calls: AtomicU32::new(0),
        }
    }

    /// Counts one call, or refuses it and says when the next is welcome.
    pub fn check(&self, key: &K) -> Outcome<()> {
        if self.calls.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1 {
            self.limiter.retain_recent();
            self.limiter.shrink_to_fit();
        }
        self.limiter.check_key(key).map_err(|refused| {
            // A client that comes back the very instant would only meet others who do.
            let delay = refused.wait_time_from(self.clock.now()).max(Duration::from_millis(50));
            Failure::new(ErrorReason::RateLimited, "too many calls; slow down").retry_after(delay)
        })
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
