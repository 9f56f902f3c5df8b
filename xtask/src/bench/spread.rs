//! Several measurements of one thing.

use serde::Serialize;

/// The middle and the ends of what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// The median of an even number is the mean of the middle two.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or_default();
        let last = values.len().saturating_sub(1);
        Self {
            median: f64::midpoint(at(last / 2), at(last.div_ceil(2))),
            min: at(0),
            max: at(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: &[f64], median: f64, min: f64, max: f64) {
        assert_eq!(Spread::of(values.iter().copied()), Spread { median, min, max });
    }

    #[test]
    fn the_median_is_in_the_middle() {
        check(&[], 0.0, 0.0, 0.0);
        check(&[3.0], 3.0, 3.0, 3.0);
        check(&[9.0, 2.0, 3.0], 3.0, 2.0, 9.0);
        check(&[1.0, 4.0, 2.0, 3.0], 2.5, 1.0, 4.0);
    }
}
