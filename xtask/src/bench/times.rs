//! How long each of many things took.

/// Sorted, in milliseconds.
#[derive(Debug)]
pub(super) struct Times(Vec<f64>);

impl Times {
    pub(super) fn of(milliseconds: impl IntoIterator<Item = f64>) -> Self {
        let mut times: Vec<_> = milliseconds.into_iter().collect();
        times.sort_by(f64::total_cmp);
        Self(times)
    }

    /// The time that this percentage of the samples did not exceed; 0 without samples.
    pub(super) fn percentile(&self, percent: usize) -> f64 {
        let index = (self.0.len() * percent).div_ceil(100).saturating_sub(1);
        self.0.get(index).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_of_a_hundred_are_not_above() {
        let check = |count: u32, expect: [f64; 4]| {
            let times = Times::of((1..=count).rev().map(f64::from));
            let found = [50, 90, 99, 100].map(|percent| times.percentile(percent));
            assert!(
                found
                    .iter()
                    .zip(expect)
                    .all(|(found, expect)| (found - expect).abs() < 1e-9),
                "{found:?}"
            );
        };
        check(0, [0.0; 4]);
        check(1, [1.0; 4]);
        check(10, [5.0, 9.0, 10.0, 10.0]);
        check(200, [100.0, 180.0, 198.0, 200.0]);
    }
}
