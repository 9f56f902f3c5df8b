//! Watches the admission policies, probes them when [`force`](super::force) says so, and shows what is known: to the controllers
//! by a channel, to the operator by a metric and the log. The leader alone does, and begins anew when it starts.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use bindery_runtime::{
    cache::{Cache, Change, Health, Subscription},
    queue::Priority,
    telemetry::Registry,
    watch::Source,
};
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::{Resource, ResourceExt as _};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _},
    metrics::{family::Family, gauge::Gauge},
};
use serde::de::DeserializeOwned;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    ProbeOutcome, WatchedPolicy,
    force::{PolicyEvent, PolicyForce, Standing},
};
use crate::{contract, state::State};

/// A probe that is not answered in this time shows nothing.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// What is known of each watched policy. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct PolicyMonitor {
    standings: Arc<watch::Sender<Standings>>,
}

/// The standing of each policy, in the order of [`WatchedPolicy::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standings([Standing; WatchedPolicy::ALL.len()]);

/// Counts the changes after which a policy is probed.
type Changes = watch::Sender<u64>;

/// Computes the metric at each scrape.
#[derive(Debug)]
struct ForceMetrics(PolicyMonitor);

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PolicyLabels {
    policy: &'static str,
}

// === impl Standings ===

impl Standings {
    /// The standing of one policy.
    pub fn of(&self, policy: WatchedPolicy) -> Standing {
        self.0[policy as usize]
    }
}

// === impl PolicyMonitor ===

impl PolicyMonitor {
    /// What may be done now with rights that rely on a policy.
    pub fn standing(&self, policy: WatchedPolicy) -> Standing {
        self.standings.borrow().of(policy)
    }

    /// Follows the standings of all policies.
    pub fn subscribe(&self) -> watch::Receiver<Standings> {
        self.standings.subscribe()
    }

    /// Registers the metric `policy_in_force` with `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(ForceMetrics(self.clone())));
    }

    fn publish(&self, policy: WatchedPolicy, standing: Standing) {
        let before = self.standing(policy);
        if before == standing {
            return;
        }
        let name = policy.name();
        match standing {
            Standing::Withheld => tracing::error!(
                policy = name,
                "the admission policy is not in force: no right that relies on it is given"
            ),
            Standing::Withdrawn => tracing::error!(
                policy = name,
                "the admission policy is gone for long: rights that rely on it are taken back"
            ),
            Standing::InForce | Standing::Unknown => tracing::info!(policy = name, "the admission policy is in force"),
        }
        self.standings.send_modify(|all| all.0[policy as usize] = standing);
    }

    /// Starts to watch and probe all policies, until `stop` is cancelled.
    pub(crate) fn start(state: &State, stop: &CancellationToken, tasks: &mut JoinSet<()>) {
        for policy in WatchedPolicy::ALL {
            let (state, stop) = (state.clone(), stop.clone());
            tasks.spawn(async move {
                stop.run_until_cancelled(follow(policy, state)).await;
            });
        }
    }
}

/// Watches and probes one policy. Does not end.
async fn follow(policy: WatchedPolicy, state: State) {
    let (changes, mut news) = watch::channel(0);
    let changes = Arc::new(changes);
    let policies = watched::<ValidatingAdmissionPolicy>(policy, &state);
    let bindings = watched::<ValidatingAdmissionPolicyBinding>(policy, &state);
    let _subscriptions = (
        changes_of(&policies, &changes),
        changes_of(&bindings, &changes),
        first_contract(policy, &state, &changes),
    );
    let force = PolicyForce::new(state.settings.policies, Instant::now());
    let monitor = state.policies.clone();
    let probing = run(
        force,
        &mut news,
        async || probe(policy, &state).await,
        |standing| monitor.publish(policy, standing),
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
                force.on(event, began);
                publish(force.standing());
            }
        }
    }
}

