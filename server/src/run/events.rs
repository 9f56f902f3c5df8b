//! An Event about the server's own Pod, for a configuration that it cannot use.

use bindery_api::names::SERVER;
use bindery_runtime::errors;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use parking_lot::Mutex;

/// The API server refuses a longer `note`.
const NOTE_BYTES_MAX: usize = 1000;

/// Tells of a configuration that stays unused, once for each reason. Without the name of the Pod it tells nothing.
pub(super) struct ConfigEvents {
    recorder: Recorder,
    pod: Option<ObjectReference>,
    told: Mutex<Option<String>>,
}

impl ConfigEvents {
    pub(super) fn new(client: Client, namespace: &str, pod: Option<&str>) -> Self {
        let reporter = Reporter {
            controller: format!("kube-bind.io/{SERVER}"),
            instance: pod.map(ToOwned::to_owned),
        };
        Self {
            recorder: Recorder::new(client, reporter),
            pod: pod.map(|name| ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(name.to_owned()),
                namespace: Some(namespace.to_owned()),
                ..ObjectReference::default()
            }),
            told: Mutex::new(None),
        }
    }

    /// The configuration is in use, so that the next refusal is told of again.
    pub(super) fn accepted(&self) {
        *self.told.lock() = None;
    }

    /// Records, in a task of its own, why the configuration is not used.
    pub(super) fn refused(&self, why: &str) {
        let is_known = self.told.lock().replace(why.to_owned()).is_some_and(|told| told == why);
        let Some(pod) = self.pod.clone().filter(|_| !is_known) else {
            return;
        };
        let mut note = format!("the former configuration of issuers stays in use: {why}");
        note.truncate(note.floor_char_boundary(NOTE_BYTES_MAX));
        let event = Event {
            type_: EventType::Warning,
            reason: "AuthenticationConfigRefused".to_owned(),
            note: Some(note),
            action: "Reload".to_owned(),
            secondary: None,
        };
        let recorder = self.recorder.clone();
        tokio::spawn(async move {
            if let Err(error) = recorder.publish(&event, &pod).await {
                let error = errors::explain(&error);
                tracing::warn!(%error, "cannot record an event about the server's Pod");
            }
        });
    }
}
