//! When a call must be answered.

use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

use super::{WAIT_DEFAULT, WAIT_MAX};

/// What a waiting call leaves of the caller's time for its answer to arrive.
const MARGIN: Duration = Duration::from_millis(500);
/// What a call that is given up leaves for the error to arrive.
const MARGIN_OF_ERRORS: Duration = Duration::from_millis(50);
/// A call without a deadline has this one.
const LONGEST: Duration = Duration::from_secs(150);

/// When a call must be answered, by the caller's `grpc-timeout` and our own patience.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
    answer_by: Instant,
    asked: bool,
}

impl Deadline {
    /// The deadline of a call that begins now.
    pub fn of(headers: &HeaderMap) -> Self {
        let asked = headers
            .get("grpc-timeout")
            .and_then(|value| value.to_str().ok())
            .and_then(parse);
        let time = asked.unwrap_or(LONGEST).min(LONGEST * 1_000);
        let now = Instant::now();
        Self {
            at: now + time,
            // Before the transport gives up, whose answer would say nothing.
            answer_by: now + time.saturating_sub(MARGIN_OF_ERRORS.min(time / 10)),
            asked: asked.is_some(),
        }
    }

    /// When a call is given up.
    pub fn answer_by(&self) -> Instant {
        self.answer_by
    }

    /// The last moment of a stream; `None` where the caller set none.
    pub fn of_stream(&self) -> Option<Instant> {
        self.asked.then_some(self.at)
    }

    /// Until when a call may wait that was asked to wait so long.
    pub fn wait_until(&self, wait: Option<Duration>) -> Instant {
        let now = Instant::now();
        let left = self.at.saturating_duration_since(now).saturating_sub(MARGIN);
        now + wait.unwrap_or(WAIT_DEFAULT).min(WAIT_MAX).min(left)
    }
}

/// At most eight digits and a unit, as gRPC writes it.
fn parse(text: &str) -> Option<Duration> {
    let unit = text.chars().last().filter(char::is_ascii)?;
    let digits = &text[..text.len() - 1];
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        'H' => Some(Duration::from_secs(number * 3600)),
        'M' => Some(Duration::from_secs(number * 60)),
        'S' => Some(Duration::from_secs(number)),
        'm' => Some(Duration::from_millis(number)),
        'u' => Some(Duration::from_micros(number)),
        'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline(timeout: Option<&str>) -> Deadline {
        let mut headers = HeaderMap::new();
        if let Some(timeout) = timeout {
            headers.insert("grpc-timeout", timeout.parse().expect("a header"));
        }
        Deadline::of(&headers)
    }

    #[track_caller]
    fn check(timeout: Option<&str>, wait: Option<u64>, expect: Duration) {
        let now = Instant::now();
        let until = deadline(timeout).wait_until(wait.map(Duration::from_secs));
        assert_eq!(until - now, expect, "{timeout:?} {wait:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_no_longer_than_anybody_allows() {
        let seconds = Duration::from_secs;
        check(None, None, seconds(30));
        check(None, Some(5), seconds(5));
        check(None, Some(0), seconds(0));
        check(None, Some(10_000), WAIT_MAX);
        check(Some("10S"), None, Duration::from_millis(9_500));
        check(Some("10S"), Some(3), seconds(3));
        check(Some("200m"), Some(3), seconds(0));
        check(Some("99999999H"), None, seconds(30));
    }

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        assert_eq!(parse("1500m"), Some(Duration::from_millis(1500)));
        assert_eq!(parse("2M"), Some(Duration::from_mins(2)));
        for nonsense in ["", "S", "1", "-1S", "123456789S", "1s", "1 S", "1é"] {
            assert_eq!(parse(nonsense), None, "{nonsense:?}");
        }
    }
}