async fn probe(policy: WatchedPolicy, state: &State) -> PolicyEvent {
    let event = match policy.probe(state).await {
        None => PolicyEvent::NothingToProbe,
        Some(Ok(ProbeOutcome::Live)) => PolicyEvent::Refused,
        Some(Ok(ProbeOutcome::Admitted)) => PolicyEvent::Admitted,
        Some(Ok(ProbeOutcome::OtherWords)) => PolicyEvent::OtherWords,
        Some(Ok(ProbeOutcome::Unproved(cause))) => unclear(policy, &cause),
        Some(Err(error)) => unclear(policy, &error),
    };
    tracing::debug!(policy = policy.name(), ?event, "admission policy probed");
    event
}

fn unclear(policy: WatchedPolicy, cause: &dyn fmt::Display) -> PolicyEvent {
    tracing::warn!(policy = policy.name(), %cause, "cannot probe whether the admission policy is in force");
    PolicyEvent::Unclear
}

/// Caches the object that has the name of the policy: the policy itself, or its binding.
fn watched<K>(policy: WatchedPolicy, state: &State) -> Cache<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
{
    let source = Source::of::<K>(None).fields(format!("metadata.name={}", policy.name()));
    Cache::start(state.clients.watch.clone(), source)
}

/// Counts the changes of what an object says. Changes of its status count for nothing.
fn changes_of<K>(cache: &Cache<K>, changes: &Arc<Changes>) -> Subscription
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    let changes = Arc::clone(changes);
    cache.subscribe(move |change| {
        if is_change(change) {
            changes.send_modify(|count| *count += 1);
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
            changes.send_modify(|count| *count += 1);
        }
        before = now;
    }
}

fn is_reconnect(before: &Health, now: &Health) -> bool {
    let is_back = before.failure.is_some() && now.failure.is_none();
    before.is_synced() && (is_back || before.listed != now.listed)
}

/// Counts the first contract, for a policy that needs the account of one to be probed.
fn first_contract(policy: WatchedPolicy, state: &State, changes: &Arc<Changes>) -> Subscription {
    let (changes, monitor) = (Arc::clone(changes), state.policies.clone());
    state.caches.namespaces.subscribe(move |change| {
        let is_new = change.old.is_none() && change.new.is_some_and(|namespace| contract::is_contract(namespace));
        let is_live = change.priority == Priority::Live;
        if policy.needs_contract() && is_new && is_live && monitor.standing(policy) == Standing::Unknown {
            changes.send_modify(|count| *count += 1);
        }
    })
}

// === impl ForceMetrics ===

impl Collector for ForceMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let gauges = Family::<PolicyLabels, Gauge>::default();
        for policy in WatchedPolicy::ALL {
            let standing = self.0.standing(policy);
            if standing != Standing::Unknown {
                let labels = PolicyLabels { policy: policy.name() };
                gauges
                    .get_or_create(&labels)
                    .set(i64::from(standing == Standing::InForce));
            }
        }
        gauges.encode(encoder.encode_descriptor(
            "policy_in_force",
            "Whether the admission policy refused its last probe (1), or is missing (0); absent where this server has not probed it",
            None,
            gauges.metric_type(),
        )?)
    }
}

#[cfg(test)]
mod tests {
    use bindery_runtime::telemetry;
    use parking_lot::Mutex;

    use super::*;
    use crate::policy::PolicyTiming;

    const TIMING: PolicyTiming = PolicyTiming {
        interval: Duration::from_hours(1),
        grace: Duration::from_mins(10),
        withdraws: true,
    };

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

    #[test]
    fn the_metric_says_of_each_policy_that_was_probed_whether_it_is_in_force() {
        let monitor = PolicyMonitor::default();
        let mut registry = telemetry::registry();
        monitor.register(&mut registry);
        let value = |policy: WatchedPolicy| {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
            let sample = format!("bindery_policy_in_force{{policy=\"{}\"}} ", policy.name());
            text.lines()
                .find_map(|line| line.strip_prefix(&*sample).map(ToOwned::to_owned))
        };
        let [first, second, _] = WatchedPolicy::ALL;
        assert_eq!(value(first), None, "nobody knows");
        monitor.publish(first, Standing::InForce);
        assert_eq!((value(first).as_deref(), value(second)), (Some("1"), None));
        for standing in [Standing::Withheld, Standing::Withdrawn] {
            monitor.publish(first, standing);
            assert_eq!(value(first).as_deref(), Some("0"), "{standing:?}");
        }
    }
}
