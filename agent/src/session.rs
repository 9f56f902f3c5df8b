//! One session per contract: the clients of its provider, what is watched there, and what is said there regularly.
//!
//! A session is shared by all bindings and bundles of its contract and lives as long as one of them holds it. A newer credential of
//! the same contract is taken over without a pause; another connection (address, CA) is another session.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bindery_api::{
    names::CLUSTER_BINDING,
    v1alpha2::{APIServiceNamespace, BoundSchema, ClusterBinding, SecretRef},
};
use bindery_runtime::{
    cache::{Cache, Subscription},
    client::Clients,
    watch::Source,
};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

pub mod backend;
pub mod credential;
pub mod dial;
mod doubt;
pub mod exports;
pub mod heartbeat;
pub mod pace;
pub mod probe;
pub mod renewal;
pub mod schema_status;
pub mod secret;

#[cfg(test)]
pub(crate) mod testing;

use crate::{
    claims::{Claims, Site},
    connection::Sides,
    consumer::Consumer,
    engine::{self, Budget, Surroundings},
    events::Recorder,
    metrics::Metrics,
};
use backend::Renewed;
use bindery_runtime::kubeconfig::{Fingerprint, ProviderAccess};
use credential::Credential;
use dial::Reached;
use exports::{Exports, follow::Follow};
use heartbeat::Heartbeat;
use pace::{Intervals, Wish};
use schema_status::Reports;
use secret::Wanted;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A contract: a namespace on the provider, told from a later one of the same name by its UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    /// UID of the namespace.
    pub uid: Arc<str>,
    /// Its name.
    pub namespace: Arc<str>,
}

/// How a session behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The interval that is promised to the provider.
    pub heartbeat_interval: Duration,
    /// How often what does not answer is asked again, at least.
    pub polling_interval: Duration,
    /// The Secret that was bound with.
    pub secret: SecretRef,
}

/// A session with the provider of a contract. Ends when dropped.
pub struct Session {
    id: u64,
    core: Arc<Core>,
    _subscriptions: Vec<Subscription>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// What the tasks of a session share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) contract: Contract,
    pub(crate) clients: Clients,
    pub(crate) consumer: Consumer,
    pub(crate) credential: Credential,
    pub(crate) exports: Exports,
    pub(crate) schemas: Cache<BoundSchema>,
    pub(crate) namespaces: Cache<APIServiceNamespace>,
    pub(crate) cluster_binding: Cache<ClusterBinding>,
    pub(crate) reports: Reports,
    pub(crate) claims: Claims,
    budget: Budget,
    pub(crate) settings: Settings,
    pub(crate) metrics: Arc<Metrics>,
    intervals: Arc<Intervals>,
    heartbeat: watch::Sender<Heartbeat>,
    wanted: watch::Sender<Wanted>,
    consent: watch::Sender<Option<Timestamp>>,
}

/// The sessions there are.
#[derive(Debug)]
pub struct Sessions {
    known: Mutex<HashMap<Arc<str>, Weak<Session>>>,
    tools: Tools,
}

/// What sessions work with.
#[derive(Clone, Debug)]
struct Tools {
    recorder: Recorder,
    sync_metrics: Arc<engine::Metrics>,
}

// === impl Sessions ===

impl Sessions {
    /// None yet.
    pub fn new(recorder: Recorder, sync_metrics: Arc<engine::Metrics>) -> Self {
        Self {
            known: Mutex::default(),
            tools: Tools { recorder, sync_metrics },
        }
    }

    /// The session of the contract that was reached: the one there is, to which the credential is offered, or a new one
    /// if there is none over this connection.
    pub fn enter(
        &self,
        reached: &Reached,
        consumer: &Consumer,
        settings: &Settings,
        metrics: &Arc<Metrics>,
    ) -> Arc<Session> {
        let mut known = self.known.lock();
        let mut before = None;
        if let Some(session) = known.get(&reached.contract.uid).and_then(Weak::upgrade) {
            let held = session.core.credential.held();
            let same_connection = held.access.endpoint == reached.access.endpoint;
            let refused = session.core.credential.was_refused(&reached.access.fingerprint);
            let newer = reached.access.lifetime.is_newer_than(&held.access.lifetime);
            if same_connection || refused || (!newer && !held.refused) {
                session.core.offer(reached);
                return session;
            }
            before = Some(session);
        }
        known.retain(|_, session| session.strong_count() > 0);
        let session = Arc::new(Session::start(
            reached,
            before.as_deref(),
            consumer.clone(),
            settings.clone(),
            Arc::clone(metrics),
            &self.tools,
        ));
        known.insert(Arc::clone(&reached.contract.uid), Arc::downgrade(&session));
        session
    }

