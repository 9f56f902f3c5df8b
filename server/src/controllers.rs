//! The controllers, which run on the leader alone. Each turns changes in the caches into keys of a queue, and works on a key by
//! observing, planning and writing.

use std::{fmt::Debug, future::Future, hash::Hash, sync::Arc, time::Duration};

use bindery_api::{annotations, labels};
use bindery_runtime::{
    backoff::Backoff,
    cache::{Cache, Change, ObjectKey, Subscription},
    client::Clients,
    queue::{Priority, Queue},
    traces::tracer,
    watch::Source,
};
use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::Resource;
use serde::de::DeserializeOwned;
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::Span;

pub(crate) use self::export::{POLICY_IN_FORCE, PROVIDER_IN_SYNC};
pub use self::metrics::ControllerMetrics;
use self::{
    metrics::{ControllerMeter, ReconcileResult},
    pending_requests::PendingRequests,
    traces::Traced,
};
use crate::{
    credentials::Issuer,
    policy::PolicyMonitor,
    rbac::{claims, view},
    state::State,
    writes::WriteError,
};

mod anchors;
mod cluster_binding;
mod contract;
mod export;
mod export_request;
mod grants;
mod metrics;
mod pending_requests;
pub mod request;
mod retention;
mod service_namespace;
mod template;
mod traces;
mod waiting_for;

/// Below this count, failures of a key in a row are logged at level debug: new rights take a moment to be in effect.
const QUIET_FAILURES: u32 = 4;

/// A tenant with more keys than this in one queue is a crowd: its keys are worked on at a pace that leaves the API server to others. It is
/// more than the default limits let a contract have.
const CROWD: usize = 2_000;
/// How long a worker rests after a key of a crowd. The key counts as worked on meanwhile, so that a worker is left for other tenants.
const REST: Duration = Duration::from_millis(200);

/// What all controllers share.
#[derive(Clone, Debug)]
struct Context {
    state: State,
    made: ControllerCaches,
    issuer: Issuer,
    pending_requests: PendingRequests,
}

/// Caches of the rights and namespaces that the controllers create. Only the leader needs them.
#[derive(Clone, Debug)]
struct ControllerCaches {
    accounts: Cache<ServiceAccount>,
    roles: Cache<Role>,
    role_bindings: Cache<RoleBinding>,
    cluster_roles: Cache<ClusterRole>,
    cluster_role_bindings: Cache<ClusterRoleBinding>,
    /// Namespaces that carry the label of shared ones: an admin labelled them, or a server of an earlier version created them.
    shared: Cache<Namespace>,
    /// The role bindings by which the server lists objects in namespaces that it made.
    server_bindings: Cache<RoleBinding>,
}

/// A controller: works on the keys of one queue. Where a tenant can have many keys, the queue is fair between tenants.
trait Reconcile: Send + Sync + 'static {
    type Key: Eq + Hash + Clone + Debug + Send + Sync + 'static;
    /// The controller's name in logs and metrics.
    const NAME: &'static str;
    /// How many workers the controller has. Each works on one key at a time.
    const WORKERS: usize = 4;

    /// Brings the objects of a key to the state that they should have, or a step closer. The changes that it makes queue the
    /// key again.
    fn reconcile(&self, key: &Self::Key) -> impl Future<Output = Result<Next, WriteError>> + Send;

    /// The object of a key, if its reconciles continue the trace of the call that it was made for. Asked only while traces are on.
    fn traced(&self, _key: &Self::Key) -> Option<Traced> {
        None
    }
}

/// When to work on a key again, if no change queues it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Not before a change.
    Change,
    /// Once, after this time.
    After(Duration),
    /// Repeatedly, after times that grow.
    Seldom(Backoff),
}

/// The tenant of an object in a contract namespace: the contract.
fn contract_of(key: &ObjectKey) -> Arc<str> {
    Arc::clone(&key.namespace)
}

/// The tasks and cache subscriptions of all controllers.
struct Running {
    metrics: ControllerMetrics,
    tasks: JoinSet<()>,
    subscriptions: Vec<Subscription>,
    stop: CancellationToken,
}

