//! Renews credentials at the provider's gRPC backend.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_api::backend::Backend;
use bindery_proto::v1alpha2::ErrorReason;
use bindery_runtime::{
    kubeconfig::{ProviderAccess, Refusal},
    traces,
};
use bindery_sdk::{BuildError, Client, Code, Error, TokenSource};
use secrecy::SecretSlice;
use tokio::time::Instant;

use super::{
    client_certificate::{ClientCertificate, ClientCertificateError},
    network::Network,
    renewal_schedule::RenewalSchedule,
    traced_calls::TracedCalls,
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
    /// The backend has locked the renewal of the contract, until the owner binds again.
    #[error("{0}")]
    Locked(String),
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
    network: &Network,
    tokens: impl TokenSource,
    certificate: Option<ClientCertificate>,
) -> Result<Client, BackendError> {
    let mut builder = Client::builder(&backend.address)
        .token_source(tokens)
        .user_agent(format_args!("bindery-konnector/{}", env!("CARGO_PKG_VERSION")));
    if let Some(tracer) = traces::tracer() {
        builder = builder.call_tracer(TracedCalls::by(tracer));
    }
    if let Some(dialer) = &network.backends {
        return Ok(builder.build_with_channel(dialer.channel(&backend.address))?);
    }
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

/// Requests a new credential for a contract. `holder` are the records of its holder that the provider may have; empty if that is not
/// known.
pub async fn renew(client: &Client, contract: &str, holder: &str) -> Result<RenewedCredential, RenewError> {
    let answer = client
        .renew_kubeconfig_as_holder(contract, holder)
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

/// Describes an error for conditions: without the id of the call, which is new in each try. With it, a condition would be written
/// again after each try that fails in the same way.
pub fn describe(error: &Error) -> String {
    let text = error.to_string();
    match error.request_id() {
        Some(id) if !id.is_empty() => {
            tracing::debug!(error = %text, "call failed");
            text.replace(&format!(", request {id}"), "")
        }
        _ => text,
    }
}

/// Tells refusals, which are final, from failures that may end.
fn renew_error(error: &Error) -> RenewError {
    let message = describe(error);
    if error.reason() == Some(ErrorReason::RenewalLocked) {
        return RenewError::Locked(message);
    }
    match error.code() {
        Some(Code::Unauthenticated | Code::PermissionDenied | Code::FailedPrecondition | Code::NotFound) => {
            RenewError::Refused(message)
        }
        _ => RenewError::Failed(message),
    }
}

#[cfg(test)]
mod tests {
    use bindery_sdk::StatusError;

    use super::*;

    #[test]
    fn a_lock_is_told_from_other_refusals() {
        let of = |code, reason| {
            let status = StatusError {
                code,
                reason: Some(reason),
                ..StatusError::default()
            };
            renew_error(&Error::Status(Box::new(status)))
        };
        let locked = of(Code::FailedPrecondition, ErrorReason::RenewalLocked);
        assert!(matches!(locked, RenewError::Locked(_)), "{locked:?}");
        let stopped = of(Code::FailedPrecondition, ErrorReason::RenewalStopped);
        assert!(matches!(stopped, RenewError::Refused(_)), "{stopped:?}");
        // Another konnector holds the contract by what this one has written so far: that may change with the next heartbeat.
        let changed = of(Code::Aborted, ErrorReason::ObjectChanged);
        assert!(matches!(changed, RenewError::Failed(_)), "{changed:?}");
    }

    #[test]
    fn a_condition_does_not_tell_the_id_of_a_call() {
        let failed = |id: &str| {
            let status = StatusError {
                reason: Some(ErrorReason::ExportNotEmpty),
                message: "5 objects are left".to_owned(),
                request_id: id.to_owned(),
                ..StatusError::default()
            };
            describe(&Error::Status(Box::new(status)))
        };
        assert_eq!(failed("d9f28f99"), "5 objects are left (EXPORT_NOT_EMPTY)");
        assert_eq!(failed("d9f28f99"), failed("69e7c45c"));
        assert_eq!(failed(""), failed("69e7c45c"));
    }
}
