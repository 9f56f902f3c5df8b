//! Records Kubernetes Events about objects, as `kubectl describe` shows them.
//!
//! Recording an event neither waits nor fails: occurrences go through a bounded queue to one writer, which drops those that
//! do not fit. The writer counts a repetition in the series of the first event instead of creating another event.

use std::{fmt, sync::Arc, time::Duration};

use bindery_api::Condition;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_util::task::AbortOnDropHandle;

mod aggregate;

use crate::errors;
use aggregate::{Aggregate, Decision, Occurrence};

/// Occurrences that may wait for the writer.
const QUEUE_LENGTH: usize = 512;
/// The writer gives up a request after this time.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The API server refuses a longer `note`.
const NOTE_BYTES_MAX: usize = 1000;
/// Events about cluster-scoped objects are created in this namespace.
const CLUSTER_SCOPED_NAMESPACE: &str = "default";

/// The program that records events, as every event names it.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// The `reportingController`, such as `kube-bind.io/konnector`.
    pub controller: &'static str,
    /// The `action`: what the controller does when something happens that is worth an event.
    pub action: &'static str,
    /// The `reportingInstance`: this process.
    pub instance: String,
}

/// Records events. Clones share one writer task, which ends when the last clone is dropped.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<Occurrence>,
    _writer: Option<Arc<AbortOnDropHandle<()>>>,
}

/// Writes the queued occurrences to the API server, one at a time.
struct Writer {
    client: Client,
    reporter: Reporter,
    aggregate: Aggregate,
}

// === impl Recorder ===

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("queued", &(QUEUE_LENGTH - self.sender.capacity().min(QUEUE_LENGTH)))
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// Starts the writer task, which writes events of `reporter`.
    pub fn start(client: Client, reporter: Reporter) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
        let writer = Writer {
            client,
            reporter,
            aggregate: Aggregate::default(),
        };
        let task = tokio::spawn(writer.run(receiver));
        Self {
            sender,
            _writer: Some(Arc::new(AbortOnDropHandle::new(task))),
        }
    }

    /// Makes a recorder that writes nothing, for tests.
    pub fn silent() -> Self {
        Self {
            sender: mpsc::channel(1).0,
            _writer: None,
        }
    }

    /// Records an event of type Warning.
    pub fn warn(&self, object: &ObjectReference, reason: impl Into<String>, message: impl Into<String>) {
        self.record(object, "Warning", reason.into(), message.into());
    }

    /// Records an event of type Normal.
    pub fn normal(&self, object: &ObjectReference, reason: impl Into<String>, message: impl Into<String>) {
        self.record(object, "Normal", reason.into(), message.into());
    }

    /// Records one event for each condition whose status changed: Normal for one that is true now, else Warning.
    pub fn turned<'a>(&self, object: &ObjectReference, conditions: impl IntoIterator<Item = &'a Condition>) {
        for turned in conditions {
            if turned.is_true() {
                self.normal(object, turned.type_.clone(), format!("{} holds", turned.type_));
            } else {
                self.warn(object, turned.reason.clone(), turned.message.clone());
            }
        }
    }

    fn record(&self, object: &ObjectReference, kind: &'static str, reason: String, mut message: String) {
        message.truncate(message.floor_char_boundary(NOTE_BYTES_MAX));
        let occurrence = Occurrence {
            object: object.clone(),
            kind,
            reason,
            message,
        };
        // A full queue drops the occurrence: conditions show whatever lasts.
        let _ = self.sender.try_send(occurrence);
    }
}

// === impl Writer ===

impl Writer {
    async fn run(mut self, mut receiver: mpsc::Receiver<Occurrence>) {
        while let Some(occurrence) = receiver.recv().await {
            let decision = self.aggregate.decide(&occurrence, Instant::now());
            let is_new = matches!(decision, Decision::Create { .. });
            let outcome = match decision {
                Decision::Drop => continue,
                Decision::Create { name } => timeout(WRITE_TIMEOUT, self.create(&occurrence, name)).await,
                Decision::Count { name, count } => timeout(WRITE_TIMEOUT, self.count(&occurrence, &name, count)).await,
            };
            let error = match outcome {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => Some(error),
                Err(_) => None,
            };
            if is_new || error.as_ref().is_some_and(errors::is_not_found) {
                self.aggregate.forget(&occurrence);
            }
            let failure = error.map_or_else(|| "no answer".to_owned(), |error| errors::explain(&error));
            tracing::debug!(reason = occurrence.reason, %failure, "event not written");
        }
    }

    async fn create(&self, occurrence: &Occurrence, name: String) -> Result<(), kube::Error> {
        let event = event(occurrence, name, &self.reporter, Timestamp::now());
        self.api(occurrence)
            .create(&PostParams::default(), &event)
            .await
            .map(|_| ())
    }

    async fn count(&self, occurrence: &Occurrence, name: &str, count: i32) -> Result<(), kube::Error> {
        let series = EventSeries {
            count,
            last_observed_time: MicroTime(Timestamp::now()),
        };
        let patch = Patch::Merge(json!({"series": series}));
        self.api(occurrence)
            .patch(name, &PatchParams::default(), &patch)
            .await
            .map(|_| ())
    }

    fn api(&self, occurrence: &Occurrence) -> Api<Event> {
        Api::namespaced(self.client.clone(), namespace(&occurrence.object))
    }
}

fn namespace(object: &ObjectReference) -> &str {
    let own = object.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    own.unwrap_or(CLUSTER_SCOPED_NAMESPACE)
}

fn event(occurrence: &Occurrence, name: String, reporter: &Reporter, now: Timestamp) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(namespace(&occurrence.object).to_owned()),
            ..ObjectMeta::default()
        },
        action: Some(reporter.action.to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(occurrence.message.clone()),
        reason: Some(occurrence.reason.clone()),
        regarding: Some(occurrence.object.clone()),
        reporting_controller: Some(reporter.controller.to_owned()),
        reporting_instance: Some(reporter.instance.clone()),
        type_: Some(occurrence.kind.to_owned()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests;
