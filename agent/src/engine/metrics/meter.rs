//! The metrics of one engine. Each is looked up by its labels only once.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};
use tokio::time::Instant;

use crate::{
    engine::{
        Progress,
        metrics::{EngineLabels, Metrics, OperationLabels, RequestLabels, ResourceLabels, WatchLabels, lag::Lag},
    },
    model::{BoundResource, object::Version},
};

/// Updates the metrics of one engine. Dropping it notes the end of the engine.
#[derive(Debug)]
pub(crate) struct Meter {
    metrics: Arc<Metrics>,
    labels: EngineLabels,
    waits: Histogram,
    consumer: Side,
    provider: Side,
    objects: Gauge,
    failing: Gauge,
    orphans: Gauge,
    retained: Gauge,
    pending: Gauge,
    synced: Gauge,
}

/// The metrics of one cluster.
#[derive(Debug)]
struct Side {
    name: &'static str,
    /// The metrics of each operation by its name. They are few, so that a scan is quicker than a hash map.
    operations: Mutex<Vec<(&'static str, Operation)>>,
    lag: Mutex<Lag>,
    lags: Histogram,
    /// The lag of changes that are written to this cluster.
    sync_lags: Histogram,
    /// Bytes of objects that this cluster showed.
    received: Counter,
}

#[derive(Clone, Debug)]
struct Operation {
    ok: Counter,
    error: Counter,
    seconds: Histogram,
}

impl Meter {
    /// Makes the meter of an engine. `holder` is the value of the label `binding`: a binding, or a contract namespace.
    pub(crate) fn new(metrics: &Arc<Metrics>, holder: &Arc<str>, resource: &BoundResource) -> Self {
        let name: Arc<str> = if resource.group.is_empty() {
            Arc::clone(&resource.plural)
        } else {
            format!("{}.{}", resource.plural, resource.group).into()
        };
        let labels = EngineLabels {
            binding: Arc::clone(holder),
            resource: Arc::clone(&name),
        };
        metrics.begin(&labels);
        let side = |side, direction| Side {
            name: side,
            sync_lags: metrics.sync_lags.get_or_create_owned(&labels.in_direction(direction)),
            received: metrics.received.get_or_create_owned(&labels.on_side(side)),
            operations: Mutex::default(),
            lag: Mutex::default(),
            lags: metrics.lags.get_or_create_owned(&WatchLabels {
                resource: Arc::clone(&name),
                side,
            }),
        };
        Self {
            consumer: side("consumer", "down"),
            provider: side("provider", "up"),
            objects: metrics.objects.get_or_create_owned(&labels),
            pending: metrics.pending.get_or_create_owned(&labels),
            failing: metrics.failing.get_or_create_owned(&labels),
            orphans: metrics.orphans.get_or_create_owned(&labels),
            retained: metrics.retained.get_or_create_owned(&labels),
            synced: metrics.synced.get_or_create_owned(&labels),
            waits: metrics.waits.get_or_create_owned(&ResourceLabels { resource: name }),
            metrics: Arc::clone(metrics),
            labels,
        }
    }

    /// Observes how long an object was queued before work on it began.
    pub(crate) fn waited(&self, wait: Duration) {
        self.waits.observe(wait.as_secs_f64());
    }

    /// Counts a request that was answered or failed, and observes how long it took.
    pub(crate) fn answered(&self, on_consumer: bool, operation: &'static str, ok: bool, took: Duration) {
        let operation = self.operation(self.side(on_consumer), operation);
        operation.seconds.observe(took.as_secs_f64());
        let count = if ok { operation.ok } else { operation.error };
        count.inc();
    }

    /// Notes that a write was answered. `is_known` tells whether a watch has shown that version already.
    pub(crate) fn wrote(&self, on_consumer: bool, version: Version, is_known: impl FnOnce(Version) -> bool) {
        let side = self.side(on_consumer);
        let mut lag = side.lag.lock();
        let now = Instant::now();
        if !lag.is_free(now) {
            return;
        }
        if is_known(version) {
            side.lags.observe(0.0);
        } else {
            lag.wrote(version, now);
        }
    }

    /// Observes how long a change took from the event of a watch until its write to a cluster was answered.
    pub(crate) fn synced(&self, on_consumer: bool, lag: Duration) {
        self.side(on_consumer).sync_lags.observe(lag.as_secs_f64());
    }

    /// Notes that a list or watch of a cluster shows a version with so many bytes of content, and observes the lag of the write that it
    /// shows.
    pub(crate) fn shown(&self, on_consumer: bool, version: Version, bytes: u64) {
        let side = self.side(on_consumer);
        side.received.inc_by(bytes);
        let since = side.lag.lock().shown(version);
        if let Some(since) = since {
            side.lags.observe(since.elapsed().as_secs_f64());
        }
    }

    /// Sets the gauges. `is_quiet` is true if no object is queued or with a worker.
    pub(crate) fn tell(&self, progress: &Progress, is_quiet: bool) {
        let count = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.objects.set(count(progress.objects));
        self.pending.set(count(progress.pending));
        self.failing.set(count(progress.failing));
        self.orphans.set(count(progress.orphans.set.count));
        self.retained.set(count(progress.retained.count));
        let is_known = progress.consumer_synced && progress.provider_synced;
        // A failed object waits for its next attempt as a delayed key, which the queue does not count.
        let synced = is_known && is_quiet && progress.failing == 0;
        self.synced.set(i64::from(synced));
    }

