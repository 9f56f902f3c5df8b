//! Tells the provider that the konnector lives, and which cluster it serves.

use std::{future::Future, sync::Arc, time::Duration};

use bindery_api::{
    Duration as ApiDuration, conditions,
    names::CLUSTER_BINDING,
    v1alpha2::{ClusterBinding, ClusterBindingStatus, SecretRef},
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

use super::Core;

const RETRY: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(15));
/// Whatever wakes the heartbeat, it looks at most this often.
const PAUSE_MIN: Duration = Duration::from_millis(200);

/// How the heartbeat goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Heartbeat {
    /// None was sent yet.
    #[default]
    Pending,
    /// The provider took the last one.
    Beating,
    /// The provider did not take it.
    Failing {
        /// Why.
        message: String,
    },
    /// The contract serves another cluster: nothing may be written.
    OtherCluster {
        /// UID of that cluster's kube-system namespace.
        recorded: String,
    },
}

/// Who beats.
#[derive(Clone, Debug)]
pub struct Me<'a> {
    /// UID of this cluster's kube-system namespace.
    pub cluster_uid: &'a str,
    /// The interval that is promised.
    pub interval: Duration,
    /// The Secret that was bound with.
    pub secret: Option<&'a SecretRef>,
    /// The user consents to take the contract over from another cluster.
    pub consent: bool,
}

/// What to do.
#[derive(Debug, PartialEq)]
pub enum Decision {
    /// Nothing yet: the ClusterBinding has not been seen.
    Unknown,
    /// There is no ClusterBinding.
    Missing,
    /// Keep away: the contract is another cluster's.
    OtherCluster {
        /// That cluster.
        recorded: String,
    },
    /// Write.
    Beat(Box<Value>),
    /// Nothing for this long.
    Rest(Duration),
}

/// Decides. `since` is the time since the last heartbeat that the provider took.
pub fn decide(
    seen: Option<&ClusterBinding>,
    synced: bool,
    me: &Me<'_>,
    since: Option<Duration>,
    now: Timestamp,
) -> Decision {
    let Some(seen) = seen else {
        return if synced { Decision::Missing } else { Decision::Unknown };
    };
    let recorded = seen
        .status
        .as_ref()
        .and_then(|status| status.consumer_cluster_uid.as_deref());
    if let Some(other) = recorded.filter(|uid| *uid != me.cluster_uid && !me.consent) {
        return Decision::OtherCluster {
            recorded: other.to_owned(),
        };
    }
    // Half of the interval, so that one lost heartbeat is not taken for a dead konnector.
    let period = me.interval / 2;
    let is_taken_over = recorded.is_some_and(|uid| uid != me.cluster_uid);
    match since {
        Some(since) if since < period && !is_taken_over => Decision::Rest(period.saturating_sub(since)),
        _ => Decision::Beat(Box::new(patch(seen, me, now))),
    }
}

fn patch(seen: &ClusterBinding, me: &Me<'_>, now: Timestamp) -> Value {
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
        heartbeat_interval: Some(ApiDuration::from(me.interval)),
        konnector_version: Some(version()),
        consumer_secret_ref: me.secret.cloned(),
        consumer_cluster_uid: Some(me.cluster_uid.to_owned()),
        conditions: list,
    };
    json!({
        "metadata": {"uid": seen.metadata.uid, "resourceVersion": seen.metadata.resource_version},
        "status": status,
    })
}

fn version() -> String {
    format!("v{}", env!("CARGO_PKG_VERSION"))
}

/// Beats until dropped. `wake` is notified when something it looks at has changed.
pub(super) async fn run(core: Arc<Core>, wake: Arc<Notify>) {
    let api: Api<ClusterBinding> = Api::namespaced(core.clients.lease.clone(), &core.contract.namespace);
    let beat = |since| {
        let (core, api) = (Arc::clone(&core), api.clone());
        async move { beat(&core, &api, since).await }
    };
    drive(beat, |outcome| core.note(outcome), &wake).await;
}

/// Calls `beat` whenever it is time to, with the time since the last one that was taken, and notes each outcome, which
/// tells when to look again.
async fn drive<F>(
    beat: impl Fn(Option<Duration>) -> F,
    note: impl Fn(Result<Decision, kube::Error>) -> Option<Duration>,
    wake: &Notify,
) where
    F: Future<Output = Result<Decision, kube::Error>>,
{
    let mut last: Option<Instant> = None;
    let mut failures = 0;
    loop {
        let outcome = beat(last.map(|last| last.elapsed())).await;
        match &outcome {
            Ok(Decision::Beat(_)) => {
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

impl Core {
    /// Shows how a heartbeat went; answers how long nothing is to be done, if nobody wakes it.
    fn note(&self, outcome: Result<Decision, kube::Error>) -> Option<Duration> {
        match outcome {
            Ok(Decision::Beat(_)) => {
                self.metrics.heartbeat(true);
                self.set_heartbeat(Heartbeat::Beating);
                None
            }
            Ok(Decision::Rest(pause)) => Some(pause),
            Ok(Decision::OtherCluster { recorded }) => {
                self.set_heartbeat(Heartbeat::OtherCluster { recorded });
                Some(self.settings.heartbeat_interval)
            }
            Ok(Decision::Missing) => {
                let namespace = &self.contract.namespace;
                let message = format!("ClusterBinding {namespace}/{CLUSTER_BINDING} does not exist");
                self.set_heartbeat(Heartbeat::Failing { message });
                Some(self.settings.heartbeat_interval)
            }
            Ok(Decision::Unknown) => {
                if let Some(message) = self.cluster_binding.health().borrow().failure.clone() {
                    self.set_heartbeat(Heartbeat::Failing { message });
                }
                Some(self.settings.polling_interval)
            }
            Err(error) => {
                self.metrics.heartbeat(false);
                // A conflict means that the cache is a step behind: the next look sees what the other writer wrote.
                if errors::code(&error) != Some(409) {
                    let message = errors::explain(&error);
                    self.set_heartbeat(Heartbeat::Failing { message });
                }
                None
            }
        }
    }
}

async fn beat(core: &Core, api: &Api<ClusterBinding>, since: Option<Duration>) -> Result<Decision, kube::Error> {
    let Some(cluster_uid) = core.consumer.cluster_uid() else {
        return Ok(Decision::Unknown);
    };
    let seen = core.cluster_binding.get(&core.contract.namespace, CLUSTER_BINDING);
    let secret = core.settings.secret.clone();
    let me = Me {
        cluster_uid: &cluster_uid,
        interval: core.settings.heartbeat_interval,
        secret: Some(&secret),
        consent: core.has_consent(),
    };
    let decision = decide(
        seen.as_deref(),
        core.cluster_binding.is_synced(),
        &me,
        since,
        Timestamp::now(),
    );
    if let Decision::Beat(patch) = &decision {
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
#[path = "heartbeat_tests.rs"]
mod tests;
