//! The provider's gRPC endpoint: a client for it, and what its answers to a renewal mean.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_api::backend::Backend;
use bindery_sdk::{BuildError, Client, Code, Error, TokenSource};
use secrecy::SecretSlice;
use tokio::time::Instant;

use super::renewal::Schedule;
use bindery_runtime::kubeconfig::{ProviderAccess, Refusal};

/// A new credential.
#[derive(Clone, Debug)]
pub struct Renewed {
    /// The kubeconfig, taken apart.
    pub access: Arc<ProviderAccess>,
    /// The kubeconfig as it came, to be stored.
    pub document: SecretSlice<u8>,
    /// UID of the contract that the backend says it is for.
    pub contract_uid: String,
    /// When it is to be renewed.
    pub schedule: Schedule,
}

/// Why there is no new credential.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RenewError {
    /// The backend will not renew, however often it is asked: the owner must bind again.
    #[error("{0}")]
    Refused(String),
    /// It may work later.
    #[error("{0}")]
    Failed(String),
    /// What it sent is not used.
    #[error("the backend sent a kubeconfig that is not used: {0}")]
    Unusable(#[from] Refusal),
}

/// A client for the endpoint. Connects nowhere yet. Plaintext is refused: the address comes from the provider.
pub fn client(backend: &Backend, tokens: impl TokenSource) -> Result<Client, BuildError> {
    let builder = Client::builder(&backend.address)
        .token_source(tokens)
        .user_agent(format_args!("bindery-konnector/{}", env!("CARGO_PKG_VERSION")));
    // What is no base64 is no certificate either, and refused as such.
    let authority = backend.ca_data.as_deref().map(|data| {
        STANDARD
            .decode(data.trim())
            .unwrap_or_else(|_| data.as_bytes().to_vec())
    });
    match authority {
        Some(pem) => builder.ca_pem(pem).build(),
        None => builder.build(),
    }
}

/// Asks for a new credential of a contract.
pub async fn renew(client: &Client, contract: &str) -> Result<Renewed, RenewError> {
    let answer = client.renew_kubeconfig(contract).await.map_err(|error| judge(&error))?;
    let sent = answer.kubeconfig;
    let access = ProviderAccess::parse(&sent.kubeconfig)?;
    let duration = |duration: Option<prost_types::Duration>| duration.and_then(|duration| duration.try_into().ok());
    let schedule = Schedule::granted(Instant::now(), duration(sent.expires_in), duration(sent.renew_after));
    Ok(Renewed {
        access: Arc::new(access),
        document: sent.kubeconfig.to_vec().into(),
        contract_uid: sent.contract_uid,
        schedule,
    })
}

fn judge(error: &Error) -> RenewError {
    let message = error.to_string();
    match error.code() {
        Some(Code::Unauthenticated | Code::PermissionDenied | Code::FailedPrecondition | Code::NotFound) => {
            RenewError::Refused(message)
        }
        _ => RenewError::Failed(message),
    }
}
