//! Which kubeconfig a binding or a bundle uses, and which contract that reaches.

use std::{hash::Hash, sync::Arc};

use bindery_api::v1alpha2::ClusterSecretKeyRef;
use bindery_runtime::kubeconfig::{Fingerprint, ProviderAccess, Refusal};
use k8s_openapi::api::core::v1::Secret;

use crate::{
    consumer::Consumer,
    contract::{Contract, is_unverified},
    session::{
        Sessions,
        connect::{ConnectAttempts, ConnectError, Connector, ContractConnection, ReachTerms},
        credential_secret::{self, StoredCredential},
        polling::PollPolicy,
    },
};

/// Why the Secret of a binding or bundle cannot be used. `at` is the reference to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretProblem {
    /// The reference names a namespace whose Secrets the konnector does not read.
    #[error(
        "Secret {at} is not read: the konnector reads Secrets only in namespace {namespace}; bind again with a Secret there"
    )]
    Elsewhere {
        /// The reference to the Secret.
        at: Box<ClusterSecretKeyRef>,
        /// The namespace whose Secrets the konnector reads.
        namespace: String,
    },
    /// The Secret leads to a contract that another konnector of this cluster serves.
    #[error(
        "Secret {at} leads to contract {contract}, which the konnector of namespace {namespace} serves; bind with that konnector, or \
         with an identity of your own: kubectl bind --cluster-identity ID"
    )]
    ServedElsewhere {
        /// The reference to the Secret.
        at: Box<ClusterSecretKeyRef>,
        /// Name of the contract.
        contract: String,
        /// The namespace of the other konnector.
        namespace: String,
    },
    /// The Secret does not exist.
    #[error("Secret {at} does not exist; create it with the provider's kubeconfig in key {}, or bind again", at.key)]
    NotFound {
        /// The reference to the Secret.
        at: Box<ClusterSecretKeyRef>,
    },
    /// The Secret lacks the key.
    #[error("Secret {at} has no key {}; store the provider's kubeconfig there", at.key)]
    NoKey {
        /// The reference to the Secret.
        at: Box<ClusterSecretKeyRef>,
    },
    /// The Secret holds a kubeconfig that is refused.
    #[error("Secret {at}, key {}: {refusal}", at.key)]
    Refused {
        /// The reference to the Secret.
        at: Box<ClusterSecretKeyRef>,
        /// Why the kubeconfig is refused.
        refusal: Refusal,
    },
}

/// Which contract the credentials of a binding or bundle reach. `C` is the contract or a value that contains it.
#[derive(Clone, Debug)]
pub enum ContractAccess<C = Contract> {
    /// The Secret cannot be used.
    Problem(SecretProblem),
    /// The provider has not answered yet.
    Connecting,
    /// The provider cannot be reached or gives no access.
    Failed(ConnectError),
    /// The credentials reach another contract than the pinned one: nothing is written until the user consents.
    Changed {
        /// UID of the pinned contract.
        pinned: String,
        /// The contract that the credentials reach.
        found: C,
    },
    /// The credentials reach this contract.
    Reached(C),
}

/// The credentials that a binding or bundle may use.
#[derive(Clone, Debug)]
pub struct KnownCredentials {
    /// The kubeconfig in the Secret that the binding or bundle names.
    pub secret: Result<Arc<ProviderAccess>, SecretProblem>,
    /// The konnector's own copy of the pinned contract's credential.
    pub stored: Option<StoredCredential>,
    /// UID of the pinned contract.
    pub pinned: Option<String>,
    /// Whether the user consents to another contract.
    pub consent: bool,
    /// Whether the binding is being deleted: then the stored credential of the pinned contract may be used too.
    pub unbinding: bool,
}

impl SecretProblem {
    /// Reason of the condition SecretValid of a binding.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "KubeconfigSecretNotFound",
            Self::Elsewhere { .. } | Self::ServedElsewhere { .. } | Self::NoKey { .. } | Self::Refused { .. } => {
                "KubeconfigSecretInvalid"
            }
        }
    }

    /// Reason of the condition SecretValid of a bundle, which tells more problems apart.
    pub fn exact_reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "KubeconfigSecretNotFound",
            Self::Elsewhere { .. } => "KubeconfigSecretElsewhere",
            Self::ServedElsewhere { .. } => "ContractServedElsewhere",
            Self::NoKey { .. } => "KubeconfigKeyNotFound",
            Self::Refused { refusal, .. } => match refusal {
                Refusal::Dangerous { .. } => "KubeconfigUnsafe",
                Refusal::NoNamespace | Refusal::InvalidNamespace => "KubeconfigNamespaceMissing",
                _ => "KubeconfigSecretInvalid",
            },
        }
    }
}

