//! A provider's kubeconfig: whether it is safe to install, where it leads, and when its tokens expire.

mod token;

use bindery_runtime::kubeconfig::{Lifetime, ProviderAccess, Refusal};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use secrecy::SecretString;

pub(crate) use token::principal;

/// A provider's kubeconfig that is safe to install.
pub(crate) struct Credential {
    /// The connection to the provider's API server, with the token.
    pub(crate) access: ProviderAccess,
    /// URL of the provider's API server.
    pub(crate) server: String,
    /// The contract namespace.
    pub(crate) namespace: String,
    /// When the token for the API server expires; none if the token does not say.
    pub(crate) expires: Option<Timestamp>,
    /// When the token that renews the kubeconfig expires.
    pub(crate) renewable_until: Option<Timestamp>,
}

/// Why a kubeconfig is not installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KubeconfigError {
    /// The provider's answer has no kubeconfig.
    #[error("the provider sent none")]
    Missing,
    /// The kubeconfig cannot be used, or would make its reader run a program, read a file or use a proxy.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The kubeconfig is for another contract than the answer that holds it.
    #[error("it is for namespace {got:?}, and the contract is {want:?}")]
    OtherContract { got: String, want: String },
}

impl Credential {
    /// Reads a kubeconfig, and refuses one that is not safe to install.
    pub(crate) fn parse(document: &[u8]) -> Result<Self, KubeconfigError> {
        let access = ProviderAccess::parse(document)?;
        let backend = access.backend.as_ref();
        let renewal = backend.map(|backend| SecretString::from(backend.token.as_str()));
        Ok(Self {
            server: access.server(),
            namespace: access.namespace.to_string(),
            expires: access.lifetime.expires_at,
            renewable_until: renewal.and_then(|token| Lifetime::of_token(&token).expires_at),
            access,
        })
    }

    /// Reads the kubeconfig under a key of the Secret; none if the Secret does not have the key.
    pub(crate) fn of_secret(secret: &Secret, key: &str) -> Option<Result<Self, KubeconfigError>> {
        let document = secret.data.as_ref()?.get(key)?;
        Some(Self::parse(&document.0))
    }

    /// API server and contract, in words.
    pub(crate) fn place(&self) -> String {
        format!("{} (contract {})", self.server, self.namespace)
    }

    /// Refuses a kubeconfig for another contract.
    pub(crate) fn for_contract(self, contract: &str) -> Result<Self, KubeconfigError> {
        if self.namespace == contract {
            return Ok(self);
        }
        Err(KubeconfigError::OtherContract {
            got: self.namespace,
            want: contract.to_owned(),
        })
    }

    /// Whether two kubeconfigs differ in their tokens alone.
    pub(crate) fn differs_by_token_alone(&self, other: &Self) -> bool {
        let backend = |credential: &Self| {
            let backend = credential.access.backend.as_ref();
            backend.map(|backend| (backend.address.clone(), backend.ca_data.clone()))
        };
        self.access.endpoint == other.access.endpoint && backend(self) == backend(other)
    }

    /// Whether all tokens say that they are valid at this time. A token without an expiry does not.
    pub(crate) fn is_valid_at(&self, now: Timestamp) -> bool {
        let valid = |expires: Option<Timestamp>| expires.is_some_and(|expires| expires > now);
        valid(self.expires) && (self.access.backend.is_none() || valid(self.renewable_until))
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credential")
            .field("server", &self.server)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