    /// Where a kubeconfig leads that a session has held: nobody needs to be asked.
    pub fn recall(&self, access: &Arc<ProviderAccess>) -> Option<Arc<Reached>> {
        let sessions: Vec<_> = self.known.lock().values().filter_map(Weak::upgrade).collect();
        let session = sessions
            .iter()
            .find(|session| session.core.credential.has_held(&access.fingerprint))?;
        Some(Arc::new(Reached {
            contract: session.core.contract.clone(),
            origin: access.fingerprint.clone(),
            access: Arc::clone(access),
            clients: session.core.clients.clone(),
            token: session.core.credential.token().cloned(),
            renewed: None,
        }))
    }

    /// Whether a contract has a session.
    pub fn is_open(&self, contract_uid: &str) -> bool {
        self.known
            .lock()
            .get(contract_uid)
            .is_some_and(|session| session.strong_count() > 0)
    }
}

// === impl Session ===

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("contract", &self.core.contract)
            .finish_non_exhaustive()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.core.metrics.session_ended();
        tracing::info!(contract = %self.core.contract.namespace, "session ends");
    }
}

impl Session {
    fn start(
        reached: &Reached,
        before: Option<&Self>,
        consumer: Consumer,
        settings: Settings,
        metrics: Arc<Metrics>,
        tools: &Tools,
    ) -> Self {
        tracing::info!(contract = %reached.contract.namespace, server = reached.access.server(), "session begins");
        metrics.session_began();
        let namespace = &reached.contract.namespace;
        let watch = &reached.clients.watch;
        let namespaces = Cache::start(watch.clone(), Source::of::<APIServiceNamespace>(Some(namespace)));
        let schedule = match &reached.renewed {
            Some(renewed) => renewed.schedule,
            None => credential::schedule_of(&reached.access, Timestamp::now()),
        };
        let (access, token) = (Arc::clone(&reached.access), reached.token.clone());
        let credential = match before {
            Some(before) => before.core.credential.succeed(access, schedule, token),
            None => Credential::new(access, schedule, token),
        };
        let budget = Budget::default();
        let claims = Claims::new(Site {
            contract: reached.contract.clone(),
            sides: Sides {
                consumer: consumer.clients.clone(),
                provider: reached.clients.clone(),
            },
            around: Surroundings {
                namespaces: namespaces.clone(),
                consumer_namespaces: consumer.namespaces.clone(),
                recorder: tools.recorder.clone(),
                metrics: Arc::clone(&tools.sync_metrics),
                budget: budget.clone(),
            },
            home: Arc::clone(&consumer.home),
        });
        let core = Arc::new(Core {
            contract: reached.contract.clone(),
            clients: reached.clients.clone(),
            consumer,
            exports: Exports::default(),
            schemas: Cache::start(watch.clone(), Source::of::<BoundSchema>(Some(namespace))),
            namespaces,
            cluster_binding: Cache::start(
                watch.clone(),
                Source::of::<ClusterBinding>(Some(namespace)).fields(format!("metadata.name={CLUSTER_BINDING}")),
            ),
            reports: Reports::default(),
            claims,
            budget,
            credential: credential.clone(),
            intervals: Arc::new(Intervals::new(settings.polling_interval)),
            settings,
            metrics,
            heartbeat: watch::Sender::default(),
            wanted: watch::Sender::default(),
            consent: watch::Sender::new(None),
        });
        core.keep(reached);
        let wake = Arc::new(Notify::new());
        let follow = Follow {
            exports: core.exports.clone(),
            credential,
            namespace: Arc::clone(namespace),
            watch: watch.clone(),
            pause: core.intervals.shortest(),
            retry: core.settings.polling_interval,
        };
        let tasks = [
            tokio::spawn(follow.run()),
            tokio::spawn(heartbeat::run(Arc::clone(&core), Arc::clone(&wake))),
            tokio::spawn(renewal::run(Arc::clone(&core))),
            tokio::spawn(secret::run(Arc::clone(&core))),
            tokio::spawn(schema_status::run(Arc::clone(&core))),
            tokio::spawn(wake_on(core.credential.changes(), Arc::clone(&wake))),
            tokio::spawn(wake_on(core.consent.subscribe(), Arc::clone(&wake))),
            tokio::spawn(look_again_on(core.exports.changes(), Arc::clone(&core))),
            tokio::spawn(doubt::on_failure(Arc::clone(&core))),
            tokio::spawn(doubt::on_refusal(Arc::clone(&core))),
        ];
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            _subscriptions: subscriptions(&core, &wake),
            _tasks: tasks.into_iter().map(AbortOnDropHandle::new).collect(),
            core,
        }
    }

    /// Tells this session from any other of this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The contract.
    pub fn contract(&self) -> &Contract {
        &self.core.contract
    }

    /// Clients of the provider.
    pub fn clients(&self) -> &Clients {
        &self.core.clients
    }

    /// What the contract exports.
    pub fn exports(&self) -> &Exports {
        &self.core.exports
    }

    /// Its schemas.
    pub fn schemas(&self) -> &Cache<BoundSchema> {
        &self.core.schemas
    }

    /// Its namespaces.
    pub fn namespaces(&self) -> &Cache<APIServiceNamespace> {
        &self.core.namespaces
    }

    /// What the provider says of itself.
    pub fn cluster_binding(&self) -> &Cache<ClusterBinding> {
        &self.core.cluster_binding
    }

    /// Its credential.
    pub fn credential(&self) -> &Credential {
        &self.core.credential
    }

    /// How the heartbeat goes.
    pub fn heartbeat(&self) -> watch::Receiver<Heartbeat> {
        self.core.heartbeat.subscribe()
    }

    /// Where to say how exports and schemas are doing.
    pub fn reports(&self) -> &Reports {
        &self.core.reports
    }

    /// How much is under way at a time for this provider.
    pub fn budget(&self) -> &Budget {
        &self.core.budget
    }

    /// What its bindings claim.
    pub fn claims(&self) -> &Claims {
        &self.core.claims
    }

    /// A credential of this contract that was dialled: taken if it is newer.
    pub fn offer(&self, reached: &Reached) {
        self.core.offer(reached);
    }

    /// Where the exports cannot be followed, they are asked for this often while the wish lives, or as often as somebody else
    /// wishes who shares the session.
    pub fn poll_every(&self, interval: Duration) -> Wish {
        self.core.intervals.wish(interval)
    }

    /// Keeps a copy of the kubeconfig that is held, so that what began with it can be undone when the Secret is gone.
    pub fn keep(&self, own: &Fingerprint, document: &[u8]) {
        if self.core.credential.held().access.fingerprint != *own {
            return;
        }
        self.core.wanted.send_if_modified(|wanted| {
            let is_new = wanted.document.as_ref().is_none_or(|(known, _)| known != own);
            if is_new {
                wanted.document = Some((own.clone(), document.to_vec().into()));
            }
            is_new
        });
    }

    /// The kubeconfig that a binding or a bundle names leads here.
    pub fn know(&self, binding: &str, own: &Fingerprint) {
        self.core.wanted.send_if_modified(|wanted| {
            let before = wanted.origins.insert(binding.into(), own.clone());
            before.as_ref() != Some(own)
        });
    }

    /// The user consents, until then, to take the contract over from another cluster.
    pub fn consent_until(&self, until: Timestamp) {
        self.core.consent.send_if_modified(|consent| {
            let longer = consent.is_none_or(|known| known < until);
            if longer {
                *consent = Some(until);
            }
            longer
        });
    }
}

