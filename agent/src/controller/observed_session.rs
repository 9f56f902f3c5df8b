//! What a session with a provider tells the controllers, as one snapshot.

use std::sync::Arc;

use bindery_api::names::CLUSTER_BINDING;

use crate::{
    consumer::Consumer,
    session::{
        Session,
        credential::RenewalState,
        exports::ExportLookup,
        heartbeat::Heartbeat,
        provider_rights::{LIST_CLUSTER_BINDINGS, ProviderRight, WRITE_HEARTBEAT},
    },
};

/// A renewal is reported as failing after this many failures in a row.
const RENEWAL_FAILURES_SHOWN: u32 = 3;

/// State of a session at one moment.
#[derive(Clone, Debug)]
pub struct ObservedSession {
    /// Number of the session, unique in this process.
    pub id: u64,
    /// UID of the contract namespace.
    pub contract_uid: Arc<str>,
    /// Name of the contract namespace.
    pub contract: Arc<str>,
    /// The export that a binding names.
    pub export: ExportLookup,
    /// Which consumer cluster the contract is pinned to.
    pub pin: ClusterPin,
    /// The last heartbeat.
    pub heartbeat: Heartbeat,
    /// Why the credential has expired for good; `None` while it works or may be renewed.
    pub expired: Option<String>,
    /// Why the credential is not renewed, though it still works.
    pub renewal_fails: Option<String>,
    /// Name of the provider for people.
    pub pretty_name: Option<String>,
    /// Whether the kubeconfig names a gRPC backend.
    pub has_backend: bool,
    /// The rights in the contract namespace that the konnector is known to lack.
    pub missing_rights: Vec<ProviderRight>,
    /// Whether the konnector may read the UID of the contract, and it is that of the session.
    pub is_verified: bool,
}

/// Which consumer cluster a contract is pinned to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterPin {
    /// The provider has not said it yet.
    Unknown,
    /// This cluster, or a provider that does not record clusters.
    Ours,
    /// Nothing tells, since the konnector may not read or write the record.
    Unverified,
    /// Another cluster: nothing may be written.
    Other {
        /// UID of that cluster's kube-system namespace.
        recorded: String,
    },
}

impl ObservedSession {
    /// Takes a snapshot of a session. `takeover` is true where the user consents to take the contract over from another
    /// cluster.
    pub fn of(session: &Session, consumer: &Consumer, export: ExportLookup, takeover: bool) -> Self {
        let contract = session.contract();
        let heartbeat = session.heartbeat().borrow().clone();
        let cluster_binding = session.cluster_binding().get(&contract.namespace, CLUSTER_BINDING);
        let recorded = cluster_binding
            .as_ref()
            .and_then(|seen| seen.status.as_ref()?.consumer_cluster_uid.as_deref());
        let verification = session.verification().borrow().clone();
        let is_listed = session.cluster_binding().is_synced();
        let lacks_record =
            verification.lacks(WRITE_HEARTBEAT) || (!is_listed && verification.lacks(LIST_CLUSTER_BINDINGS));
        let pin = match (recorded, consumer.cluster_uid()) {
            (Some(recorded), Some(ours)) if recorded == ours => ClusterPin::Ours,
            // With consent the next heartbeat takes the contract over.
            (Some(_), Some(_)) if takeover => ClusterPin::Unknown,
            (Some(recorded), Some(_)) => ClusterPin::Other {
                recorded: recorded.to_owned(),
            },
            // A provider that took the heartbeat and does not record the cluster is kube-bind's.
            (None, Some(_)) if heartbeat == Heartbeat::Beating && cluster_binding.is_some() => ClusterPin::Ours,
            (None, Some(_)) if lacks_record => ClusterPin::Unverified,
            _ => ClusterPin::Unknown,
        };
        let held = session.credential().held();
        let renewal_fails = match &held.renewal {
            RenewalState::Failing { message, count } if *count >= RENEWAL_FAILURES_SHOWN => Some(message.clone()),
            RenewalState::Denied { message } => Some(message.clone()),
            RenewalState::Well | RenewalState::Failing { .. } => None,
        };
        Self {
            id: session.id(),
            contract_uid: Arc::clone(&contract.uid),
            contract: Arc::clone(&contract.namespace),
            export,
            pin,
            heartbeat,
            expired: held.expired(tokio::time::Instant::now()),
            renewal_fails,
            pretty_name: cluster_binding.map(|seen| seen.spec.provider_pretty_name.clone()),
            has_backend: held.access.backend.is_some(),
            is_verified: verification.found.as_deref() == Some(&*contract.uid),
            missing_rights: verification.missing,
        }
    }

    /// Whether the konnector may read all that tells this contract from another, and which cluster it serves. Otherwise nothing
    /// that the provider shows is a reason to delete or to end anything.
    pub fn is_trusted(&self) -> bool {
        self.is_verified && self.pin != ClusterPin::Unverified
    }

    /// Whether a right in the contract namespace is known to be missing.
    pub fn lacks(&self, right: ProviderRight) -> bool {
        self.missing_rights.contains(&right)
    }
}