/// Reads the kubeconfig that a reference names. `secret` is the Secret of that name in the konnector namespace.
pub fn read(
    reference: &ClusterSecretKeyRef,
    secret: Option<&Secret>,
    namespace: &str,
) -> Result<Arc<ProviderAccess>, SecretProblem> {
    let at = Box::new(reference.clone());
    if at.namespace != namespace {
        let namespace = namespace.to_owned();
        return Err(SecretProblem::Elsewhere { at, namespace });
    }
    let Some(secret) = secret else {
        return Err(SecretProblem::NotFound { at });
    };
    let Some(document) = secret.data.as_ref().and_then(|data| data.get(&at.key)) else {
        return Err(SecretProblem::NoKey { at });
    };
    match ProviderAccess::parse(&document.0) {
        Ok(access) => Ok(Arc::new(access)),
        Err(refusal) => Err(SecretProblem::Refused { at, refusal }),
    }
}

impl<C> ContractAccess<C> {
    /// Replaces the contract by another value.
    pub fn map<D>(&self, other: impl FnOnce(&C) -> D) -> ContractAccess<D> {
        match self {
            Self::Problem(problem) => ContractAccess::Problem(problem.clone()),
            Self::Connecting => ContractAccess::Connecting,
            Self::Failed(error) => ContractAccess::Failed(error.clone()),
            Self::Changed { pinned, found } => ContractAccess::Changed {
                pinned: pinned.clone(),
                found: other(found),
            },
            Self::Reached(reached) => ContractAccess::Reached(other(reached)),
        }
    }
}

impl KnownCredentials {
    /// Reads the credentials of a binding or bundle from the caches, without consent to another contract.
    pub fn of(consumer: &Consumer, reference: &ClusterSecretKeyRef, pinned: Option<&str>) -> Self {
        let secret = consumer.secrets.get(&consumer.namespace, &reference.name);
        Self {
            secret: read(reference, secret.as_deref(), &consumer.namespace),
            stored: pinned.and_then(|uid| stored_credential(consumer, uid)),
            pinned: pinned.map(str::to_owned),
            consent: false,
            unbinding: false,
        }
    }

