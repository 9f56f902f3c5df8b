//! An exporter that reports in the log when the collector does not take spans.

use std::time::{Duration, Instant};

use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};
use parking_lot::Mutex;

/// The log says at most once in this time that spans are lost.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// Exports spans by another exporter, and warns of those that are lost, at most once a minute.
#[derive(Debug)]
pub(super) struct Reporting<E> {
    inner: E,
    lost: Mutex<Lost>,
}

/// How many spans were lost, and when that was reported.
#[derive(Debug, Default)]
struct Lost {
    spans: usize,
    reported: Option<Instant>,
}

// === impl Lost ===

impl Lost {
    /// Counts spans that were lost. Returns the number to report, if it is time to.
    fn count(&mut self, spans: usize, now: Instant) -> Option<usize> {
        self.spans += spans;
        let is_due = self
            .reported
            .is_none_or(|at| now.saturating_duration_since(at) >= WARNING_INTERVAL);
        is_due.then(|| {
            self.reported = Some(now);
            std::mem::take(&mut self.spans)
        })
    }
}

// === impl Reporting ===

impl<E> Reporting<E> {
    pub(super) fn new(inner: E) -> Self {
        Self {
            inner,
            lost: Mutex::default(),
        }
    }
}

impl<E: SpanExporter> SpanExporter for Reporting<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let outcome = self.inner.export(batch).await;
        if let Err(error) = &outcome
            && let Some(spans) = self.lost.lock().count(spans, Instant::now())
        {
            tracing::warn!(%error, spans, "the collector of traces does not take spans; they are lost");
        }
        outcome
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_reported_once_a_minute_and_none_is_forgotten() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut lost = Lost::default();
        assert_eq!(lost.count(3, at(0)), Some(3));
        assert_eq!(lost.count(4, at(30)), None);
        assert_eq!(lost.count(5, at(59)), None);
        assert_eq!(lost.count(6, at(60)), Some(15));
        assert_eq!(lost.count(1, at(61)), None);
    }
}
