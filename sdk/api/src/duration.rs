//! Durations as Kubernetes writes them, such as `5m0s`.

use std::{borrow::Cow, fmt, time};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A duration as it stands in the API. What stands there may come from anybody, so it is read only when asked for.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(transparent)]
pub struct Duration(String);

/// That the text is no duration, or a negative one.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
#[error("{text:?} is no duration; write one such as 90s or 1h30m")]
pub struct InvalidDuration {
    text: String,
}

impl Duration {
    /// The text as it stands in the API.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The duration, if the text is one.
    pub fn parse(&self) -> Result<time::Duration, InvalidDuration> {
        parse(&self.0).ok_or_else(|| InvalidDuration { text: self.0.clone() })
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

fn parse(text: &str) -> Option<time::Duration> {
    // kube reads a sign wherever it finds one, and the empty text as zero; Kubernetes reads neither.
    if text.is_empty() || text.contains(['-', '+']) {
        return None;
    }
    text.parse::<kube::core::Duration>().ok().map(Into::into)
}

/// Go's way: hours and minutes only where they are needed, seconds always.
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
        for nonsense in ["", "-5s", "5", "five", "5 parsecs", "1h-5m"] {
            assert_eq!(read(nonsense), None, "{nonsense:?}");
        }
    }

    proptest! {
        #[test]
        fn reads_back_whole_seconds(seconds in 0..10_000_000_u64) {
            let duration = time::Duration::from_secs(seconds);
            prop_assert_eq!(Duration::from(duration).parse(), Ok(duration));
        }

        #[test]
        fn no_text_makes_it_fail_badly(text in ".*") {
            let _ = Duration(text).parse();
        }
    }
}
