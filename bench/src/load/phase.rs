//! Records the times of the changes of one phase, and makes the answer to its command from them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;

use super::command;
use crate::percentiles::{Percentiles, micros};

/// The times of all changes of a phase.
#[derive(Debug)]
pub(crate) struct Record {
    changes: Mutex<Changes>,
    is_over: Notify,
}

#[derive(Debug)]
struct Changes {
    each: Vec<Times>,
    /// Number of changes that have neither arrived nor been refused.
    open: usize,
    errors: usize,
    error: Option<String>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// When the change was scheduled, when it was sent, and when the API server acknowledged it.
    intended: Option<Instant>,
    sent: Option<Instant>,
    acked: Option<Instant>,
    arrival: Option<Arrival>,
}

/// When the watches showed the effects of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// The end of its latency: for a create, when the copy was there; else the same as `done`.
    pub told: Instant,
    /// When its last effect was seen.
    pub done: Instant,
}

/// The answer to a command.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    pub label: String,
    pub phase: command::Phase,
    pub ok: bool,
    count: usize,
    /// From the first request until all effects of the last change were seen.
    seconds: f64,
    /// From the first request until the last one was acknowledged.
    load_seconds: f64,
    errors: usize,
    error: Option<String>,
    missing: usize,
    missing_names: Vec<String>,
    /// For each change: milliseconds from the begin of the phase to its scheduled time, and its latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    latencies_us: Option<Vec<(f64, u64)>>,
    /// Latencies: from the scheduled time to [`Arrival::told`].
    percentiles: Option<Percentiles>,
    /// Of creates: from the scheduled time to [`Arrival::done`].
    done_percentiles: Option<Percentiles>,
    /// How long the API server took to acknowledge each request.
    ack_percentiles: Option<Percentiles>,
    /// How late each request was sent, if the changes had a rate.
    late_us: Option<Percentiles>,
    /// As `seconds`, for the changes of each chosen consumer.
    seconds_by_consumer: Vec<f64>,
    begun_unix_ms: u64,
    ended_unix_ms: u64,
}

/// The parts of an answer that the record does not hold.
#[derive(Debug)]
pub(crate) struct Outline<'a> {
    pub label: String,
    pub phase: command::Phase,
    pub is_paced: bool,
    pub begun: Instant,
    pub missing: Vec<String>,
    /// The consumer of each change.
    pub consumers: Vec<usize>,
    pub chosen: &'a [usize],
}

/// At most this many missing objects are named in an answer.
const NAMED: usize = 10;

