//! Follows the admission policies, and shows what is known: to the controllers by a channel, to the operator by a metric and the log.
//! The leader alone does, and begins anew when it starts.

use std::sync::Arc;

use bindery_runtime::{
    cache::Subscription,
    policy::{self, Changes, Followed, PoliciesInForce, Standing},
    queue::Priority,
    telemetry::Registry,
};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::WatchedPolicy;
use crate::{contract, state::State};

/// What is known of each watched policy. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct PolicyMonitor {
    standings: Arc<watch::Sender<Standings>>,
    metric: PoliciesInForce,
}

/// The standing of each policy, in the order of [`WatchedPolicy::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standings([Standing; WatchedPolicy::ALL.len()]);

// === impl Standings ===

impl Standings {
    /// The standing of one policy.
    pub fn of(&self, policy: WatchedPolicy) -> Standing {
        self.0[policy as usize]
    }
}

// === impl PolicyMonitor ===

impl PolicyMonitor {
    /// Has its metric served.
    pub fn register(&self, registry: &mut Registry) {
        self.metric.register(registry);
    }

    /// What may be done now with rights that rely on a policy.
    pub fn standing(&self, policy: WatchedPolicy) -> Standing {
        self.standings.borrow().of(policy)
    }

    /// Follows the standings of all policies.
    pub fn subscribe(&self) -> watch::Receiver<Standings> {
        self.standings.subscribe()
    }

    fn publish(&self, policy: WatchedPolicy, standing: Standing) {
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
        self.metric.note(name, standing);
        self.standings.send_modify(|all| all.0[policy as usize] = standing);
    }

    /// Starts to watch and probe all policies, until `stop` is cancelled.
    pub(crate) fn start(state: &State, stop: &CancellationToken, tasks: &mut JoinSet<()>) {
        for policy in WatchedPolicy::ALL {
            let (state, stop) = (state.clone(), stop.clone());
            tasks.spawn(async move {
                stop.run_until_cancelled(Box::pin(follow(policy, state))).await;
            });
        }
    }
}

/// Watches and probes one policy. Does not end.
async fn follow(policy: WatchedPolicy, state: State) {
    let followed = Followed {
        policy: policy.name().to_owned(),
        timing: state.settings.policies,
        changes: Changes::default(),
    };
    let _contracts = first_contract(policy, &state, &followed.changes);
    policy::follow(
        followed,
        state.clients.watch.clone(),
        async || policy.probe(&state).await,
        |standing| state.policies.publish(policy, standing),
    )
    .await;
}

/// Counts the first contract, for a policy that needs the account of one to be probed.
fn first_contract(policy: WatchedPolicy, state: &State, changes: &Changes) -> Subscription {
    let (changes, monitor) = (changes.clone(), state.policies.clone());
    state.caches.namespaces.subscribe(move |change| {
        let is_new = change.old.is_none() && change.new.is_some_and(|namespace| contract::is_contract(namespace));
        let is_live = change.priority == Priority::Live;
        if policy.needs_contract() && is_new && is_live && monitor.standing(policy) == Standing::Unknown {
            changes.count();
        }
    })
}
