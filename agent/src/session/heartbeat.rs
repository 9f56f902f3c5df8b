//! Sends heartbeats to the provider, with the UID of the consumer cluster.

use std::{future::Future, sync::Arc, time::Duration};

use bindery_api::{
    Duration as ApiDuration, conditions,
    names::CLUSTER_BINDING,
    v1alpha2::{ClusterBinding, ClusterBindingStatus, ClusterBindingSync, SecretRef},
};
use bindery_runtime::{backoff::Backoff, errors};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

pub use super::session_core::Heartbeat;
use super::session_core::SessionCore;
use crate::patch;

/// Pauses between failed heartbeats.
const RETRY: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(15));
/// The least pause between two decisions, however often the task is woken.
const PAUSE_MIN: Duration = Duration::from_millis(200);

/// The konnector as it presents itself in a heartbeat.
#[derive(Clone, Debug)]
pub struct HeartbeatSender<'a> {
    /// UID of this cluster's kube-system namespace.
    pub cluster_uid: &'a str,
    /// The heartbeat interval that the konnector promises.
    pub interval: Duration,
    /// The Secret with the kubeconfig.
    pub secret: Option<&'a SecretRef>,
    /// Whether the user consents to take the contract over from another cluster.
    pub consent: bool,
    /// When the credential in use expires; `None` if it never does.
    pub credential_expires: Option<Timestamp>,
    /// How far the objects of the contract are in sync; `None` if nothing is synced.
    pub sync: Option<&'a ClusterBindingSync>,
}

/// What to do about the next heartbeat.
#[derive(Debug, PartialEq)]
pub enum HeartbeatDecision {
    /// Wait: the ClusterBinding was not listed yet.
    Unknown,
    /// Report that the ClusterBinding does not exist.
    Missing,
    /// Send none: the contract serves another cluster.
    OtherCluster {
        /// UID of that cluster's kube-system namespace.
        recorded: String,
    },
    /// Send a heartbeat with this patch.
    Beat(Box<Value>),
    /// Send none for this time.
    Rest(Duration),
}

/// Decides about the next heartbeat. `since` is the time since the last one that the provider accepted.
pub fn decide(
    seen: Option<&ClusterBinding>,
    synced: bool,
    sender: &HeartbeatSender<'_>,
    since: Option<Duration>,
    now: Timestamp,
) -> HeartbeatDecision {
    let Some(seen) = seen else {
        return if synced {
            HeartbeatDecision::Missing
        } else {
            HeartbeatDecision::Unknown
        };
    };
    let recorded = seen
        .status
        .as_ref()
        .and_then(|status| status.consumer_cluster_uid.as_deref());
    if let Some(other) = recorded.filter(|uid| *uid != sender.cluster_uid && !sender.consent) {
        return HeartbeatDecision::OtherCluster {
            recorded: other.to_owned(),
        };
    }
    // Half of the interval, so that the provider tolerates one lost heartbeat.
    let period = sender.interval / 2;
    let is_taken_over = recorded.is_some_and(|uid| uid != sender.cluster_uid);
    match since {
        Some(since) if since < period && !is_taken_over => HeartbeatDecision::Rest(period.saturating_sub(since)),
        _ => HeartbeatDecision::Beat(Box::new(status_patch(seen, sender, now))),
    }
}

/// Returns the patch of the ClusterBinding that is a heartbeat.
fn status_patch(seen: &ClusterBinding, sender: &HeartbeatSender<'_>, now: Timestamp) -> Value {
    let mut list = seen
        .status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default();
    conditions::set(&mut list, conditions::true_condition("SecretValid"), now);
    conditions::set(&mut list, conditions::true_condition("ValidVersion"), now);
    conditions::set_summary(&mut list, now);
    let status = ClusterBindingStatus {
        last_heartbeat_time: Some(Time(now)),
        heartbeat_interval: Some(ApiDuration::from(sender.interval)),
        konnector_version: Some(format!("v{}", env!("CARGO_PKG_VERSION"))),
        consumer_secret_ref: sender.secret.cloned(),
        consumer_cluster_uid: Some(sender.cluster_uid.to_owned()),
        credential_expiration_time: sender.credential_expires.map(Time),
        sync: sender.sync.cloned(),
        conditions: list,
    };
    let mut status = json!(status);
    // A merge patch keeps what it does not name.
    for (field, is_absent) in [
        ("/credentialExpirationTime", sender.credential_expires.is_none()),
        ("/sync", sender.sync.is_none()),
        ("/sync/lag", sender.sync.is_some_and(|sync| sync.lag.is_none())),
    ] {
        if is_absent {
            clear(&mut status, field);
        }
    }
    patch::status(&seen.metadata, status)
}

/// Sets a field to null, which removes it where the object is patched.
fn clear(status: &mut Value, pointer: &str) {
    let (parent, field) = pointer.rsplit_once('/').unwrap_or_default();
    if let Some(Value::Object(parent)) = status.pointer_mut(parent) {
        parent.insert(field.to_owned(), Value::Null);
    }
}

