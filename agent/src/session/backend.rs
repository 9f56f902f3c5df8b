//! Renews credentials at the provider's gRPC backend.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_api::backend::Backend;
use bindery_runtime::kubeconfig::{ProviderAccess, Refusal};
use bindery_sdk::{BuildError, Client, Code, Error, TokenSource};
use secrecy::SecretSlice;
use tokio::time::Instant;

use super::{
    client_certificate::{ClientCertificate, ClientCertificateError},
    renewal_schedule::RenewalSchedule,
};

/// A credential that a backend granted.
#[derive(Clone, Debug)]
pub struct RenewedCredential {
    /// The parsed kubeconfig.
    pub access: Arc<ProviderAccess>,
    /// The kubeconfig as received, to be stored.
    pub document: SecretSlice<u8>,
    /// UID of the contract that the credential is for, as the backend says.
    pub contract_uid: String,
    /// When to renew the credential.
    pub schedule: RenewalSchedule,
}

/// Why a credential was not renewed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RenewError {
    /// The backend refuses to renew it; retries do not help, and the owner must bind again.
    #[error("{0}")]
    Refused(String),
    /// The renewal failed and may work later.
    #[error("{0}")]
    Failed(String),
    /// The backend sent an unusable kubeconfig.
    #[error("the backend sent an unusable kubeconfig: {0}")]
    Unusable(#[from] Refusal),
}

/// Why there is no client for a backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// The kubeconfig names no backend.
    #[error("the kubeconfig names no backend")]
    Missing,
    /// The client certificate cannot be used now. This may pass, since its two files may be read while they are being replaced.
    #[error("{0}")]
    ClientCertificate(String),
    /// The backend that the kubeconfig names cannot be used.
    #[error("the backend's address or CA in the kubeconfig cannot be used: {0}")]
    Unusable(String),
}

impl From<ClientCertificateError> for BackendError {
    fn from(error: ClientCertificateError) -> Self {
        Self::ClientCertificate(error.to_string())
    }
}

impl From<BuildError> for BackendError {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::ClientCertificate { .. } => Self::ClientCertificate(error.to_string()),
            _ => Self::Unusable(error.to_string()),
        }
    }
}

impl From<BackendError> for RenewError {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::ClientCertificate(_) => Self::Failed(error.to_string()),
            BackendError::Missing | BackendError::Unusable(_) => Self::Refused(error.to_string()),
        }
    }
}

/// Returns a client for a backend, without connecting. It refuses plaintext, since the address comes from the provider.
pub fn client(
    backend: &Backend,
    tokens: impl TokenSource,
    certificate: Option<ClientCertificate>,
) -> Result<Client, BackendError> {
    let mut builder = Client::builder(&backend.address)
        .token_source(tokens)
        .user_agent(format_args!("bindery-konnector/{}", env!("CARGO_PKG_VERSION")));
    // Data that is not base64 is refused later as an invalid certificate.
    let authority = backend.ca_data.as_deref().map(|data| {
        STANDARD
            .decode(data.trim())
            .unwrap_or_else(|_| data.as_bytes().to_vec())
    });
    if let Some(pem) = authority {
        builder = builder.ca_pem(pem);
    }
    if let Some(certificate) = certificate {
        builder = certificate.present(builder);
    }
    Ok(builder.build()?)
}

/// Requests a new credential for a contract.
pub async fn renew(client: &Client, contract: &str) -> Result<RenewedCredential, RenewError> {
    let answer = client
        .renew_kubeconfig(contract)
        .await
        .map_err(|error| renew_error(&error))?;
    let sent = answer.kubeconfig.into_message();
    let access = ProviderAccess::parse(&sent.kubeconfig)?;
    let duration = |duration: Option<prost_types::Duration>| duration.and_then(|duration| duration.try_into().ok());
    let schedule = RenewalSchedule::granted(Instant::now(), duration(sent.expires_in), duration(sent.renew_after));
    Ok(RenewedCredential {
        access: Arc::new(access),
        document: sent.kubeconfig.to_vec().into(),
        contract_uid: sent.contract_uid,
        schedule,
    })
}

/// Tells refusals, which are final, from failures that may end.
fn renew_error(error: &Error) -> RenewError {
    let message = error.to_string();
    match error.code() {
        Some(Code::Unauthenticated | Code::PermissionDenied | Code::FailedPrecondition | Code::NotFound) => {
            RenewError::Refused(message)
        }
        _ => RenewError::Failed(message),
    }
}
