//! One session per contract: the clients of its provider, the caches of its objects there, and what is reported there.
//!
//! All bindings and bundles of a contract share its session, which ends when the last of them drops it. A newer credential of
//! the same contract is used without a pause; a kubeconfig with another address or CA opens another session.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bindery_api::{
    holder::{HolderOrder, RecordedHolder},
    v1alpha2::{BoundSchema, ClusterBinding, SecretRef},
};
use bindery_runtime::{
    cache::{Cache, Subscription},
    guard::{Faults, Limits},
    kubeconfig::Fingerprint,
};
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

pub mod backend;
pub mod client_certificate;
pub mod connect;
pub mod credential;
pub mod credential_secret;
pub mod exports;
mod found_uids;
pub mod heartbeat;
pub mod network;
pub mod polling;
pub mod provider_probe;
pub mod provider_rights;
mod registry;
pub mod renewal;
pub mod renewal_schedule;
mod report_writer;
mod rights_review;
mod session_core;
mod staleness_check;
pub mod status_reports;
mod traced_calls;

#[cfg(test)]
#[path = "session/tests/kubeconfigs.rs"]
pub(crate) mod kubeconfigs;

pub use registry::Sessions;

use crate::{claims::Claims, connection::Sides, contract::Contract, engine::Surroundings, holder::Standing};
use client_certificate::ClientCertificateFiles;
use connect::ContractConnection;
use credential::SessionCredential;
use exports::{Exports, follower::ExportFollower};
use heartbeat::Heartbeat;
use network::Network;
use polling::PollRequest;
use provider_rights::Verification;
use session_core::{SessionCore, SessionTools};
use status_reports::StatusReports;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Settings of a session.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// The heartbeat interval that the konnector promises to the provider.
    pub heartbeat_interval: Duration,
    /// The longest pause before a provider or backend that does not answer is asked again.
    pub polling_interval: Duration,
    /// The Secret with the kubeconfig, which heartbeats report to the provider.
    pub secret: SecretRef,
    /// The client certificate for backends.
    pub client_certificate: ClientCertificateFiles,
    /// The network on which the backend is reached.
    pub network: Network,
    /// How much of what the provider sends is held.
    pub limits: Limits,
}