/// Sends heartbeats until dropped. `wake` is notified when something that the decision depends on has changed.
pub(super) async fn run(core: Arc<SessionCore>, wake: Arc<Notify>) {
    let api: Api<ClusterBinding> = Api::namespaced(core.sides.provider.lease.clone(), &core.contract.namespace);
    let beat = |since| {
        let (core, api) = (Arc::clone(&core), api.clone());
        async move { beat(&core, &api, since).await }
    };
    drive(beat, |outcome| core.note(outcome), &wake).await;
}

/// Calls `beat` whenever a heartbeat may be due, with the time since the last accepted one. `note` takes each outcome and
/// returns the pause before the next decision.
async fn drive<F>(
    beat: impl Fn(Option<Duration>) -> F,
    note: impl Fn(Result<HeartbeatDecision, kube::Error>) -> Option<Duration>,
    wake: &Notify,
) where
    F: Future<Output = Result<HeartbeatDecision, kube::Error>>,
{
    let mut last: Option<Instant> = None;
    let mut failures = 0;
    loop {
        let outcome = beat(last.map(|last| last.elapsed())).await;
        match &outcome {
            Ok(HeartbeatDecision::Beat(_)) => {
                last = Some(Instant::now());
                failures = 0;
            }
            Ok(_) => {}
            Err(_) => failures += 1,
        }
        let failed = outcome.is_err();
        let pause = note(outcome);
        sleep(PAUSE_MIN).await;
        let pause = if failed { Some(RETRY.delay(failures - 1)) } else { pause };
        if let Some(pause) = pause {
            tokio::select! { () = sleep(pause) => {}, () = wake.notified() => {} }
        }
    }
}

impl SessionCore {
    /// Publishes the outcome of a heartbeat. Returns the pause before the next decision, unless the task is woken.
    fn note(&self, outcome: Result<HeartbeatDecision, kube::Error>) -> Option<Duration> {
        match outcome {
            Ok(HeartbeatDecision::Beat(_)) => {
                self.metrics.heartbeat(true);
                self.set_heartbeat(Heartbeat::Beating);
                None
            }
            Ok(HeartbeatDecision::Rest(pause)) => Some(pause),
            Ok(HeartbeatDecision::OtherCluster { recorded }) => {
                self.set_heartbeat(Heartbeat::OtherCluster { recorded });
                Some(self.settings.heartbeat_interval)
            }
            Ok(HeartbeatDecision::Missing) => {
                let namespace = &self.contract.namespace;
                let message = format!("ClusterBinding {namespace}/{CLUSTER_BINDING} does not exist");
                self.set_heartbeat(Heartbeat::Failing { message });
                Some(self.settings.heartbeat_interval)
            }
            Ok(HeartbeatDecision::Unknown) => {
                if let Some(message) = self.cluster_binding.health().borrow().failure.clone() {
                    self.set_heartbeat(Heartbeat::Failing { message });
                }
                Some(self.settings.polling_interval)
            }
            Err(error) => {
                self.metrics.heartbeat(false);
                // A conflict means that the cache lags; the next decision sees the newer object.
                if errors::code(&error) != Some(409) {
                    let message = errors::explain(&error);
                    self.set_heartbeat(Heartbeat::Failing { message });
                }
                None
            }
        }
    }
}

/// Decides about a heartbeat and sends it. A credential that the API server refuses is marked as refused.
async fn beat(
    core: &SessionCore,
    api: &Api<ClusterBinding>,
    since: Option<Duration>,
) -> Result<HeartbeatDecision, kube::Error> {
    let Some(cluster_uid) = core.consumer.cluster_uid() else {
        return Ok(HeartbeatDecision::Unknown);
    };
    let seen = core.cluster_binding.get(&core.contract.namespace, CLUSTER_BINDING);
    let secret = core.settings.secret.clone();
    let now = Timestamp::now();
    let sync = core.surroundings.tally.sync();
    let sender = HeartbeatSender {
        cluster_uid: &cluster_uid,
        interval: core.settings.heartbeat_interval,
        secret: Some(&secret),
        consent: core.has_consent(),
        credential_expires: core.credential.held().schedule.expires(Instant::now(), now),
        sync: sync.as_ref(),
    };
    let decision = decide(seen.as_deref(), core.cluster_binding.is_synced(), &sender, since, now);
    if let HeartbeatDecision::Beat(patch) = &decision {
        let access = core.credential.held().access;
        let written = api
            .patch_status(CLUSTER_BINDING, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        if let Err(error) = written {
            if errors::code(&error) == Some(401) {
                core.credential.refuse(&access);
            }
            return Err(error);
        }
    }
    Ok(decision)
}

#[cfg(test)]
#[path = "tests/heartbeat.rs"]
mod tests;
