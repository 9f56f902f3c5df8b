//! Where rules are used, which decides what stands for the values in them.

use std::collections::BTreeMap;

/// Where rules are used.
#[derive(Clone, Debug)]
pub enum Target {
    /// A file for Prometheus itself, with the default values.
    Plain,
    /// A template of a chart.
    Chart,
    /// A test, in which time runs faster.
    Scaled(Scale),
}

/// How much faster time runs.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Every duration is divided by this.
    pub divisor: u64,
    /// The shortest duration of a window, in seconds; a rate needs several samples in it.
    pub shortest: u64,
    /// Values that a test chooses, by their path, such as `alerts.orphans.threshold`.
    pub chosen: BTreeMap<&'static str, String>,
}

impl Target {
    /// The text of a value at a path of the chart's `monitoring.rules`.
    pub(super) fn value(&self, path: &str, default: &str) -> String {
        match self {
            Self::Plain => default.to_owned(),
            Self::Chart => format!("{{{{ $values.{path} }}}}"),
            Self::Scaled(scale) => scale.chosen.get(path).cloned().unwrap_or_else(|| default.to_owned()),
        }
    }

    /// The text of a window.
    pub(super) fn window(&self, path: &str, default: &str) -> String {
        match self {
            Self::Scaled(scale) if !scale.chosen.contains_key(path) => scale.seconds(default, scale.shortest),
            _ => self.value(path, default),
        }
    }

    /// The text of the time for which an expression must hold.
    pub(super) fn wait(&self, path: &str, default: &str) -> String {
        match self {
            Self::Scaled(scale) if !scale.chosen.contains_key(path) => scale.seconds(default, 0),
            _ => self.value(path, default),
        }
    }

    /// The label `job` of a program's samples.
    pub(super) fn job(&self, default: &str) -> String {
        match self {
            Self::Chart => "{{ $.Values.monitoring.job }}".to_owned(),
            Self::Plain | Self::Scaled(_) => default.to_owned(),
        }
    }

    /// A text for Prometheus' own templates, which have the same brackets as those of Helm.
    pub(super) fn text(&self, text: &str) -> String {
        match self {
            Self::Chart => {
                let marked = text.replace("{{", "\u{1}").replace("}}", "\u{2}");
                marked.replace('\u{1}', "{{ \"{{\" }}").replace('\u{2}', "{{ \"}}\" }}")
            }
            Self::Plain | Self::Scaled(_) => text.to_owned(),
        }
    }
}

impl Scale {
    fn seconds(&self, duration: &str, shortest: u64) -> String {
        let seconds = (parse(duration) / self.divisor).max(shortest);
        format!("{seconds}s")
    }
}

/// The seconds of a duration of one number and one unit, as in `15m`.
fn parse(duration: &str) -> u64 {
    let digits = duration.trim_end_matches(char::is_alphabetic);
    let unit = match duration.strip_prefix(digits) {
        Some("d") => 86_400,
        Some("h") => 3_600,
        Some("m") => 60,
        _ => 1,
    };
    digits.parse::<u64>().unwrap_or_default() * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_divided_and_stay_long_enough() {
        let scale = Target::Scaled(Scale {
            divisor: 300,
            shortest: 4,
            chosen: [("alerts.a.window", "7s".to_owned())].into(),
        });
        for (path, default, window, wait) in [
            ("alerts.b.window", "1h", "12s", "12s"),
            ("alerts.b.window", "5m", "4s", "1s"),
            ("alerts.b.window", "3d", "864s", "864s"),
            ("alerts.b.window", "0s", "4s", "0s"),
            ("alerts.a.window", "1h", "7s", "7s"),
        ] {
            assert_eq!(scale.window(path, default), window);
            assert_eq!(scale.wait(path, default), wait);
        }
    }

    #[test]
    fn helm_leaves_what_is_for_prometheus() {
        assert_eq!(
            Target::Chart.text("in {{ $value }} s"),
            "in {{ \"{{\" }} $value {{ \"}}\" }} s"
        );
        assert_eq!(Target::Plain.text("{{ $value }}"), "{{ $value }}");
        assert_eq!(Target::Chart.value("alerts.a.for", "1h"), "{{ $values.alerts.a.for }}");
    }
}