/// A session with the provider of a contract. Dropping it ends the session.
pub struct Session {
    id: u64,
    core: Arc<SessionCore>,
    /// Wakes the task that sends heartbeats.
    wake: Arc<Notify>,
    _subscriptions: [Subscription; 2],
    _tasks: Vec<AbortOnDropHandle<()>>,
}

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
    /// Opens a session over a connection. `before` is the session of the same contract over another connection.
    fn start(
        reached: &ContractConnection,
        before: Option<&Self>,
        settings: SessionSettings,
        tools: &SessionTools,
    ) -> Self {
        tracing::info!(contract = %reached.contract.namespace, server = reached.access.server(), "session begins");
        tools.metrics.session_began();
        let refused = before.map(|before| &before.core.credential);
        let core = Arc::new(SessionCore::new(reached, refused, settings, tools));
        core.store(reached);
        let wake = Arc::new(Notify::new());
        let follower = ExportFollower {
            exports: core.exports.clone(),
            credential: core.credential.clone(),
            namespace: Arc::clone(&core.contract.namespace),
            watch: core.sides.provider.watch.clone(),
            pause: core.intervals.shortest(),
            retry: core.settings.polling_interval,
            guard: core.surroundings.guard.clone(),
        };
        let tasks = [
            tokio::spawn(follower.run()),
            tokio::spawn(heartbeat::run(Arc::clone(&core), Arc::clone(&wake))),
            tokio::spawn(renewal::run(Arc::clone(&core))),
            tokio::spawn(credential_secret::run(Arc::clone(&core))),
            tokio::spawn(report_writer::run(Arc::clone(&core))),
            tokio::spawn(rights_review::run(Arc::clone(&core))),
            tokio::spawn(wake_on(core.credential.changes(), Arc::clone(&wake))),
            tokio::spawn(wake_on(core.consent.subscribe(), Arc::clone(&wake))),
            tokio::spawn(requeue_reports_on(core.exports.changes(), Arc::clone(&core))),
            tokio::spawn(requeue_reports_on(core.holder.holding().standing(), Arc::clone(&core))),
            tokio::spawn(wake_on(core.holder.holding().raised(), Arc::clone(&wake))),
            tokio::spawn(wake_on(core.verification.subscribe(), Arc::clone(&wake))),
            tokio::spawn(staleness_check::on_failure(Arc::clone(&core))),
            tokio::spawn(staleness_check::on_refusal(Arc::clone(&core))),
        ];
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            _subscriptions: subscriptions(&core, Arc::clone(&wake)),
            wake,
            _tasks: tasks.into_iter().map(AbortOnDropHandle::new).collect(),
            core,
        }
    }

    /// Number of the session, unique in this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The contract.
    pub fn contract(&self) -> &Contract {
        &self.core.contract
    }

    /// Clients of both clusters.
    pub fn sides(&self) -> &Sides {
        &self.core.sides
    }

    /// What all engines of the session share.
    pub fn surroundings(&self) -> &Surroundings {
        &self.core.surroundings
    }

    /// The exports of the contract.
    pub fn exports(&self) -> &Exports {
        &self.core.exports
    }

    /// The schemas of the contract.
    pub fn schemas(&self) -> &Cache<BoundSchema> {
        &self.core.schemas
    }

    /// The ClusterBinding of the contract.
    pub fn cluster_binding(&self) -> &Cache<ClusterBinding> {
        &self.core.cluster_binding
    }

    /// The credential of the session.
    pub fn credential(&self) -> &SessionCredential {
        &self.core.credential
    }

    /// The outcome of the last heartbeat.
    pub fn heartbeat(&self) -> watch::Receiver<Heartbeat> {
        self.core.heartbeat.subscribe()
    }

    /// Whether the contract is verified, and the rights that are missing on the provider.
    pub fn verification(&self) -> watch::Receiver<Verification> {
        self.core.verification.subscribe()
    }

    /// Where this konnector stands with the contract, as its holder or not.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.core.holder.holding().standing()
    }

    /// What is wrong with what the provider sends.
    pub fn faults(&self) -> watch::Receiver<Faults> {
        self.core.surroundings.guard.faults()
    }

    /// Notes what the user said about the holder of the contract.
    pub fn order_holder(&self, order: HolderOrder) {
        self.core.holder.order(order);
        self.wake.notify_one();
    }

    /// Takes the contract again if it was given up, for a binding that does not end.
    pub fn resume_holding(&self) {
        if self.core.holder.is_ending() {
            self.core.holder.resume();
            self.wake.notify_one();
        }
    }

    /// Gives the contract up, because its last binding ends. Its standing tells when that is done.
    pub fn end_holding(&self) {
        if !self.core.holder.is_ending() {
            self.core.holder.end();
            self.wake.notify_one();
        }
    }

    /// Takes reports about exports and schemas for the provider.
    pub fn reports(&self) -> &StatusReports {
        &self.core.reports
    }

    /// The claims of the contract's bindings.
    pub fn claims(&self) -> &Claims {
        &self.core.claims
    }

    /// Requests that exports are polled at least this often where they cannot be watched, until the request is dropped.
    pub fn poll_every(&self, interval: Duration) -> PollRequest {
        self.core.intervals.request(interval)
    }

    /// Stores a copy of the kubeconfig in use, so that bindings can be removed after their Secret is gone.
    pub fn store_copy(&self, own: &Fingerprint, kubeconfig: &[u8]) {
        if self.core.credential.held().access.fingerprint != *own {
            return;
        }
        self.core.desired_secret.send_if_modified(|desired| {
            let is_new = desired.document.as_ref().is_none_or(|(known, _)| known != own);
            if is_new {
                desired.document = Some((own.clone(), kubeconfig.to_vec().into()));
            }
            is_new
        });
    }

    /// Notes that the kubeconfig of a binding or bundle reaches this contract.
    pub fn note_origin(&self, holder: &str, own: &Fingerprint) {
        self.core.desired_secret.send_if_modified(|desired| {
            let before = desired.origins.insert(holder.into(), own.clone());
            before.as_ref() != Some(own)
        });
    }

    /// Notes that the user consents until this time to take the contract over from another cluster.
    pub fn consent_until(&self, until: Timestamp) {
        self.core.consent.send_if_modified(|known| {
            let longest = (*known).max(Some(until));
            std::mem::replace(known, longest) != longest
        });
    }
}

fn subscriptions(core: &Arc<SessionCore>, wake: Arc<Notify>) -> [Subscription; 2] {
    // Weak, since the caches are part of the core.
    let weak = Arc::downgrade(core);
    let holding = Weak::clone(&weak);
    [
        core.cluster_binding.subscribe(move |change| {
            if let (Some(core), Some(seen)) = (holding.upgrade(), change.new) {
                core.holder.suspect(&RecordedHolder::of(seen));
            }
            wake.notify_one();
        }),
        core.schemas.subscribe(move |_| {
            if let Some(core) = weak.upgrade() {
                core.reports.requeue_all();
            }
        }),
    ]
}

async fn wake_on<T>(mut changes: watch::Receiver<T>, wake: Arc<Notify>) {
    while changes.changed().await.is_ok() {
        wake.notify_one();
    }
}

async fn requeue_reports_on<T>(mut changes: watch::Receiver<T>, core: Arc<SessionCore>) {
    while changes.changed().await.is_ok() {
        core.reports.requeue_all();
    }
}
