//! Watches an admission policy, probes it when [`force`](super::force) says so, and tells what is known of it.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use super::{
    ProbeOutcome,
    force::{PolicyEvent, PolicyForce, PolicyTiming, Standing},
};
use crate::{
    cache::{Cache, Change, Health, Subscription},
    queue::Priority,
    watch::Source,
};

/// A probe that is not answered in this time shows nothing.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// A policy that is followed.
#[derive(Clone, Debug)]
pub struct Followed {
    /// Name of the policy and of its binding.
    pub policy: String,
    /// When it is probed.
    pub timing: PolicyTiming,
    /// What else the policy is probed after.
    pub changes: Changes,
}

/// Counts the changes after which a policy is probed. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Changes(Arc<watch::Sender<u64>>);

// === impl Changes ===

impl Changes {
    /// Counts a change.
    pub fn count(&self) {
        self.0.send_modify(|count| *count += 1);
    }
}

/// Watches one policy by this client and probes it. Does not end. A probe tries what the policy forbids, and is `None` if there is no
/// account yet that the policy limits. `publish` is told what is known whenever that changes.
pub async fn follow<F, E>(
    followed: Followed,
    client: Client,
    mut probe: impl FnMut() -> F,
    publish: impl FnMut(Standing),
) where
    F: Future<Output = Option<Result<ProbeOutcome, E>>>,
    E: fmt::Display,
{
    let Followed {
        policy,
        timing,
        changes,
    } = followed;
    let mut news = changes.0.subscribe();
    let policies = watched::<ValidatingAdmissionPolicy>(&policy, client.clone());
    let bindings = watched::<ValidatingAdmissionPolicyBinding>(&policy, client);
    let _subscriptions = (changes_of(&policies, &changes), changes_of(&bindings, &changes));
    let force = PolicyForce::new(timing, Instant::now());
    let probing = run(
        force,
        &mut news,
        || {
            let (policy, outcome) = (&policy, probe());
            async move { event(policy, outcome.await) }
        },
        publish,
    );
    tokio::join!(
        probing,
        reconnects(policies.health(), &changes),
        reconnects(bindings.health(), &changes)
    );
}

/// Probes whenever it is time. Does not end.
async fn run<F: Future<Output = PolicyEvent>>(
    mut force: PolicyForce,
    changed: &mut watch::Receiver<u64>,
    mut probe: impl FnMut() -> F,
    mut publish: impl FnMut(Standing),
) {
    loop {
        tokio::select! {
            biased;
            Ok(()) = changed.changed() => force.on(PolicyEvent::Changed, Instant::now()),
            () = sleep_until(force.probe_at()) => {
                let began = Instant::now();
                let event = timeout(PROBE_TIMEOUT, probe()).await.unwrap_or(PolicyEvent::Unclear);
                let before = force.standing();
                force.on(event, began);
                if force.standing() != before {
                    publish(force.standing());
                }
            }
        }
    }
}

/// What the outcome of a probe tells.
fn event<E: fmt::Display>(policy: &str, outcome: Option<Result<ProbeOutcome, E>>) -> PolicyEvent {
    let event = match outcome {
        None => PolicyEvent::NothingToProbe,
        Some(Ok(ProbeOutcome::Live)) => PolicyEvent::Refused,
        Some(Ok(ProbeOutcome::Admitted)) => PolicyEvent::Admitted,
        Some(Ok(ProbeOutcome::OtherWords)) => PolicyEvent::OtherWords,
        Some(Ok(ProbeOutcome::Unproved(cause))) => unclear(policy, &cause),
        Some(Err(error)) => unclear(policy, &error),
    };
    tracing::debug!(policy, ?event, "admission policy probed");
    event
}

fn unclear(policy: &str, cause: &dyn fmt::Display) -> PolicyEvent {
    tracing::warn!(policy, %cause, "cannot probe whether the admission policy is in force");
    PolicyEvent::Unclear
}

/// Caches the object that has the name of the policy: the policy itself, or its binding.
fn watched<K>(policy: &str, client: Client) -> Cache<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
{
    Cache::start(client, Source::of::<K>(None).fields(format!("metadata.name={policy}")))
}

/// Counts the changes of what an object says. Changes of its status count for nothing.
fn changes_of<K>(cache: &Cache<K>, changes: &Changes) -> Subscription
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    let changes = changes.clone();
    cache.subscribe(move |change| {
        if is_change(change) {
            changes.count();
        }
    })
}

