//! What the controllers of bindings and bundles share.

use std::{sync::Arc, time::Duration};

use crate::{
    bundle::Tally,
    consumer::Consumer,
    engine,
    events::Recorder,
    metrics::Metrics,
    session::{Sessions, dial::Dialer},
};

/// Clones share all of it.
#[derive(Clone, Debug)]
pub struct Common {
    /// The consumer's side.
    pub consumer: Consumer,
    /// The contracts that somebody holds.
    pub sessions: Arc<Sessions>,
    /// The kubeconfigs that are tried.
    pub dialer: Arc<Dialer>,
    /// How many objects the bindings of bundles have.
    pub tally: Tally,
    /// Where events go.
    pub recorder: Recorder,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl Common {
    /// Nothing is known and tried yet. What does not answer is asked again at this interval, at least.
    pub fn new(
        consumer: Consumer,
        recorder: Recorder,
        metrics: Arc<Metrics>,
        sync_metrics: Arc<engine::Metrics>,
        polling_interval: Duration,
    ) -> Self {
        Self {
            sessions: Arc::new(Sessions::new(recorder.clone(), sync_metrics)),
            dialer: Arc::new(Dialer::new(polling_interval, metrics.provider_traffic())),
            tally: Tally::default(),
            consumer,
            recorder,
            metrics,
        }
    }
}