/// Runs all controllers until `stop` is cancelled, and then until each worker has finished its key.
///
/// Fails at once when a worker panics, since its keys would silently never be worked on again.
pub async fn run(state: State, stop: CancellationToken) -> Result<(), JoinError> {
    let made = ControllerCaches::start(&state.clients);
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = async { state.synced().await; made.synced().await } => {}
    }
    let context = Context {
        issuer: Issuer::new(state.clone()),
        state,
        made,
        pending_requests: PendingRequests::default(),
    };
    let mut running = Running {
        metrics: context.state.metrics.controllers.clone(),
        tasks: JoinSet::new(),
        subscriptions: Vec::new(),
        stop,
    };
    pending_requests::start(&context, &mut running);
    template::start(&context, &mut running);
    contract::start(&context, &mut running);
    request::start(&context, &mut running);
    export_request::start(&context, &mut running);
    export::start(&context, &mut running);
    let namespaces = service_namespace::start(&context, &mut running);
    cluster_binding::start(&context, &mut running);
    anchors::start(&context, &mut running);
    retention::start(&context, &mut running, namespaces);
    PolicyMonitor::start(&context.state, &running.stop, &mut running.tasks);
    tracing::info!("controllers run");
    finished(running.tasks).await
}

/// Waits for all tasks. When one panics, fails at once and aborts the others.
async fn finished(mut tasks: JoinSet<()>) -> Result<(), JoinError> {
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    Ok(())
}

async fn work<R: Reconcile>(reconciler: Arc<R>, queue: Queue<R::Key>, meter: ControllerMeter) {
    while let Some(work) = queue.next().await {
        let key = work.key();
        meter.waited(work.waited());
        let start = Instant::now();
        let traced = tracer().and_then(|_| reconciler.traced(key));
        let span = traced.map_or_else(Span::none, |traced| traced.begin(R::NAME));
        let outcome = reconciler.reconcile(key).await;
        traces::ended(&span, result(&outcome));
        drop(span);
        meter.worked(result(&outcome), start.elapsed());
        if work.queued_beside() > CROWD {
            sleep(REST).await;
        }
        match outcome {
            Ok(Next::Change) => drop(work),
            Ok(Next::After(delay)) => work.again_after(delay),
            Ok(Next::Seldom(backoff)) => work.retry(backoff),
            Err(error) => {
                let failures = work.failures() + 1;
                if error.is_stale() || failures < QUIET_FAILURES {
                    tracing::debug!(controller = R::NAME, ?key, failures, %error, "tries again");
                } else {
                    tracing::warn!(controller = R::NAME, ?key, failures, %error, "failed; tries again");
                }
                work.retry(Backoff::OBJECT);
            }
        }
    }
}

fn result(outcome: &Result<Next, WriteError>) -> ReconcileResult {
    match outcome {
        Ok(Next::Change) => ReconcileResult::Done,
        Ok(Next::After(_) | Next::Seldom(_)) => ReconcileResult::Later,
        Err(error) if error.is_stale() => ReconcileResult::Stale,
        Err(_) => ReconcileResult::Failed,
    }
}

// === impl ControllerCaches ===

impl ControllerCaches {
    fn start(clients: &Clients) -> Self {
        fn cache<K>(clients: &Clients) -> Cache<K>
        where
            K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
        {
            Cache::start(clients.watch.clone(), Source::of::<K>(None).labels(labels::CONTRACT))
        }
        Self {
            accounts: cache(clients),
            roles: cache(clients),
            role_bindings: cache(clients),
            cluster_roles: cache(clients),
            cluster_role_bindings: cache(clients),
            shared: Cache::start(
                clients.watch.clone(),
                Source::of::<Namespace>(None).labels(format!("{}={}", labels::SHARED, annotations::TRUE)),
            ),
            server_bindings: Cache::start(
                clients.watch.clone(),
                Source::of::<RoleBinding>(None).labels(format!(
                    "{} in ({},{})",
                    labels::COMPONENT,
                    claims::SERVER_ROLE,
                    view::VIEW_BINDING
                )),
            ),
        }
    }

    async fn synced(&self) {
        self.accounts.synced().await;
        self.roles.synced().await;
        self.role_bindings.synced().await;
        self.cluster_roles.synced().await;
        self.cluster_role_bindings.synced().await;
        self.shared.synced().await;
        self.server_bindings.synced().await;
    }
}

