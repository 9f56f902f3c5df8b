//! The controllers, which the leader alone runs: each turns changes in the caches into keys of a queue, and each key
//! into observation, plan and writes.

use std::{fmt::Debug, future::Future, hash::Hash, sync::Arc, time::Duration};

use bindery_api::{annotations, labels};
use bindery_runtime::{
    backoff::Backoff,
    cache::{Cache, Change, Subscription},
    client::Clients,
    queue::Queue,
    watch::Source,
};
use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::Resource;
use serde::de::DeserializeOwned;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use self::awaited::Awaited;
use crate::{credentials::Issuer, rbac::claims, state::State, writes::WriteError};

mod anchors;
mod awaited;
mod cluster_binding;
mod contract;
mod export;
mod export_request;
pub mod request;
mod service_namespace;
mod template;

/// Failures of one key that are only worth a debug line: rights that were just given take a moment to count.
const QUIET_FAILURES: u32 = 4;

/// What the controllers work with.
#[derive(Clone, Debug)]
struct Context {
    state: State,
    made: Made,
    issuer: Issuer,
    awaited: Awaited,
}

/// What the controllers make beside the provider's state; only the leader needs to see it.
#[derive(Clone, Debug)]
struct Made {
    accounts: Cache<ServiceAccount>,
    roles: Cache<Role>,
    role_bindings: Cache<RoleBinding>,
    cluster_roles: Cache<ClusterRole>,
    cluster_role_bindings: Cache<ClusterRoleBinding>,
    /// Namespaces that contracts may share, made by the server or labelled by an admin.
    shared: Cache<Namespace>,
    /// The server's own bindings by which it sees claimed objects.
    sight: Cache<RoleBinding>,
}

/// Works on one key at a time.
trait Reconcile: Send + Sync + 'static {
    type Key: Eq + Hash + Clone + Debug + Send + Sync + 'static;
    /// For logs.
    const NAME: &'static str;
    /// How many keys are worked on at once.
    const WORKERS: usize = 4;

    /// Brings what the key stands for to what it should be, or a step closer: the changes that this makes bring the key
    /// back.
    fn reconcile(&self, key: &Self::Key) -> impl Future<Output = Result<Next, WriteError>> + Send;
}

/// When a key is to be looked at again, if nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Change,
    After(Duration),
    /// Again and again, ever more seldom.
    Seldom(Backoff),
}

/// Everything that runs for the controllers.
struct Running {
    tasks: JoinSet<()>,
    subscriptions: Vec<Subscription>,
    stop: CancellationToken,
}

/// Runs all controllers until told to stop; then lets each worker finish what it does.
///
/// Fails at once when a worker panics: its keys would never be worked on again, and nobody would know.
pub async fn run(state: State, stop: CancellationToken) -> Result<(), JoinError> {
    let made = Made::start(&state.clients);
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = async { state.synced().await; made.synced().await } => {}
    }
    let context = Context {
        issuer: Issuer::new(state.clone()),
        state,
        made,
        awaited: Awaited::default(),
    };
    let mut running = Running {
        tasks: JoinSet::new(),
        subscriptions: Vec::new(),
        stop,
    };
    awaited::start(&context, &mut running);
    template::start(&context, &mut running);
    contract::start(&context, &mut running);
    request::start(&context, &mut running);
    export_request::start(&context, &mut running);
    export::start(&context, &mut running);
    service_namespace::start(&context, &mut running);
    cluster_binding::start(&context, &mut running);
    anchors::start(&context, &mut running);
    tracing::info!("controllers run");
    finished(running.tasks).await
}

/// Waits for all tasks, and for none after one that panicked: the others end with it.
async fn finished(mut tasks: JoinSet<()>) -> Result<(), JoinError> {
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    Ok(())
}

async fn work<R: Reconcile>(reconciler: Arc<R>, queue: Queue<R::Key>) {
    while let Some(work) = queue.next().await {
        let key = work.key();
        match reconciler.reconcile(key).await {
            Ok(Next::Change) => drop(work),
            Ok(Next::After(delay)) => work.again_after(delay),
            Ok(Next::Seldom(backoff)) => work.retry(backoff),
            Err(error) => {
                let failures = work.failures() + 1;
                if error.is_stale() || failures < QUIET_FAILURES {
                    tracing::debug!(controller = R::NAME, ?key, failures, %error, "comes again");
                } else {
                    tracing::warn!(controller = R::NAME, ?key, failures, %error, "failed; comes again");
                }
                work.retry(Backoff::OBJECT);
            }
        }
    }
}

// === impl Made ===

impl Made {
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
            sight: Cache::start(
                clients.watch.clone(),
                Source::of::<RoleBinding>(None).labels(format!("{}={}", labels::COMPONENT, claims::SERVER_ROLE)),
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
        self.sight.synced().await;
    }
}

// === impl Running ===

impl Running {
    /// Starts the workers of a queue.
    fn work<R: Reconcile>(&mut self, reconciler: R, queue: &Queue<R::Key>) {
        let reconciler = Arc::new(reconciler);
        for _ in 0..R::WORKERS {
            self.tasks.spawn(work(Arc::clone(&reconciler), queue.clone()));
        }
        let (queue, stop) = (queue.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            stop.cancelled().await;
            queue.close();
        });
    }

    /// Queues keys for every change in a cache.
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
                queue.add(key, change.lane);
            }
        }));
    }
}

/// What a change is about: the object as it is, or, if it is gone, as it was.
fn subject<'a, K>(change: &Change<'a, K>) -> Option<&'a Arc<K>> {
    change.new.or(change.old)
}

#[cfg(test)]
mod tests {
    use super::*;

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
