//! Renews credentials at the provider's gRPC backend.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_api::backend::Backend;
use bindery_runtime::kubeconfig::{ProviderAccess, Refusal};
use bindery_sdk::{BuildError, Client, Code, Error, TokenSource};
use secrecy::SecretSlice;
use tokio::time::Instant;

use super::{client_certificate::ClientCertificate, renewal_schedule::RenewalSchedule};

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

/// Returns a client for a backend, without connecting. It refuses plaintext, since the address comes from the provider.
pub fn client(
    backend: &Backend,
    tokens: impl TokenSource,
    certificate: Option<ClientCertificate>,
) -> Result<Client, BuildError> {
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
    builder.build()
}

/// Requests a new credential for a contract.
pub async fn renew(client: &Client, contract: &str) -> Result<RenewedCredential, RenewError> {
    let answer = client
        .renew_kubeconfig(contract)
        .await
        .map_err(|error| renew_error(&error))?;
    let sent = answer.kubeconfig;
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