// === impl Running ===

impl Running {
    /// Starts the workers of a controller on its queue.
    fn work<R: Reconcile>(&mut self, reconciler: R, queue: &Queue<R::Key>) {
        let reconciler = Arc::new(reconciler);
        let meter = self.metrics.meter(R::NAME, queue);
        for _ in 0..R::WORKERS {
            self.tasks
                .spawn(work(Arc::clone(&reconciler), queue.clone(), meter.clone()));
        }
        let (queue, stop) = (queue.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            stop.cancelled().await;
            queue.close();
        });
    }

    /// Queues the keys that `keys` returns whenever it is known anew whether an admission policy is in force.
    fn follow_policies<Key>(
        &mut self,
        context: &Context,
        queue: &Queue<Key>,
        keys: impl Fn() -> Vec<Key> + Send + 'static,
    ) where
        Key: Eq + Hash + Clone + Send + Sync + 'static,
    {
        let (queue, stop) = (queue.clone(), self.stop.clone());
        let mut standings = context.state.policies.subscribe();
        self.tasks.spawn(async move {
            while let Some(Ok(())) = stop.run_until_cancelled(standings.changed()).await {
                for key in keys() {
                    queue.add(key, Priority::Backlog);
                }
            }
        });
    }

    /// Queues the keys that `keys` returns for each change in a cache.
    fn watch<K, Key, Keys>(
        &mut self,
        cache: &Cache<K>,
        queue: &Queue<Key>,
        keys: impl Fn(&Change<'_, K>) -> Keys + Send + Sync + 'static,
    ) where
        K: Resource + DeserializeOwned + Send + Sync + 'static,
        Key: Eq + Hash + Clone + Send + Sync + 'static,
        Keys: IntoIterator<Item = Key>,
    {
        let queue = queue.clone();
        self.subscriptions.push(cache.subscribe(move |change| {
            for key in keys(change) {
                queue.add(key, change.priority);
            }
        }));
    }
}

/// The object of a change: as it is now, or as it was if it is gone.
fn subject<'a, K>(change: &Change<'a, K>) -> Option<&'a Arc<K>> {
    change.new.or(change.old)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// Notes which keys it worked on.
    #[derive(Default)]
    struct Noting(Mutex<Vec<ObjectKey>>);

    impl Noting {
        fn worked_on(&self, contract: &str) -> usize {
            self.0.lock().iter().filter(|key| &*key.namespace == contract).count()
        }
    }

    impl Reconcile for Noting {
        type Key = ObjectKey;
        const NAME: &'static str = "noting";

        async fn reconcile(&self, key: &ObjectKey) -> Result<Next, WriteError> {
            self.0.lock().push(key.clone());
            Ok(Next::Change)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_is_worked_on_at_a_pace_that_keeps_nobody_waiting() {
        let (reconciler, queue) = (Arc::new(Noting::default()), Queue::fair(Noting::WORKERS, contract_of));
        let add = |contract: &str, count: usize| {
            for number in 0..count {
                queue.add(ObjectKey::new(contract, number.to_string()), Priority::Live);
            }
        };
        add("crowd", 100_000);
        let meter = ControllerMetrics::default().meter(Noting::NAME, &queue);
        for _ in 0..Noting::WORKERS {
            tokio::spawn(work(Arc::clone(&reconciler), queue.clone(), meter.clone()));
        }
        sleep(Duration::from_secs(10)).await;
        let paced = reconciler.worked_on("crowd");
        assert!((100..=250).contains(&paced), "{paced}");
        add("other", CROWD / 2);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(reconciler.worked_on("other"), CROWD / 2, "others are no crowd");
        assert!(reconciler.worked_on("crowd") > paced, "and the crowd has its turns");
    }

    #[tokio::test]
    async fn a_worker_that_panics_ends_all() {
        let mut tasks = JoinSet::new();
        tasks.spawn(async {});
        finished(tasks).await.expect("an end in peace");
        let mut tasks = JoinSet::new();
        tasks.spawn(std::future::pending());
        tasks.spawn(async { panic!("a bug") });
        assert!(finished(tasks).await.expect_err("a panic").is_panic());
    }
}