    /// Tells which contract the credentials reach: from the open sessions, or else by asking the provider.
    pub fn reach<K: Eq + Hash + Clone + Send + Sync + 'static>(
        &self,
        sessions: &Sessions,
        connector: &Connector,
        attempts: &mut ConnectAttempts<K>,
        policy: Option<PollPolicy>,
    ) -> ContractAccess<Arc<ContractConnection>> {
        attempts.retain(&self.candidates());
        self.resolve(
            |reached: &Arc<ContractConnection>| &reached.contract,
            |access| {
                let needs_uid = self.needs_uid(access);
                let recalled = sessions.recall(access, self.pinned.as_deref());
                let has_uid = |reached: &Arc<ContractConnection>| !is_unverified(&reached.contract.uid);
                let reached = match recalled.filter(|reached| !needs_uid || has_uid(reached)) {
                    Some(reached) => Ok(reached),
                    None => attempts.connect(connector, access, ReachTerms { policy, needs_uid })?,
                };
                Some(reached.map(|reached| self.identify(reached, access)))
            },
        )
    }

    /// Whether the UID of the contract has to be read, since one is pinned and nothing else tells that the kubeconfig reaches it.
    pub fn needs_uid(&self, access: &ProviderAccess) -> bool {
        let is_pinned = self.pinned.as_deref().is_some_and(|uid| !is_unverified(uid));
        // The stored credential reached the pinned contract there.
        let is_there = |stored: &StoredCredential| stored.access.location == access.location;
        is_pinned && !self.stored.as_ref().is_some_and(is_there)
    }

    /// The connection, to the contract as [`identity`](Self::identity) knows it.
    fn identify(&self, reached: Arc<ContractConnection>, access: &ProviderAccess) -> Arc<ContractConnection> {
        let contract = self.identity(&reached.contract, access);
        if contract == reached.contract {
            return reached;
        }
        let mut known = ContractConnection::clone(&reached);
        known.contract = contract;
        Arc::new(known)
    }

    /// Which contract a kubeconfig reaches, where the provider shows `found`. An unverified contract is the pinned one, which the
    /// connection led to before; and one that is pinned by the digest of its location stays unverified, also when a UID can be read, until
    /// the user consents: the namespace may have been made anew meanwhile. What the provider lacks is no reason to end anything.
    fn identity(&self, found: &Contract, access: &ProviderAccess) -> Contract {
        let is_held = |pinned: &&str| {
            if is_unverified(pinned) {
                *Contract::unverified(access).uid == **pinned && !self.accepts(&found.uid)
            } else {
                is_unverified(&found.uid)
            }
        };
        Contract {
            uid: self
                .pinned
                .as_deref()
                .filter(is_held)
                .map_or_else(|| Arc::clone(&found.uid), Arc::from),
            namespace: Arc::clone(&found.namespace),
        }
    }

    /// Whether the binding or bundle may be served by a contract.
    fn accepts(&self, uid: &str) -> bool {
        let is_pinned = self.pinned.as_deref().is_none_or(|pinned| pinned == uid);
        is_pinned || self.consent
    }

    /// The kubeconfigs to try, the best first.
    pub fn candidates(&self) -> Vec<Arc<ProviderAccess>> {
        let stored = self.stored.as_ref();
        let Ok(given) = &self.secret else {
            // A removed Secret ends the access. Only the deletion of the binding may still use the stored credential.
            return stored
                .filter(|_| self.unbinding)
                .map(|stored| Arc::clone(&stored.access))
                .into_iter()
                .collect();
        };
        let is_known = |stored: &&StoredCredential| stored.is_of(&given.fingerprint);
        let mut list = vec![Arc::clone(given)];
        if let Some(stored) = stored.filter(|stored| self.unbinding || is_known(stored)) {
            let first = is_known(&stored) && !given.lifetime.is_newer_than(&stored.access.lifetime);
            list.insert(usize::from(!first), Arc::clone(&stored.access));
        }
        list.dedup_by(|one, other| one.fingerprint == other.fingerprint);
        list
    }

    /// Fingerprint of the Secret's kubeconfig, if it is known to reach the same contract as the kubeconfig `origin`.
    pub fn own(&self, origin: &Fingerprint) -> Option<&Fingerprint> {
        let own = &self.secret.as_ref().ok()?.fingerprint;
        let is_known = || {
            let stored = self
                .stored
                .as_ref()
                .filter(|stored| stored.access.fingerprint == *origin);
            stored.is_some_and(|stored| stored.is_of(own))
        };
        (own == origin || is_known()).then_some(own)
    }

    /// Tells which contract the credentials reach. `connect` returns the outcome of trying one of them; `None` while that is
    /// under way.
    pub fn resolve<C>(
        &self,
        contract: impl Fn(&C) -> &Contract,
        mut connect: impl FnMut(&Arc<ProviderAccess>) -> Option<Result<C, ConnectError>>,
    ) -> ContractAccess<C> {
        let mut failure = match &self.secret {
            Err(problem) => Some(ContractAccess::Problem(problem.clone())),
            Ok(_) => None,
        };
        for candidate in self.candidates() {
            match connect(&candidate) {
                None => return ContractAccess::Connecting,
                Some(Err(error)) => failure = failure.or(Some(ContractAccess::Failed(error))),
                Some(Ok(reached)) => match &self.pinned {
                    Some(pinned) if !self.accepts(&contract(&reached).uid) => {
                        let changed = ContractAccess::Changed {
                            pinned: pinned.clone(),
                            found: reached,
                        };
                        failure = failure.or(Some(changed));
                    }
                    _ => return ContractAccess::Reached(reached),
                },
            }
        }
        // Without a candidate there is a problem with the Secret.
        failure.unwrap_or(ContractAccess::Connecting)
    }
}

/// Returns the konnector's own copy of the credential of a contract.
pub fn stored_credential(consumer: &Consumer, contract_uid: &str) -> Option<StoredCredential> {
    let stored = consumer
        .secrets
        .get(&consumer.namespace, &credential_secret::name(contract_uid))?;
    credential_secret::read(&stored, contract_uid)
}

#[cfg(test)]
#[path = "tests/access.rs"]
mod tests;
