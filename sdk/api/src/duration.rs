//! Durations as Kubernetes writes them, such as `5m0s`.

use std::{borrow::Cow, fmt, time};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A duration as its text in the API, such as `5m0s`. The text may be anything, so it is parsed only by [`Duration::parse`].
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(transparent)]
pub struct Duration(String);

/// The longest duration that is accepted, ten years, so that its sum with the present time is a valid time.
pub const DURATION_MAX: time::Duration = time::Duration::from_hours(10 * 365 * 24);

/// The text is not a duration, or one that is negative or longer than ten years.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
#[error("{text:?} is not a duration of at most ten years; write one such as 90s or 1h30m")]
pub struct InvalidDuration {
    text: String,
}

impl Duration {
    /// Returns the text as it is in the API.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses the text.
    pub fn parse(&self) -> Result<time::Duration, InvalidDuration> {
        parse(&self.0).ok_or_else(|| InvalidDuration { text: self.0.clone() })
    }
}

impl From<String> for Duration {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<time::Duration> for Duration {
    fn from(duration: time::Duration) -> Self {
        Self(format(duration))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// Parses a sequence of numbers with units, as Go's `time.ParseDuration` does, but without a sign.
fn parse(text: &str) -> Option<time::Duration> {
    let (mut rest, mut nanos) = (text, 0_u128);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number);
        let (unit, after) = after.split_at(
            after
                .find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(after.len()),
        );
        nanos = nanos.checked_add(count(number, unit_nanos(unit)?)?)?;
        rest = after;
    }
    let duration = time::Duration::from_nanos(u64::try_from(nanos).ok()?);
    (duration <= DURATION_MAX).then_some(duration)
}

/// Returns the nanoseconds of a decimal number of units.
fn count(number: &str, unit: u64) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') {
        return None;
    }
    let digits = |text: &str| {
        if text.is_empty() {
            return Some(0);
        }
        text.parse::<u128>().ok()
    };
    // No unit has more than 13 digits of nanoseconds.
    let fraction = &fraction[..fraction.len().min(13)];
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let unit = u128::from(unit);
    digits(whole)?
        .checked_mul(unit)?
        .checked_add(digits(fraction)? * unit / scale)
}

fn unit_nanos(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// Formats a duration as Go does: hours and minutes only if there are any, seconds always.
fn format(duration: time::Duration) -> String {
    let (minutes, seconds) = (duration.as_secs() / 60, duration.as_secs() % 60);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    let fraction = match duration.subsec_nanos() {
        0 => String::new(),
        nanos => format!(".{}", format!("{nanos:09}").trim_end_matches('0')),
    };
    match (hours, minutes) {
        (0, 0) => format!("{seconds}{fraction}s"),
        (0, _) => format!("{minutes}m{seconds}{fraction}s"),
        _ => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(millis: u64, text: &str) {
        let duration = time::Duration::from_millis(millis);
        assert_eq!(Duration::from(duration).as_str(), text);
        assert_eq!(Duration(text.to_owned()).parse(), Ok(duration));
    }

    #[test]
    fn writes_what_go_writes_and_reads_it() {
        check(0, "0s");
        check(250, "0.25s");
        check(5_000, "5s");
        check(300_000, "5m0s");
        check(3_600_000, "1h0m0s");
        check(604_800_500, "168h0m0.5s");
    }

    #[test]
    fn reads_what_people_write() {
        let read = |text: &str| Duration(text.to_owned()).parse().ok();
        assert_eq!(read("1h30m"), Some(time::Duration::from_mins(90)));
        assert_eq!(read("90s"), Some(time::Duration::from_secs(90)));
        assert_eq!(read("1.5h"), Some(time::Duration::from_mins(90)));
        assert_eq!(read(".5s250ms"), Some(time::Duration::from_millis(750)));
        assert_eq!(read("2us3ns"), Some(time::Duration::from_nanos(2_003)));
        for nonsense in [
            "",
            "-5s",
            "5",
            "five",
            "5 parsecs",
            "1h-5m",
            ".s",
            "1.2.3s",
            "h",
            "5\u{fc}",
        ] {
            assert_eq!(read(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn ten_years_are_the_end() {
        let read = |text: &str| Duration(text.to_owned()).parse().ok();
        assert_eq!(read("87600h"), Some(DURATION_MAX));
        for long in [
            "87600h1ns",
            "99999999999999999999999h",
            "99999999999999999999999999999999999999999999s",
        ] {
            assert_eq!(read(long), None, "{long:?}");
        }
        let many = "9999999h".repeat(1_000);
        assert_eq!(read(&many), None);
    }

    proptest! {
        #[test]
        fn reads_back_whole_seconds(seconds in 0..10_000_000_u64) {
            let duration = time::Duration::from_secs(seconds);
            prop_assert_eq!(Duration::from(duration).parse(), Ok(duration));
        }

        #[test]
        fn any_text_is_refused_or_reads_back(text in ".*|[0-9.]{0,60}(ns|us|ms|s|m|h)") {
            match Duration(text.clone()).parse() {
                Ok(read) => {
                    prop_assert!(read <= DURATION_MAX);
                    prop_assert_eq!(Duration::from(read).parse(), Ok(read));
                }
                Err(error) => prop_assert_eq!(error, InvalidDuration { text }),
            }
        }
    }
}
