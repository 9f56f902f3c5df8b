//! The time of an API server, as its answers tell it.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::{HeaderValue, Response, header::DATE};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822::DateTimeParser};
use tokio::time::Instant;

/// The clock of an API server, in seconds, read off the header `Date` of its answers. It costs no request. What is deleted when its time
/// is over is measured by this clock, because the API server also measures tokens and creation times by it, and the clock of
/// this machine may be wrong. Clones share the clock.
#[derive(Clone, Debug, Default)]
pub struct ServerClock(Arc<ArcSwapOption<ClockReading>>);

#[derive(Debug)]
struct ClockReading {
    header: HeaderValue,
    time: Timestamp,
    /// When this process received the header first, by its monotonic clock.
    received: Instant,
}

// === impl ServerClock ===

impl ServerClock {
    /// The API server's time now, late by as long as its answers take. `None` before the first answer, and while its answers have no date.
    pub fn now(&self) -> Option<Timestamp> {
        let reading = self.0.load();
        let reading = reading.as_deref()?;
        let since = SignedDuration::try_from(reading.received.elapsed()).ok()?;
        reading.time.checked_add(since).ok()
    }

    /// The API server's time now, or, while it is not known, that of this machine.
    pub fn now_or_local(&self) -> Timestamp {
        self.now().unwrap_or_else(Timestamp::now)
    }

    /// Reads the date of an answer.
    pub(super) fn notice<B>(&self, response: Response<B>) -> Response<B> {
        if let Some(header) = response.headers().get(DATE)
            && self.0.load().as_deref().is_none_or(|known| known.header != *header)
            && let Some(time) = parse(header)
        {
            self.0.store(Some(Arc::new(ClockReading {
                header: header.clone(),
                time,
                received: Instant::now(),
            })));
        }
        response
    }
}

fn parse(date: &HeaderValue) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(date.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    fn answer(clock: &ServerClock, date: Option<&'static str>) {
        let mut answer = Response::new(());
        if let Some(date) = date {
            answer.headers_mut().insert(DATE, HeaderValue::from_static(date));
        }
        clock.notice(answer);
    }

    fn shows(clock: &ServerClock) -> String {
        clock.now().map_or_else(|| "nothing".to_owned(), |now| now.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_tells_its_time_whatever_the_time_is_here() {
        let clock = ServerClock::default();
        assert_eq!(shows(&clock), "nothing");
        for date in [None, Some("tomorrow")] {
            answer(&clock, date);
            assert_eq!(shows(&clock), "nothing", "{date:?}");
        }
        answer(&clock, Some("Fri, 21 Nov 2025 12:00:00 GMT"));
        assert_eq!(shows(&clock), "2025-11-21T12:00:00Z");
        advance(Duration::from_secs(90)).await;
        assert_eq!(
            shows(&clock.clone()),
            "2025-11-21T12:01:30Z",
            "time goes on between answers"
        );
        answer(&clock, None);
        assert_eq!(shows(&clock), "2025-11-21T12:01:30Z");
        // Also backwards: another API server answers, or somebody set the clock right.
        answer(&clock, Some("Fri, 21 Nov 2025 11:00:00 GMT"));
        assert_eq!(shows(&clock), "2025-11-21T11:00:00Z");
        advance(Duration::from_millis(900)).await;
        answer(&clock, Some("Fri, 21 Nov 2025 11:00:00 GMT"));
        assert_eq!(shows(&clock), "2025-11-21T11:00:00.9Z", "the same second, read twice");
    }
}