    fn side(&self, on_consumer: bool) -> &Side {
        if on_consumer { &self.consumer } else { &self.provider }
    }

    fn operation(&self, side: &Side, name: &'static str) -> Operation {
        let mut operations = side.operations.lock();
        if let Some((_, known)) = operations.iter().find(|(known, _)| *known == name) {
            return known.clone();
        }
        let resource = &self.labels.resource;
        let count = |outcome| {
            self.metrics.operations.get_or_create_owned(&OperationLabels {
                resource: Arc::clone(resource),
                operation: name,
                outcome,
            })
        };
        let operation = Operation {
            ok: count("ok"),
            error: count("error"),
            seconds: self.metrics.seconds.get_or_create_owned(&RequestLabels {
                resource: Arc::clone(resource),
                side: side.name,
                operation: name,
            }),
        };
        operations.push((name, operation.clone()));
        operation
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.metrics.end(&self.labels);
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::Scope;
    use bindery_runtime::telemetry;
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn resource() -> BoundResource {
        BoundResource {
            group: "wildwest.dev".into(),
            version: "v1alpha1".into(),
            plural: "cowboys".into(),
            kind: "Cowboy".into(),
            scope: Scope::Namespaced,
            status_subresource: true,
        }
    }

    #[track_caller]
    fn check(text: &str, line: &str, is_there: bool) {
        assert_eq!(text.lines().any(|one| one == line), is_there, "{line}\n{text}");
    }

    #[test]
    fn what_is_counted_is_served_and_gauges_go_with_the_last_engine() {
        let mut registry = telemetry::registry();
        let metrics = Metrics::register(&mut registry);
        let served = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        let before = Meter::new(&metrics, &"cowboys".into(), &resource());
        let meter = Meter::new(&metrics, &"cowboys".into(), &resource());
        meter.answered(false, "create", true, Duration::from_millis(3));
        meter.answered(true, "hold", false, Duration::from_millis(3));
        meter.waited(Duration::from_micros(10));
        meter.wrote(false, Version(5), |_| false);
        meter.shown(true, Version(9), 30);
        meter.shown(false, Version(5), 12);
        meter.synced(false, Duration::from_millis(30));
        meter.synced(true, Duration::from_secs(90));
        meter.wrote(true, Version(6), |_| true);
        let progress = Progress {
            consumer_synced: true,
            provider_synced: true,
            objects: 3,
            pending: 2,
            ..Progress::default()
        };
        meter.tell(&progress, false);
        let text = served();
        let of = r#"resource="cowboys.wildwest.dev""#;
        let engine = format!(r#"{{binding="cowboys",{of}}}"#);
        for line in [
            format!(r#"bindery_sync_operations_total{{{of},operation="create",outcome="ok"}} 1"#),
            format!(r#"bindery_sync_operations_total{{{of},operation="hold",outcome="error"}} 1"#),
            format!(r#"bindery_sync_operation_seconds_count{{{of},side="provider",operation="create"}} 1"#),
            format!("bindery_sync_queue_wait_seconds_count{{{of}}} 1"),
            format!(r#"bindery_sync_watch_lag_seconds_count{{{of},side="provider"}} 1"#),
            format!(r#"bindery_sync_watch_lag_seconds_count{{{of},side="consumer"}} 1"#),
            format!("bindery_sync_objects{engine} 3"),
            format!("bindery_sync_pending{engine} 2"),
            format!("bindery_sync_failing{engine} 0"),
            format!("bindery_sync_orphans{engine} 0"),
            format!("bindery_sync_retained{engine} 0"),
            format!(r#"bindery_sync_received_bytes_total{{binding="cowboys",{of},side="consumer"}} 30"#),
            format!(r#"bindery_sync_received_bytes_total{{binding="cowboys",{of},side="provider"}} 12"#),
            format!(r#"bindery_sync_lag_seconds_bucket{{le="0.05",binding="cowboys",{of},direction="up"}} 1"#),
            format!(r#"bindery_sync_lag_seconds_bucket{{le="60.0",binding="cowboys",{of},direction="down"}} 0"#),
            format!(r#"bindery_sync_lag_seconds_count{{binding="cowboys",{of},direction="down"}} 1"#),
            format!("bindery_sync_synced{engine} 0"),
        ] {
            check(&text, &line, true);
        }
        drop(before);
        let synced = format!("bindery_sync_synced{engine} 1");
        let failing = Progress {
            failing: 1,
            ..progress.clone()
        };
        meter.tell(&failing, true);
        check(&served(), &format!("bindery_sync_failing{engine} 1"), true);
        check(&served(), &synced, false);
        meter.tell(&progress, true);
        check(&served(), &synced, true);
        drop(meter);
        check(&served(), &synced, false);
        assert!(!served().contains("binding="), "series of a binding go with it");
    }
}
