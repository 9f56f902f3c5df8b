//! Delays between attempts: exponential, capped, with jitter.

use std::time::Duration;

/// Settings of a backoff. It holds no state: the caller counts the attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The shortest delay, and the base of the exponential steps.
    pub first: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl Backoff {
    /// The backoff of a watch that broke: short, because no changes are seen meanwhile.
    pub const WATCH: Self = Self::new(Duration::from_millis(25), Duration::from_secs(5));
    /// The backoff of an object whose processing failed.
    pub const OBJECT: Self = Self::new(Duration::from_millis(20), Duration::from_mins(1));

    /// Makes a backoff with delays from `first` to `max`.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max }
    }

    /// Returns the delay after failed attempt `attempt`, counted from 0: a random one between half of the exponential step and
    /// the whole, but at least `first`.
    pub fn delay(&self, attempt: u32) -> Duration {
        let step = self.first.saturating_mul(1_u32 << attempt.min(20)).min(self.max);
        step.mul_f64(0.5 + rand::random::<f64>() * 0.5).max(self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_stays_within_its_bounds() {
        let backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
        for attempt in 0..64 {
            let delay = backoff.delay(attempt);
            assert!(delay >= backoff.first && delay <= backoff.max, "{attempt}: {delay:?}");
        }
        assert!(backoff.delay(10) >= Duration::from_millis(500));
    }
}
