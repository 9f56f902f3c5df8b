//! What the controllers count: how often they work on a key, with what result and in what time, and how many keys wait, and how long.

use std::{collections::BTreeMap, fmt, hash::Hash, sync::Arc, time::Duration};

use bindery_runtime::{queue::Queue, telemetry::Registry};
use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

/// Upper bounds of the histograms, in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0];

/// The metrics of all controllers. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct ControllerMetrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    reconciles: Family<ResultLabels, Counter>,
    seconds: Family<ControllerLabels, Histogram, fn() -> Histogram>,
    waits: Family<ControllerLabels, Histogram, fn() -> Histogram>,
    queues: Mutex<BTreeMap<&'static str, QueueLength>>,
}

/// Tells how many keys wait in the queue of a controller.
struct QueueLength(Box<dyn Fn() -> usize + Send + Sync>);

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ControllerLabels {
    controller: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    controller: &'static str,
    result: &'static str,
}

/// How work on a key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReconcileResult {
    /// Nothing is left to do before something changes.
    Done,
    /// The key is looked at again after a time.
    Later,
    /// A write was refused because it was planned from an older state.
    Stale,
    /// A request failed.
    Failed,
}

/// Reads the lengths of queues when it is scraped.
#[derive(Debug)]
struct Depths(ControllerMetrics);

/// The metrics of one controller.
#[derive(Clone, Debug)]
pub(super) struct ControllerMeter {
    results: [Counter; ReconcileResult::ALL.len()],
    seconds: Histogram,
    waits: Histogram,
}

// === impl ControllerMetrics ===

impl ControllerMetrics {
    /// Registers the metrics with `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let families = &self.0;
        registry.register(
            "reconciles",
            "How often a controller worked on a key, by controller and result (done, later, stale or failed)",
            families.reconciles.clone(),
        );
        registry.register(
            "reconcile_seconds",
            "Time of the work on a key, by controller",
            families.seconds.clone(),
        );
        registry.register(
            "reconcile_wait_seconds",
            "Time that a key waited in the queue before the work on it began, by controller",
            families.waits.clone(),
        );
        registry.register_collector(Box::new(Depths(self.clone())));
    }

    /// The metrics of a controller that works on this queue.
    pub(super) fn meter<K>(&self, controller: &'static str, queue: &Queue<K>) -> ControllerMeter
    where
        K: Eq + Hash + Clone + Send + Sync + 'static,
    {
        let families = &self.0;
        let queue = queue.clone();
        let length = QueueLength(Box::new(move || queue.len()));
        families.queues.lock().insert(controller, length);
        let result = |result: ReconcileResult| {
            families.reconciles.get_or_create_owned(&ResultLabels {
                controller,
                result: result.label(),
            })
        };
        ControllerMeter {
            results: ReconcileResult::ALL.map(result),
            seconds: families.seconds.get_or_create_owned(&ControllerLabels { controller }),
            waits: families.waits.get_or_create_owned(&ControllerLabels { controller }),
        }
    }
}

impl Default for Families {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        Self {
            reconciles: Family::default(),
            seconds: Family::new_with_constructor(histogram),
            waits: Family::new_with_constructor(histogram),
            queues: Mutex::default(),
        }
    }
}

// === impl QueueLength ===

impl fmt::Debug for QueueLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QueueLength").field(&(self.0)()).finish()
    }
}

// === impl Depths ===

impl Collector for Depths {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let depths = Family::<ControllerLabels, Gauge>::default();
        for (controller, length) in &*self.0.0.queues.lock() {
            let depth = i64::try_from((length.0)()).unwrap_or(i64::MAX);
            depths.get_or_create(&ControllerLabels { controller }).set(depth);
        }
        depths.encode(encoder.encode_descriptor(
            "queued_keys",
            "Keys that wait for a worker, by controller; absent on a replica that does not lead",
            None,
            depths.metric_type(),
        )?)
    }
}

// === impl ReconcileResult ===

impl ReconcileResult {
    /// All results, each at the index that it has as a number.
    const ALL: [Self; 4] = [Self::Done, Self::Later, Self::Stale, Self::Failed];

    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Later => "later",
            Self::Stale => "stale",
            Self::Failed => "failed",
        }
    }
}

// === impl ControllerMeter ===

impl ControllerMeter {
    /// Observes how long a key waited.
    pub(super) fn waited(&self, wait: Duration) {
        self.waits.observe(wait.as_secs_f64());
    }

    /// Counts the end of the work on a key, and observes how long it took.
    pub(super) fn worked(&self, result: ReconcileResult, took: Duration) {
        self.results[result as usize].inc();
        self.seconds.observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use bindery_runtime::{queue::Priority, telemetry};
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn the_work_of_a_controller_and_what_waits_for_it_are_told() {
        let mut registry = telemetry::registry();
        let metrics = ControllerMetrics::default();
        metrics.register(&mut registry);
        let queue = Queue::new();
        let meter = metrics.meter("export", &queue);
        queue.add("a", Priority::Live);
        queue.add("b", Priority::Live);
        drop(queue.try_next());
        meter.waited(Duration::from_millis(3));
        meter.worked(ReconcileResult::Done, Duration::from_millis(200));
        meter.worked(ReconcileResult::Failed, Duration::from_millis(1));
        let mut text = String::new();
        encode(&mut text, &registry).expect("text");
        for line in [
            r#"bindery_reconciles_total{controller="export",result="done"} 1"#,
            r#"bindery_reconciles_total{controller="export",result="failed"} 1"#,
            r#"bindery_reconciles_total{controller="export",result="stale"} 0"#,
            r#"bindery_reconcile_seconds_count{controller="export"} 2"#,
            r#"bindery_reconcile_wait_seconds_bucket{le="0.005",controller="export"} 1"#,
            r#"bindery_queued_keys{controller="export"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
