//! Which kubeconfig a binding or a bundle is served with, and what it leads to.

use std::{hash::Hash, sync::Arc};

use bindery_api::v1alpha2::ClusterSecretKeyRef;
use k8s_openapi::api::core::v1::Secret;

use crate::{
    consumer::Consumer,
    session::{
        Contract, Sessions,
        dial::{DialError, Dialer, Dials, Reached},
        pace::Pace,
        secret::{self, Stored},
    },
};
use bindery_runtime::kubeconfig::{Fingerprint, ProviderAccess, Refusal};

/// Why the Secret that is named is of no use. `at` is where it is said to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretProblem {
    /// It would stand in a namespace whose Secrets the konnector does not read.
    #[error(
        "Secret {at} is not read: the konnector reads Secrets in namespace {home} alone; bind again with one there"
    )]
    Elsewhere {
        /// The reference.
        at: Box<ClusterSecretKeyRef>,
        /// Where it must be.
        home: String,
    },
    /// It does not exist.
    #[error("Secret {at} does not exist; create it with the provider's kubeconfig in key {}, or bind again", at.key)]
    NotFound {
        /// The reference.
        at: Box<ClusterSecretKeyRef>,
    },
    /// It has no such key.
    #[error("Secret {at} has no key {}; store the provider's kubeconfig there", at.key)]
    NoKey {
        /// The reference.
        at: Box<ClusterSecretKeyRef>,
    },
    /// Its kubeconfig is not used.
    #[error("Secret {at}, key {}: {refusal}", at.key)]
    Refused {
        /// The reference.
        at: Box<ClusterSecretKeyRef>,
        /// Why.
        refusal: Refusal,
    },
}

/// What credentials lead to: a contract, or whatever holds one.
#[derive(Clone, Debug)]
pub enum Access<C = Contract> {
    /// The Secret is of no use.
    Problem(SecretProblem),
    /// The provider is being asked.
    Connecting,
    /// The provider was asked, and does not give access.
    Failed(DialError),
    /// Another contract than the one that is pinned; nothing is written until the user consents.
    Changed {
        /// UID that is pinned.
        pinned: String,
        /// What the Secret leads to.
        found: C,
    },
    /// The contract.
    Reached(C),
}

/// Who needs credentials: a binding, or a bundle.
#[derive(Clone, Debug)]
pub struct Holder<'a> {
    /// The Secret that it names.
    pub secret: &'a ClusterSecretKeyRef,
    /// UID of the contract that it is pinned to.
    pub pinned: Option<&'a str>,
    /// The user consents to another contract.
    pub consent: bool,
    /// It is being deleted: whatever reaches the pinned contract will do.
    pub unbinding: bool,
}

/// What is known of its credentials.
#[derive(Clone, Debug)]
pub struct Known {
    /// The Secret that is named.
    pub secret: Result<Arc<ProviderAccess>, SecretProblem>,
    /// The konnector's own Secret of the contract that is pinned.
    pub stored: Option<Stored>,
    /// UID of that contract.
    pub pinned: Option<String>,
    /// The user consents to another contract.
    pub consent: bool,
    /// Whatever reaches the pinned contract will do.
    pub unbinding: bool,
}

// === impl SecretProblem ===

impl SecretProblem {
    /// Reason of the condition SecretValid.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "KubeconfigSecretNotFound",
            Self::Elsewhere { .. } | Self::NoKey { .. } | Self::Refused { .. } => "KubeconfigSecretInvalid",
        }
    }

    /// The same of a bundle, which tells more of them apart.
    pub fn exact_reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "KubeconfigSecretNotFound",
            Self::Elsewhere { .. } => "KubeconfigSecretElsewhere",
            Self::NoKey { .. } => "KubeconfigKeyNotFound",
            Self::Refused { refusal, .. } => match refusal {
                Refusal::Dangerous { .. } => "KubeconfigUnsafe",
                Refusal::NoNamespace | Refusal::InvalidNamespace => "KubeconfigNamespaceMissing",
                _ => "KubeconfigSecretInvalid",
            },
        }
    }
}

