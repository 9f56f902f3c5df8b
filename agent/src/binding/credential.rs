//! Which kubeconfig a binding is served with, and what it leads to.

use std::sync::Arc;

use bindery_api::v1alpha2::{APIServiceBinding, ClusterSecretKeyRef};
use k8s_openapi::api::core::v1::Secret;

use crate::session::{Contract, dial::DialError, secret::Stored};
use bindery_runtime::kubeconfig::{Fingerprint, ProviderAccess, Refusal};

/// Why the Secret that a binding names is of no use. `at` is where the binding says it is.
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

/// What a binding's credentials lead to: a contract, or whatever holds one.
#[derive(Clone, Debug)]
pub enum Access<C = Contract> {
    /// The Secret is of no use.
    Problem(SecretProblem),
    /// The provider is being asked.
    Connecting,
    /// The provider was asked, and does not give access.
    Failed(DialError),
    /// Another contract than the binding is pinned to; nothing is written until the user consents.
    Changed {
        /// UID that is pinned.
        pinned: String,
        /// What the Secret leads to.
        found: C,
    },
    /// The binding's contract.
    Reached(C),
}

/// What is known of a binding's credentials.
#[derive(Clone, Debug)]
pub struct Known {
    /// The Secret that the binding names.
    pub secret: Result<Arc<ProviderAccess>, SecretProblem>,
    /// The konnector's own Secret of the contract that the binding is pinned to.
    pub stored: Option<Stored>,
    /// UID of that contract.
    pub pinned: Option<String>,
    /// The user consents to another contract.
    pub consent: bool,
    /// The binding is being deleted: whatever reaches the pinned contract will do.
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
}

/// Reads the kubeconfig that a binding names. `secret` is the one of that name in the konnector's namespace.
pub fn read(
    binding: &APIServiceBinding,
    secret: Option<&Secret>,
    home: &str,
) -> Result<Arc<ProviderAccess>, SecretProblem> {
    let at = Box::new(binding.spec.kubeconfig_secret_ref.clone());
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

    /// The kubeconfig of the Secret that the binding names, if it leads where the one of `origin` led.
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

#[cfg(test)]
#[path = "credential_tests.rs"]
mod tests;
