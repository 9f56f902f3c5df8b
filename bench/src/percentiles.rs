//! Percentiles of raw samples.

use std::time::Duration;

use serde::Serialize;

/// In microseconds, each one of the samples (nearest rank).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Percentiles {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub max: u64,
}

impl Percentiles {
    /// Of these; `None` of none.
    pub(crate) fn of(samples: impl IntoIterator<Item = Duration>) -> Option<Self> {
        let mut sorted: Vec<_> = samples.into_iter().map(micros).collect();
        sorted.sort_unstable();
        let max = *sorted.last()?;
        let at = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
        Some(Self {
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max,
        })
    }
}

/// A time in whole microseconds.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(samples: impl IntoIterator<Item = u64>, expect: Option<[u64; 4]>) {
        let got = Percentiles::of(samples.into_iter().map(Duration::from_micros));
        assert_eq!(got.map(|it| [it.p50, it.p90, it.p99, it.max]), expect);
    }

    #[test]
    fn each_is_the_sample_of_the_nearest_rank() {
        check([], None);
        check([7], Some([7, 7, 7, 7]));
        check([3, 1, 2], Some([2, 3, 3, 3]));
        check((1..=100).rev(), Some([50, 90, 99, 100]));
        check(1..=101, Some([51, 91, 100, 101]));
        check(1..=1000, Some([500, 900, 990, 1000]));
    }
}
