//! The open sessions, one per contract.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Weak},
};

use bindery_runtime::{events::Recorder, kubeconfig::ProviderAccess};
use parking_lot::Mutex;

use super::{Session, SessionSettings, connect::ContractConnection, session_core::SessionTools};
use crate::{consumer::Consumer, engine, holder::Holders, metrics::Metrics};

/// The open sessions.
#[derive(Debug)]
pub struct Sessions {
    /// By UID of the contract. Bindings and bundles own the sessions.
    open: Mutex<HashMap<Arc<str>, Weak<Session>>>,
    tools: SessionTools,
}

impl Sessions {
    /// A registry without sessions.
    pub fn new(
        consumer: Consumer,
        recorder: Recorder,
        metrics: Arc<Metrics>,
        sync_metrics: Arc<engine::Metrics>,
        holders: Holders,
    ) -> Self {
        let tools = SessionTools {
            consumer,
            recorder,
            metrics,
            sync_metrics,
            holders: Arc::new(holders),
        };
        Self {
            open: Mutex::default(),
            tools,
        }
    }

    /// Returns the session of the contract that was reached. An open session is offered the credential; a new session is
    /// opened if there is none, or if the contract was reached over another connection with a newer credential.
    pub fn enter(&self, reached: &ContractConnection, settings: SessionSettings) -> Arc<Session> {
        let mut open = self.open.lock();
        let mut before = None;
        if let Some(session) = open.get(&reached.contract.uid).and_then(Weak::upgrade) {
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
        open.retain(|_, session| session.strong_count() > 0);
        let session = Arc::new(Session::start(reached, before.as_deref(), settings, &self.tools));
        open.insert(Arc::clone(&reached.contract.uid), Arc::downgrade(&session));
        session
    }

    /// Returns which contract a kubeconfig reaches, if an open session has used it: by the UID that was read last, if one was. `pinned`
    /// is the pin of the binding or bundle that asks.
    pub fn recall(&self, access: &Arc<ProviderAccess>, pinned: Option<&str>) -> Option<Arc<ContractConnection>> {
        let sessions: Vec<_> = self.open.lock().values().filter_map(Weak::upgrade).collect();
        let core = sessions
            .iter()
            .map(|session| &session.core)
            .filter(|core| core.credential.has_held(&access.fingerprint))
            .max_by_key(|core| pinned == Some(&*core.contract.uid))?;
        Some(Arc::new(ContractConnection {
            contract: core.contract_for(access, pinned),
            found: core.found().now,
            origin: access.fingerprint.clone(),
            access: Arc::clone(access),
            clients: core.sides.provider.clone(),
            token: core.credential.token().cloned(),
            renewed: None,
        }))
    }

    /// Forgets holders of contracts that nothing here is bound to any more. `used` are the UIDs of the contracts of bindings and bundles.
    pub fn tidy_holders(&self, used: &BTreeSet<String>) {
        self.tools.holders.tidy(used);
    }

    /// The open sessions.
    pub fn open(&self) -> Vec<Arc<Session>> {
        self.open.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Whether a contract has an open session.
    pub fn is_open(&self, contract_uid: &str) -> bool {
        let open = self.open.lock();
        open.get(contract_uid).is_some_and(|session| session.strong_count() > 0)
    }
}