fn subscriptions(core: &Arc<Core>, wake: &Arc<Notify>) -> Vec<Subscription> {
    let wake = Arc::clone(wake);
    // Weak, for the caches are part of what they would keep alive.
    let weak = Arc::downgrade(core);
    vec![
        core.cluster_binding.subscribe(move |_| wake.notify_one()),
        core.schemas.subscribe(move |_| {
            if let Some(core) = weak.upgrade() {
                core.reports.look_again();
            }
        }),
    ]
}

async fn wake_on<T>(mut changes: watch::Receiver<T>, wake: Arc<Notify>) {
    while changes.changed().await.is_ok() {
        wake.notify_one();
    }
}

async fn look_again_on(mut changes: watch::Receiver<u64>, core: Arc<Core>) {
    while changes.changed().await.is_ok() {
        core.reports.look_again();
    }
}

// === impl Core ===

impl Core {
    fn offer(&self, reached: &Reached) {
        let schedule = match &reached.renewed {
            Some(renewed) => renewed.schedule,
            None => credential::schedule_of(&reached.access, Timestamp::now()),
        };
        self.credential.offer(&reached.access, schedule);
        self.keep(reached);
    }

    /// A renewed credential: used at once, and stored. Fails where it is not used here.
    fn take(&self, renewed: Renewed) -> Result<(), &'static str> {
        let fingerprint = renewed.access.fingerprint.clone();
        let outcome = if renewed.access.endpoint != self.credential.held().access.endpoint {
            // It is found in the Secret, and a session over that connection takes over.
            Err("the backend granted it for another connection")
        } else if self.credential.offer(&renewed.access, renewed.schedule) {
            Ok(())
        } else {
            return Err("the backend granted one that is not newer");
        };
        self.wanted
            .send_modify(|wanted| wanted.document = Some((fingerprint, renewed.document)));
        outcome
    }

    /// Stores what was granted on the way to the contract.
    fn keep(&self, reached: &Reached) {
        if let Some(renewed) = &reached.renewed {
            let document = (renewed.access.fingerprint.clone(), renewed.document.clone());
            self.wanted.send_modify(|wanted| wanted.document = Some(document));
        }
    }

    fn set_heartbeat(&self, heartbeat: Heartbeat) {
        self.heartbeat.send_if_modified(|known| {
            let changed = *known != heartbeat;
            *known = heartbeat;
            changed
        });
    }

    fn has_consent(&self) -> bool {
        self.consent.borrow().is_some_and(|until| until > Timestamp::now())
    }

    /// Whether the contract is another cluster's.
    pub(crate) fn is_other_clusters(&self) -> bool {
        matches!(&*self.heartbeat.borrow(), Heartbeat::OtherCluster { .. })
    }
}
