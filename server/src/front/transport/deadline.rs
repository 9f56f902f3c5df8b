//! The time by which a call must be answered.

use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

use crate::front::limits::{WAIT_DEFAULT, WAIT_MAX};

/// A call that waits for a controller ends its wait this long before the deadline, so that the answer arrives in time.
const MARGIN: Duration = Duration::from_millis(500);
/// A call is answered with an error this long before the deadline, so that the error arrives in time.
const ERROR_MARGIN: Duration = Duration::from_millis(50);
/// The deadline of a call that sets none.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(150);

/// The time by which a call must be answered: the caller's `grpc-timeout`, or a default.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    answer_by: Instant,
    /// Whether the caller set a timeout.
    requested: bool,
}

impl Deadline {
    /// The deadline of a call with these headers that begins now.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let requested = headers
            .get("grpc-timeout")
            .and_then(|value| value.to_str().ok())
            .and_then(parse);
        let time = requested.unwrap_or(TIMEOUT_DEFAULT).min(TIMEOUT_DEFAULT * 1_000);
        let now = Instant::now();
        Self {
            at: now + time,
            // Earlier than tonic, which keeps the deadline as well and whose answer names no reason.
            answer_by: now + time.saturating_sub(ERROR_MARGIN.min(time / 10)),
            requested: requested.is_some(),
        }
    }

    /// The deadline, but not later than after `time` from now.
    pub(crate) fn within(self, time: Duration) -> Self {
        let end = Instant::now() + time;
        if self.at <= end {
            return self;
        }
        Self {
            at: end,
            answer_by: end - ERROR_MARGIN.min(time / 10),
            requested: self.requested,
        }
    }

    /// When the call must have ended, a stream of answers included.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// When the call is answered with an error if no answer is there.
    pub(crate) fn answer_by(&self) -> Instant {
        self.answer_by
    }

    /// When a stream must end; none if the caller set no timeout.
    pub(crate) fn of_stream(&self) -> Option<Instant> {
        self.requested.then_some(self.at)
    }

    /// Until when a call may wait for a controller, given the `wait` of its request.
    pub(crate) fn wait_until(&self, wait: Option<Duration>) -> Instant {
        let now = Instant::now();
        let remaining = self.at.saturating_duration_since(now).saturating_sub(MARGIN);
        now + wait.unwrap_or(WAIT_DEFAULT).min(WAIT_MAX).min(remaining)
    }
}

/// Reads the header `grpc-timeout`: at most eight digits and a unit.
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
    async fn a_call_waits_no_longer_than_its_deadline_its_wait_and_the_limit() {
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

    #[tokio::test(start_paused = true)]
    async fn a_deadline_can_be_limited_and_not_extended() {
        let (now, minute) = (Instant::now(), Duration::from_mins(1));
        let after = |timeout| {
            let limited = deadline(timeout).within(minute);
            assert!(limited.answer_by() < limited.at());
            limited.at() - now
        };
        assert_eq!(after(None), minute);
        assert_eq!(after(Some("1H")), minute);
        assert_eq!(after(Some("10S")), Duration::from_secs(10));
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
