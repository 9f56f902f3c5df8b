//! The state that the tasks of a session share.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{
    names::CLUSTER_BINDING,
    v1alpha2::{APIServiceNamespace, BoundSchema, ClusterBinding},
};
use bindery_runtime::{
    cache::Cache,
    events::Recorder,
    guard::{Guard, NameRule},
    kubeconfig::{Fingerprint, ProviderAccess},
    watch::Source,
};
use jiff::Timestamp;
use parking_lot::Mutex;
use secrecy::SecretSlice;
use tokio::sync::watch;

use super::{
    SessionSettings,
    backend::RenewedCredential,
    connect::ContractConnection,
    credential::{self, SessionCredential},
    exports::Exports,
    found_uids::FoundUids,
    polling::PollIntervals,
    provider_rights::Verification,
    renewal_schedule::RenewalSchedule,
    status_reports::StatusReports,
};
use crate::{
    claims::{Claims, Site},
    connection::Sides,
    consumer::Consumer,
    contract::Contract,
    engine::{self, Budget, Surroundings, Tally},
    holder::{ContractHolder, Holders},
    metrics::Metrics,
};

/// The state that the tasks of a session share.
#[derive(Debug)]
pub(super) struct SessionCore {
    pub(super) contract: Contract,
    /// The UIDs of the contract namespace that were read.
    found: Mutex<FoundUids>,
    pub(super) sides: Sides,
    pub(super) surroundings: Surroundings,
    pub(super) consumer: Consumer,
    pub(super) credential: SessionCredential,
    pub(super) exports: Exports,
    pub(super) schemas: Cache<BoundSchema>,
    pub(super) cluster_binding: Cache<ClusterBinding>,
    pub(super) reports: StatusReports,
    pub(super) claims: Claims,
    pub(super) settings: SessionSettings,
    pub(super) metrics: Arc<Metrics>,
    pub(super) intervals: Arc<PollIntervals>,
    pub(super) holder: Arc<ContractHolder>,
    pub(super) heartbeat: watch::Sender<Heartbeat>,
    pub(super) verification: watch::Sender<Verification>,
    /// Whether the konnector may not list the APIServiceNamespaces.
    pub(super) unreadable_namespaces: watch::Sender<bool>,
    /// Whether the provider forbade the write of a report.
    pub(super) reports_refused: watch::Sender<bool>,
    pub(super) desired_secret: watch::Sender<DesiredSecret>,
    /// Until when the user consents to take the contract over from another cluster.
    pub(super) consent: watch::Sender<Option<Timestamp>>,
}

/// What all sessions use.
#[derive(Clone, Debug)]
pub(super) struct SessionTools {
    pub(super) consumer: Consumer,
    pub(super) recorder: Recorder,
    pub(super) metrics: Arc<Metrics>,
    pub(super) sync_metrics: Arc<engine::Metrics>,
    pub(super) holders: Arc<Holders>,
}

/// The outcome of the last heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Heartbeat {
    /// No heartbeat was sent yet.
    #[default]
    Pending,
    /// The provider accepted the last heartbeat.
    Beating,
    /// The provider did not accept the last heartbeat.
    Failing {
        /// Why the provider did not accept it.
        message: String,
    },
    /// None is sent, because another konnector may hold the contract.
    Withheld,
    /// The contract serves another cluster, so nothing may be written.
    OtherCluster {
        /// UID of that cluster's kube-system namespace.
        recorded: String,
    },
}

/// The desired content of the konnector's own Secret of the contract.
#[derive(Clone, Debug, Default)]
pub struct DesiredSecret {
    /// The newest credential and its fingerprint, once one was granted.
    pub document: Option<(Fingerprint, SecretSlice<u8>)>,
    /// The kubeconfigs of bindings and bundles that are known to reach the contract, by name of the binding or bundle.
    pub origins: BTreeMap<Arc<str>, Fingerprint>,
}

