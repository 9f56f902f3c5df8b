//! A provider's kubeconfig, judged before it is installed, and what it says of how long it holds.

mod token;

use bindery_api::backend::Backend;
use bindery_runtime::kubeconfig::{Fingerprint, Lifetime, ProviderAccess, Refusal};
use jiff::Timestamp;
use secrecy::SecretString;

pub(crate) use token::principal;

/// What a kubeconfig says, of a document that is safe to install.
pub(crate) struct Credential {
    /// URL of the provider's API server.
    pub(crate) server: String,
    /// The contract namespace.
    pub(crate) namespace: String,
    /// The provider's gRPC endpoint, where it has one.
    pub(crate) backend: Option<Backend>,
    /// When the token for the API server expires; none if it does not say.
    pub(crate) expires: Option<Timestamp>,
    /// When the token that renews expires.
    pub(crate) renewable_until: Option<Timestamp>,
    /// The connection, without its tokens.
    endpoint: Fingerprint,
}

/// Why a kubeconfig is not installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KubeconfigError {
    /// The answer has none.
    #[error("the provider sent none")]
    Missing,
    /// It cannot be used, or would do more than lead to the provider.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It is for another contract than the answer that it came with.
    #[error("it is for namespace {got:?}, and the contract is {want:?}")]
    OtherContract { got: String, want: String },
}

impl Credential {
    /// Reads and judges a document.
    pub(crate) fn parse(document: &[u8]) -> Result<Self, KubeconfigError> {
        let access = ProviderAccess::parse(document)?;
        let renewal = access
            .backend
            .as_ref()
            .map(|backend| SecretString::from(backend.token.as_str()));
        Ok(Self {
            server: access.server(),
            namespace: access.namespace.to_string(),
            expires: access.lifetime.expires_at,
            renewable_until: renewal.and_then(|token| Lifetime::of_token(&token).expires_at),
            backend: access.backend,
            endpoint: access.endpoint,
        })
    }

    /// Refuses a kubeconfig that leads elsewhere than the answer says it came with.
    pub(crate) fn for_contract(self, contract: &str) -> Result<Self, KubeconfigError> {
        if self.namespace == contract {
            return Ok(self);
        }
        Err(KubeconfigError::OtherContract {
            got: self.namespace,
            want: contract.to_owned(),
        })
    }

    /// Whether both differ in nothing but their tokens.
    pub(crate) fn differs_by_token_alone(&self, other: &Self) -> bool {
        let backend = |credential: &Self| {
            let backend = credential.backend.as_ref();
            backend.map(|backend| (backend.address.clone(), backend.ca_data.clone()))
        };
        self.endpoint == other.endpoint && backend(self) == backend(other)
    }

    /// Whether all its tokens say that they are still valid at this time.
    pub(crate) fn is_valid_at(&self, now: Timestamp) -> bool {
        let valid = |expires: Option<Timestamp>| expires.is_some_and(|expires| expires > now);
        valid(self.expires) && (self.backend.is_none() || valid(self.renewable_until))
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