fn unix_ms(at: Instant) -> u64 {
    let at = SystemTime::now().checked_sub(at.elapsed());
    let since = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

// === impl Record ===

impl Record {
    /// Makes the record of a phase with this number of changes, none of them sent.
    pub(crate) fn new(changes: usize) -> Self {
        Self {
            changes: Mutex::new(Changes {
                each: vec![Times::default(); changes],
                open: changes,
                errors: 0,
                error: None,
            }),
            is_over: Notify::new(),
        }
    }

    /// Notes when a change was sent, and when it was scheduled.
    pub(crate) fn sent(&self, number: usize, intended: Instant, sent: Instant) {
        let times = &mut self.changes.lock().each[number];
        (times.intended, times.sent) = (Some(intended), Some(sent));
    }

    /// Notes that the API server has acknowledged a change.
    pub(crate) fn acked(&self, number: usize) {
        self.changes.lock().each[number].acked = Some(Instant::now());
    }

    /// Notes that the API server has refused a change. If `is_dropped`, [`Record::over`] does not wait for it.
    pub(crate) fn refused(&self, error: impl FnOnce() -> String, is_dropped: bool) {
        let mut changes = self.changes.lock();
        changes.errors += 1;
        changes.error.get_or_insert_with(error);
        if is_dropped {
            self.closed(&mut changes);
        }
    }

    /// Notes that all effects of a change were seen.
    pub(crate) fn arrived(&self, number: usize, arrival: Arrival) {
        let mut changes = self.changes.lock();
        changes.each[number].arrival = Some(arrival);
        self.closed(&mut changes);
    }

    fn closed(&self, changes: &mut Changes) {
        changes.open -= 1;
        if changes.open == 0 {
            self.is_over.notify_one();
        }
    }

    /// Waits until every change has arrived or was refused. Only one task may wait.
    pub(crate) async fn over(&self) {
        while self.changes.lock().open > 0 {
            self.is_over.notified().await;
        }
    }

    /// When the effects of one change were seen.
    #[cfg(test)]
    pub(crate) fn arrival(&self, number: usize) -> Option<Arrival> {
        self.changes.lock().each[number].arrival
    }

    /// Makes the answer to the command.
    pub(crate) fn answer(&self, outline: Outline<'_>) -> Answer {
        let changes = self.changes.lock();
        let each = &changes.each;
        let begun = each.iter().filter_map(|it| it.sent).min().unwrap_or(outline.begun);
        let until = |times: &mut dyn Iterator<Item = Instant>| {
            let last = times.max().unwrap_or(begun);
            last.saturating_duration_since(begun).as_secs_f64()
        };
        let of = |latency: &dyn Fn(&Times) -> Option<Duration>| Percentiles::of(each.iter().filter_map(latency));
        let done = |times: &Times| times.arrival.map(|arrival| arrival.done);
        let seconds_by_consumer = outline.chosen.iter().map(|chosen| {
            let theirs = each
                .iter()
                .zip(&outline.consumers)
                .filter(|(_, consumer)| *consumer == chosen);
            until(&mut theirs.filter_map(|(times, _)| done(times)))
        });
        let latency = |times: &Times| Some(times.arrival?.told - times.intended?);
        let latencies = || {
            let mut all: Vec<_> = each
                .iter()
                .filter_map(|times| {
                    let after = times.intended?.saturating_duration_since(outline.begun);
                    Some((after.as_secs_f64() * 1e3, micros(latency(times)?)))
                })
                .collect();
            all.sort_by(|left, right| left.0.total_cmp(&right.0));
            all
        };
        let is_create = outline.phase.change() == Some(crate::order::Change::Create);
        Answer {
            ok: changes.errors == 0 && outline.missing.is_empty(),
            count: each.len(),
            seconds: until(&mut each.iter().filter_map(done)),
            load_seconds: until(&mut each.iter().filter_map(|times| times.acked)),
            errors: changes.errors,
            error: changes.error.clone(),
            missing: outline.missing.len(),
            latencies_us: outline.phase.tells_each().then(latencies),
            percentiles: of(&latency),
            done_percentiles: of(&|times| Some(times.arrival?.done - times.intended?)).filter(|_| is_create),
            ack_percentiles: of(&|times| Some(times.acked? - times.sent?)),
            late_us: of(&|times| Some(times.sent? - times.intended?)).filter(|_| outline.is_paced),
            seconds_by_consumer: seconds_by_consumer.collect(),
            begun_unix_ms: unix_ms(outline.begun),
            ended_unix_ms: unix_ms(Instant::now()),
            label: outline.label,
            phase: outline.phase,
            missing_names: outline.missing.into_iter().take(NAMED).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn latency_counts_from_when_a_change_was_to_be_made() {
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let record = Record::new(3);
        record.sent(0, at(10), at(12));
        record.sent(1, at(5), at(6));
        record.sent(2, at(20), at(20));
        let arrived = |told, done| Arrival {
            told: at(told),
            done: at(done),
        };
        record.arrived(0, arrived(30, 40));
        record.arrived(1, arrived(10, 11));
        record.refused(|| "no".to_owned(), true);
        record.over().await;
        let answer = record.answer(Outline {
            label: "x".to_owned(),
            phase: command::Phase::Create,
            is_paced: true,
            begun,
            missing: Vec::new(),
            consumers: vec![0, 1, 1],
            chosen: &[0, 1],
        });
        let text = serde_json::to_value(&answer).unwrap();
        assert_eq!(text["latencies_us"], serde_json::json!([[5.0, 5_000], [10.0, 20_000]]));
        assert_eq!(text["percentiles"]["max"], 20_000);
        assert_eq!(text["done_percentiles"]["max"], 30_000);
        assert_eq!(text["late_us"]["max"], 2_000);
        assert_eq!((&text["ok"], &text["error"]), (&false.into(), &"no".into()));
        assert_eq!(text["seconds"], 0.034);
        assert_eq!(text["seconds_by_consumer"], serde_json::json!([0.034, 0.005]));
    }
}