/// Reads the kubeconfig that stands there. `secret` is the one of that name in the konnector's namespace.
pub fn read(
    reference: &ClusterSecretKeyRef,
    secret: Option<&Secret>,
    home: &str,
) -> Result<Arc<ProviderAccess>, SecretProblem> {
    let at = Box::new(reference.clone());
    if at.namespace != home {
        let home = home.to_owned();
        return Err(SecretProblem::Elsewhere { at, home });
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

// === impl Access ===

impl<C> Access<C> {
    /// The same, with something else in the contract's place.
    pub fn map<D>(&self, other: impl FnOnce(&C) -> D) -> Access<D> {
        match self {
            Self::Problem(problem) => Access::Problem(problem.clone()),
            Self::Connecting => Access::Connecting,
            Self::Failed(error) => Access::Failed(error.clone()),
            Self::Changed { pinned, found } => Access::Changed {
                pinned: pinned.clone(),
                found: other(found),
            },
            Self::Reached(reached) => Access::Reached(other(reached)),
        }
    }
}

// === impl Known ===

impl Known {
    /// What there is for a holder.
    pub fn of(consumer: &Consumer, holder: &Holder<'_>) -> Self {
        let secret = consumer.secrets.get(&consumer.home, &holder.secret.name);
        Self {
            secret: read(holder.secret, secret.as_deref(), &consumer.home),
            stored: holder.pinned.and_then(|uid| stored(consumer, uid)),
            pinned: holder.pinned.map(str::to_owned),
            consent: holder.consent,
            unbinding: holder.unbinding,
        }
    }

    /// What they lead to, as sessions know it or `dials` find it out.
    pub fn reach<K: Eq + Hash + Clone + Send + Sync + 'static>(
        &self,
        sessions: &Sessions,
        dialer: &Dialer,
        dials: &mut Dials<K>,
        pace: Option<Pace>,
    ) -> Access<Arc<Reached>> {
        dials.retain(&self.candidates());
        self.resolve(
            |reached: &Arc<Reached>| &reached.contract,
            |access| match sessions.recall(access) {
                Some(reached) => Some(Ok(reached)),
                None => dials.dial(dialer, access, pace),
            },
        )
    }

    /// The kubeconfigs to try, best first.
    pub fn candidates(&self) -> Vec<Arc<ProviderAccess>> {
        let stored = self.stored.as_ref();
        let Ok(given) = &self.secret else {
            // A Secret that was taken away ends the access; what began with it may still be undone.
            return stored
                .filter(|_| self.unbinding)
                .map(|stored| Arc::clone(&stored.access))
                .into_iter()
                .collect();
        };
        let is_known = |stored: &&Stored| stored.is_of(&given.fingerprint);
        let mut list = vec![Arc::clone(given)];
        if let Some(stored) = stored.filter(|stored| self.unbinding || is_known(stored)) {
            let first = is_known(&stored) && !given.lifetime.is_newer_than(&stored.access.lifetime);
            list.insert(usize::from(!first), Arc::clone(&stored.access));
        }
        list.dedup_by(|one, other| one.fingerprint == other.fingerprint);
        list
    }

    /// The kubeconfig of the Secret that is named, if it leads where the one of `origin` led.
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

    /// What they lead to. `dial` tells how asking with one of them went; `None` while that is under way.
    pub fn resolve<C>(
        &self,
        contract: impl Fn(&C) -> &Contract,
        mut dial: impl FnMut(&Arc<ProviderAccess>) -> Option<Result<C, DialError>>,
    ) -> Access<C> {
        let mut failure = match &self.secret {
            Err(problem) => Some(Access::Problem(problem.clone())),
            Ok(_) => None,
        };
        for candidate in self.candidates() {
            match dial(&candidate) {
                None => return Access::Connecting,
                Some(Err(error)) => failure = failure.or(Some(Access::Failed(error))),
                Some(Ok(reached)) => match &self.pinned {
                    Some(pinned) if **pinned != *contract(&reached).uid && !self.consent => {
                        let changed = Access::Changed {
                            pinned: pinned.clone(),
                            found: reached,
                        };
                        failure = failure.or(Some(changed));
                    }
                    _ => return Access::Reached(reached),
                },
            }
        }
        // Without a candidate there was a problem.
        failure.unwrap_or(Access::Connecting)
    }
}

/// The konnector's own copy of the credential of a contract.
pub fn stored(consumer: &Consumer, contract_uid: &str) -> Option<Stored> {
    let stored = consumer.secrets.get(&consumer.home, &secret::name(contract_uid))?;
    secret::read(&stored, contract_uid)
}

#[cfg(test)]
#[path = "credential_tests.rs"]
mod tests;
