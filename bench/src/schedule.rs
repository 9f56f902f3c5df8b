//! When the changes of an open-loop load are made.

use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

/// Times of `count` Poisson arrivals with `rate` per second, as delays from the begin. The same seed gives the same
/// times.
pub(crate) fn poisson(seed: u64, rate: f64, count: usize) -> Vec<Duration> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut at = 0.0;
    let mut next = || {
        // Of (0, 1], whose logarithm is finite.
        let uniform = 1.0 - random.random::<f64>();
        at -= uniform.ln() / rate;
        Duration::from_secs_f64(at)
    };
    (0..count).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_in_order_and_as_many_as_wanted_in_a_second() {
        for (seed, rate) in [(1, 20.0), (2, 50.0), (3, 1000.0)] {
            let times = poisson(seed, rate, 10_000);
            assert!(times.is_sorted());
            let mean = times.last().unwrap().as_secs_f64() / 10_000.0;
            assert!((mean * rate - 1.0).abs() < 0.05, "{mean} at {rate}");
        }
    }

    #[test]
    fn gaps_are_those_of_a_poisson_process() {
        let times = poisson(4, 10.0, 10_000);
        let gaps: Vec<_> = times
            .windows(2)
            .map(|pair| pair[1].as_secs_f64() - pair[0].as_secs_f64())
            .collect();
        // Of exponential gaps, a share of 1/e is longer than the mean.
        let long = gaps.iter().filter(|gap| **gap > 0.1).count();
        assert!((3500..3850).contains(&long), "{long}");
    }

    #[test]
    fn a_seed_says_it_all() {
        assert_eq!(poisson(7, 20.0, 50), poisson(7, 20.0, 50));
        assert_ne!(poisson(7, 20.0, 50), poisson(8, 20.0, 50));
    }
}