impl SessionCore {
    /// Starts the caches of a session. Credentials that `refused`, which is that of an open session of the contract, remembers as
    /// refused are not used.
    pub(super) fn new(
        reached: &ContractConnection,
        refused: Option<&SessionCredential>,
        settings: SessionSettings,
        tools: &SessionTools,
    ) -> Self {
        let consumer = tools.consumer.clone();
        let namespace = &reached.contract.namespace;
        let watch = &reached.clients.watch;
        let (access, token) = (Arc::clone(&reached.access), reached.token.clone());
        let credential = match refused {
            Some(before) => before.succeed(access, schedule(reached), token),
            None => SessionCredential::new(
                access,
                schedule(reached),
                token,
                settings.client_certificate.clone(),
                settings.network.clone(),
            ),
        };
        let sides = Sides {
            consumer: consumer.clients.clone(),
            provider: reached.clients.clone(),
        };
        let unverified = Contract::unverified(&reached.access).uid;
        let holder = tools
            .holders
            .of(&reached.contract.uid, Some(&unverified), refused.is_some());
        let unreadable = watch::Sender::new(false);
        let guard = Guard::new(settings.limits);
        let surroundings = Surroundings {
            unreadable_namespaces: unreadable.subscribe(),
            namespaces: Cache::start(
                watch.clone(),
                Source::of::<APIServiceNamespace>(Some(namespace)).guarded(&guard, NameRule::Label),
            ),
            consumer_namespaces: consumer.namespaces.clone(),
            recorder: tools.recorder.clone(),
            metrics: Arc::clone(&tools.sync_metrics),
            budget: Budget::default(),
            tally: Tally::default(),
            holding: holder.holding().clone(),
            guard: guard.clone(),
        };
        let claims = Claims::new(Site {
            contract: reached.contract.clone(),
            sides: sides.clone(),
            around: surroundings.clone(),
            own_namespace: Arc::clone(&consumer.namespace),
        });
        Self {
            contract: reached.contract.clone(),
            found: Mutex::new(FoundUids {
                last: reached.found.clone(),
                now: reached.found.clone(),
            }),
            sides,
            surroundings,
            consumer,
            exports: Exports::guarded(&guard),
            schemas: Cache::start(
                watch.clone(),
                Source::of::<BoundSchema>(Some(namespace)).guarded(&guard, NameRule::Subdomain),
            ),
            cluster_binding: Cache::start(
                watch.clone(),
                Source::of::<ClusterBinding>(Some(namespace))
                    .fields(format!("metadata.name={CLUSTER_BINDING}"))
                    .guarded(&guard, NameRule::Subdomain),
            ),
            reports: StatusReports::default(),
            claims,
            credential,
            intervals: Arc::new(PollIntervals::new(settings.polling_interval)),
            settings,
            metrics: Arc::clone(&tools.metrics),
            holder,
            heartbeat: watch::Sender::default(),
            unreadable_namespaces: unreadable,
            verification: watch::Sender::new(Verification::of(reached)),
            reports_refused: watch::Sender::new(false),
            desired_secret: watch::Sender::default(),
            consent: watch::Sender::new(None),
        }
    }

    /// Uses the credential of a connection to the same contract if it is better than the one held.
    pub(super) fn offer(&self, reached: &ContractConnection) {
        self.credential.offer(&reached.access, schedule(reached));
        self.store(reached);
    }

    /// Uses and stores a renewed credential. Returns why it is not used here, if so.
    pub(super) fn take(&self, renewed: RenewedCredential) -> Result<(), &'static str> {
        let fingerprint = renewed.access.fingerprint.clone();
        let outcome = if renewed.access.endpoint != self.credential.held().access.endpoint {
            // It is stored, and a session over the other connection will use it.
            Err("the backend granted a credential for another connection")
        } else if self.credential.offer(&renewed.access, renewed.schedule) {
            Ok(())
        } else {
            return Err("the backend granted a credential that is not newer");
        };
        self.desired_secret
            .send_modify(|desired| desired.document = Some((fingerprint, renewed.document)));
        outcome
    }

    /// Stores the credential that was renewed to reach the contract, if one was.
    pub(super) fn store(&self, reached: &ContractConnection) {
        if let Some(renewed) = &reached.renewed {
            let document = (renewed.access.fingerprint.clone(), renewed.document.clone());
            self.desired_secret
                .send_modify(|desired| desired.document = Some(document));
        }
    }

    /// Publishes the outcome of a heartbeat if it changed.
    pub(super) fn set_heartbeat(&self, heartbeat: Heartbeat) {
        self.heartbeat.send_if_modified(|known| {
            let before = std::mem::replace(known, heartbeat);
            before != *known
        });
    }

    /// The UIDs of the contract namespace that were read.
    pub(super) fn found(&self) -> FoundUids {
        self.found.lock().clone()
    }

    /// Notes the UID of the contract namespace; `None` if it cannot be read.
    pub(super) fn note_uid(&self, uid: Option<&Arc<str>>) {
        let mut found = self.found.lock();
        found.now = uid.cloned();
        if uid.is_some() {
            found.last = uid.cloned();
        }
    }

    /// The contract that a kubeconfig of the session reaches, for a binding or bundle with this pin.
    pub(super) fn contract_for(&self, access: &ProviderAccess, pinned: Option<&str>) -> Contract {
        match self.found().known(&self.contract.uid, pinned) {
            Some(uid) => Contract {
                uid,
                namespace: Arc::clone(&self.contract.namespace),
            },
            None => Contract::unverified(access),
        }
    }

    /// Whether the user consents now to take the contract over from another cluster.
    pub(super) fn has_consent(&self) -> bool {
        self.consent.borrow().is_some_and(|until| until > Timestamp::now())
    }

    /// Whether the contract serves another cluster.
    pub(super) fn serves_other_cluster(&self) -> bool {
        matches!(&*self.heartbeat.borrow(), Heartbeat::OtherCluster { .. })
    }
}

/// When to renew the credential of a connection.
fn schedule(reached: &ContractConnection) -> RenewalSchedule {
    match &reached.renewed {
        Some(renewed) => renewed.schedule,
        None => credential::schedule_of(&reached.access, Timestamp::now()),
    }
}
