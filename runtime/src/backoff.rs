//! Delays between attempts: exponential, capped, with full jitter above a floor.

use std::time::Duration;

/// Settings of a backoff. Copy it; it holds no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first delay, and the least of all.
    pub first: Duration,
    /// No delay is longer.
    pub max: Duration,
}

impl Backoff {
    /// For a watch that broke: soon back, since every moment without it is blindness.
    pub const WATCH: Self = Self::new(Duration::from_millis(25), Duration::from_secs(5));
    /// For work on one object that failed.
    pub const OBJECT: Self = Self::new(Duration::from_millis(20), Duration::from_mins(1));

    /// Delays from `first` to `max`.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max }
    }

    /// The delay before attempt `attempt`, counted from 0: between half of the exponential step and the whole.
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