/// Whether a change that was seen to happen concerns what an object says. What a list shows is counted by [`reconnects`].
fn is_change<K: Resource>(change: &Change<'_, K>) -> bool {
    let version = |object: &Arc<K>| (object.uid(), object.meta().generation);
    change.priority == Priority::Live && change.old.map(version) != change.new.map(version)
}

/// Counts the ends of interruptions of a watch. The API server may be another one after that, of another version.
async fn reconnects(mut health: watch::Receiver<Health>, changes: &Changes) {
    let mut before = health.borrow_and_update().clone();
    // The sender lives in the cache, which outlives this.
    while health.changed().await.is_ok() {
        let now = health.borrow_and_update().clone();
        if is_reconnect(&before, &now) {
            changes.count();
        }
        before = now;
    }
}

fn is_reconnect(before: &Health, now: &Health) -> bool {
    let is_back = before.failure.is_some() && now.failure.is_none();
    before.is_synced() && (is_back || before.listed != now.listed)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::policy::force::tests::TIMING;

    /// Runs for a time with an API server that answers so, and returns when each probe began and what was published, in seconds
    /// since the start.
    async fn watch_for(
        time: Duration,
        changed: &mut watch::Receiver<u64>,
        answer: impl Fn(Duration) -> Option<PolicyEvent>,
    ) -> (Vec<u64>, Vec<(u64, Standing)>) {
        let start = Instant::now();
        let (probes, published) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let probe = async || {
            probes.lock().push(start.elapsed().as_secs());
            match answer(start.elapsed()) {
                Some(event) => event,
                None => std::future::pending().await,
            }
        };
        let publish = |standing| {
            let mut published = published.lock();
            if published.last().is_none_or(|(_, last)| *last != standing) {
                published.push((start.elapsed().as_secs(), standing));
            }
        };
        let _ = timeout(time, run(PolicyForce::new(TIMING, start), changed, probe, publish)).await;
        (probes.into_inner(), published.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn at_rest_a_policy_is_probed_once_an_hour() {
        let (_changes, mut changed) = watch::channel(0);
        let (probes, published) = watch_for(Duration::from_secs(4 * 3600 - 1), &mut changed, |_| {
            Some(PolicyEvent::Refused)
        })
        .await;
        assert_eq!(probes, [0, 3600, 7200, 10800]);
        assert_eq!(published, [(0, Standing::InForce)]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_takes_nothing_back() {
        let (_changes, mut changed) = watch::channel(0);
        let (probes, published) = watch_for(Duration::from_hours(24), &mut changed, |at| {
            at.is_zero().then_some(PolicyEvent::Refused)
        })
        .await;
        assert!(probes.len() > 24, "{probes:?}");
        assert_eq!(published, [(0, Standing::InForce)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_that_goes_is_noticed_by_the_watch_and_its_return_as_well() {
        let (changes, mut news) = watch::channel(0);
        tokio::spawn(async move {
            for _ in 0..2 {
                tokio::time::sleep(Duration::from_secs(1000)).await;
                changes.send_modify(|count| *count += 1);
            }
            std::future::pending::<()>().await;
        });
        let (_, published) = watch_for(Duration::from_hours(2), &mut news, |at| {
            let is_gone = (1000..2000).contains(&at.as_secs());
            Some(if is_gone {
                PolicyEvent::Admitted
            } else {
                PolicyEvent::Refused
            })
        })
        .await;
        let expect = [
            (0, Standing::InForce),
            (1001, Standing::Withheld),
            (1601, Standing::Withdrawn),
            (2001, Standing::InForce),
        ];
        assert_eq!(published, expect);
    }

    #[test]
    fn a_watch_that_works_again_or_lists_again_may_be_of_another_api_server() {
        let listed = |at: Option<Instant>, failure: Option<&str>| Health {
            listed: at,
            failure: failure.map(ToOwned::to_owned),
        };
        let now = Some(Instant::now());
        let later = now.map(|now| now + Duration::from_secs(1));
        assert!(is_reconnect(&listed(now, Some("refused")), &listed(now, None)));
        assert!(is_reconnect(&listed(now, None), &listed(later, None)));
        assert!(!is_reconnect(&listed(now, None), &listed(now, Some("refused"))));
        assert!(!is_reconnect(&listed(None, None), &listed(now, None)), "the start");
    }
}
