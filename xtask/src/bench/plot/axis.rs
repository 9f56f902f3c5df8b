//! Where a value lies on an axis, and which values are written beside it.

/// More than so many times the least value is easier to read on a logarithmic axis.
const WIDE: f64 = 20.0;
/// What a step begins with.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];
/// Decades of which more than their beginnings are written.
const DETAILED: f64 = 4.0;

/// An axis from one round value to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    scale: Scale,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    Linear { step: f64 },
    Log,
}

impl Axis {
    /// From 0 to where all of these fit, with at most this many steps.
    pub(super) fn linear(values: impl Iterator<Item = f64>, steps: f64) -> Self {
        let most = values.fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let step = round_up(most / steps);
        Self {
            low: 0.0,
            high: (most / step).ceil() * step,
            scale: Scale::Linear { step },
        }
    }

    /// Linear or logarithmic, as these are easier to read.
    pub(super) fn fitting(values: &[f64], steps: f64) -> Self {
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let (least, most) = positive.fold((f64::MAX, 0.0), |(least, most), value| {
            (value.min(least), value.max(most))
        });
        if most <= least * WIDE {
            return Self::linear(values.iter().copied(), steps);
        }
        Self {
            low: round_down(least),
            high: round_up(most),
            scale: Scale::Log,
        }
    }

    /// Where a value lies: 0 is the beginning of the axis, 1 its end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = match self.scale {
            Scale::Linear { .. } => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        place.clamp(0.0, 1.0)
    }

    /// The values that are written beside it.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        let mut tick = self.low;
        // What is added up may end a little above.
        while tick <= self.high * 1.000_001 {
            ticks.push(tick);
            tick = match self.scale {
                Scale::Linear { step } => tick + step,
                Scale::Log if (self.high / self.low).log10() > DETAILED => decade(tick * 1.000_001) * 10.0,
                Scale::Log => round_up(tick * 1.01),
            };
        }
        ticks
    }

    /// How an axis is to be named, for one who wonders about the distances on it.
    pub(super) fn is_logarithmic(&self) -> bool {
        self.scale == Scale::Log
    }
}

/// A value of a tick, without more digits than it has.
pub(super) fn label(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The power of ten below.
fn decade(value: f64) -> f64 {
    10_f64.powf(value.log10().floor())
}

/// The next of 1, 2, 5, 10, ... that is no less.
fn round_up(value: f64) -> f64 {
    let decade = decade(value);
    let step = STEPS
        .iter()
        .map(|step| step * decade)
        .find(|step| *step >= value * 0.999_999);
    step.unwrap_or(decade * 10.0)
}

/// The next of 1, 2, 5, 10, ... that is no more.
fn round_down(value: f64) -> f64 {
    let decade = decade(value * 1.000_001);
    let step = STEPS
        .iter()
        .rev()
        .map(|step| step * decade)
        .find(|step| *step <= value * 1.000_001);
    step.unwrap_or(decade)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(axis: Axis, expect: &[&str]) {
        let ticks: Vec<_> = axis.ticks().into_iter().map(label).collect();
        assert_eq!(ticks, expect);
    }

    #[test]
    fn ticks_are_round_and_hold_all_values() {
        check(Axis::linear([7.3, 2.0].into_iter(), 5.0), &["0", "2", "4", "6", "8"]);
        check(
            Axis::linear([30.0].into_iter(), 6.0),
            &["0", "5", "10", "15", "20", "25", "30"],
        );
        check(
            Axis::linear([0.05].into_iter(), 5.0),
            &["0", "0.01", "0.02", "0.03", "0.04", "0.05"],
        );
        check(Axis::fitting(&[3.0, 40.0], 4.0), &["0", "10", "20", "30", "40"]);
        check(Axis::fitting(&[3.0, 70.0], 5.0), &["2", "5", "10", "20", "50", "100"]);
        check(
            Axis::fitting(&[0.9, 100.0], 5.0),
            &["0.5", "1", "2", "5", "10", "20", "50", "100"],
        );
        check(
            Axis::fitting(&[0.3, 9000.0], 5.0),
            &["0.2", "1", "10", "100", "1000", "10000"],
        );
    }

    #[test]
    fn nothing_at_all_makes_an_axis_too() {
        assert!(!Axis::fitting(&[], 5.0).ticks().is_empty());
        assert!(!Axis::fitting(&[0.0], 5.0).is_logarithmic());
        assert!(Axis::linear(std::iter::empty(), 5.0).place(0.0).abs() < 1e-9);
    }

    #[test]
    fn a_value_lies_between_the_ends() {
        let near = |place: f64, expect: f64| assert!((place - expect).abs() < 1e-9, "{place} is not {expect}");
        let linear = Axis::linear([8.0].into_iter(), 4.0);
        near(linear.place(0.0), 0.0);
        near(linear.place(4.0), 0.5);
        near(linear.place(9.0), 1.0);
        let log = Axis::fitting(&[1.0, 100.0], 5.0);
        near(log.place(1.0), 0.0);
        near(log.place(10.0), 0.5);
        near(log.place(100.0), 1.0);
        near(log.place(0.0), 0.0);
    }
}
