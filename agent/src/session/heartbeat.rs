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
        ..ClusterBindingStatus::default()
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
mod tests {
    use bindery_api::v1alpha2::{ClusterBindingSpec, Revocation};

    use parking_lot::Mutex;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn binding(recorded: Option<&str>) -> ClusterBinding {
        let mut binding = ClusterBinding::new(CLUSTER_BINDING, ClusterBindingSpec::default());
        binding.metadata.uid = Some("u".to_owned());
        binding.metadata.resource_version = Some("7".to_owned());
        let mut status = ClusterBindingStatus {
            consumer_cluster_uid: recorded.map(str::to_owned),
            revocation: Some(Revocation {
                time: Time(NOW),
                reason: None,
            }),
            ..ClusterBindingStatus::default()
        };
        conditions::set(&mut status.conditions, conditions::true_condition("Healthy"), NOW);
        binding.status = Some(status);
        binding
    }

    fn me(consent: bool) -> Me<'static> {
        Me {
            cluster_uid: "mine",
            interval: Duration::from_mins(5),
            secret: None,
            consent,
        }
    }

    fn decided(recorded: Option<&str>, consent: bool, since: Option<u64>) -> Decision {
        decide(
            Some(&binding(recorded)),
            true,
            &me(consent),
            since.map(Duration::from_secs),
            NOW,
        )
    }

    #[test]
    fn beats_at_half_of_the_interval() {
        assert!(matches!(decided(None, false, None), Decision::Beat(_)));
        assert!(matches!(decided(Some("mine"), false, Some(150)), Decision::Beat(_)));
        assert_eq!(
            decided(Some("mine"), false, Some(149)),
            Decision::Rest(Duration::from_secs(1))
        );
    }

    #[test]
    fn never_writes_over_another_cluster_without_consent() {
        let other = || Decision::OtherCluster {
            recorded: "other".to_owned(),
        };
        assert_eq!(decided(Some("other"), false, None), other());
        assert_eq!(decided(Some("other"), false, Some(999)), other());
        assert!(matches!(decided(Some("other"), true, Some(0)), Decision::Beat(_)));
    }

    #[test]
    fn nothing_is_concluded_before_the_list_is_complete() {
        assert_eq!(decide(None, false, &me(false), None, NOW), Decision::Unknown);
        assert_eq!(decide(None, true, &me(false), None, NOW), Decision::Missing);
    }

    #[test]
    fn a_heartbeat_keeps_what_others_wrote() {
        let Decision::Beat(patch) = decided(None, false, None) else {
            panic!("no heartbeat");
        };
        assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
        assert_eq!(patch["status"]["consumerClusterUID"], "mine");
        assert_eq!(patch["status"]["heartbeatInterval"], "5m0s");
        assert!(
            patch["status"].get("revocation").is_none(),
            "a merge patch leaves what it does not name"
        );
        let types: Vec<_> = patch["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["type"])
            .collect();
        assert_eq!(types, ["Ready", "Healthy", "SecretValid", "ValidVersion"]);
    }

    /// Times, in seconds from the start, at which a heartbeat is tried, within so many seconds.
    async fn beats(within: u64, answer: impl Fn(Option<Duration>) -> Result<Decision, kube::Error>) -> Vec<u64> {
        let (start, times) = (Instant::now(), Mutex::new(Vec::new()));
        let beat = |since| {
            let answer = answer(since);
            if !matches!(answer, Ok(Decision::Rest(_))) {
                times.lock().push(start.elapsed().as_secs());
            }
            std::future::ready(answer)
        };
        let note = |outcome| match outcome {
            Ok(Decision::Rest(pause)) => Some(pause),
            _ => None,
        };
        let wake = Notify::new();
        let _ = tokio::time::timeout(Duration::from_secs(within), drive(beat, note, &wake)).await;
        times.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn it_goes_on_at_half_of_the_interval() {
        let seen = binding(Some("mine"));
        let times = beats(600, |since| Ok(decide(Some(&seen), true, &me(false), since, NOW))).await;
        assert_eq!(times, [0, 150, 300, 450]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_is_away_is_tried_with_patience() {
        let times = beats(600, |_| Err(kube::Error::LinesCodecMaxLineLengthExceeded)).await;
        assert!((30..=90).contains(&times.len()), "{times:?}");
        assert!(times[1] <= 1, "{times:?}");
    }
}
