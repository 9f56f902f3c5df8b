//! Methods of CredentialService: renewing and revoking credentials.

use bindery_proto::v1alpha2::{RenewKubeconfigRequest, RevokeCredentialsRequest, RevokeCredentialsResponse};

use super::Client;
use crate::error::Error;
use crate::kubeconfig::SecretKubeconfig;
use crate::method::all as methods;

/// A renewed credential.
#[derive(Clone, Debug, PartialEq)]
pub struct Renewed {
    /// The contract namespace that the credential is for.
    pub contract: String,
    /// The new kubeconfig, and when it expires.
    pub kubeconfig: SecretKubeconfig,
}

impl Client {
    /// Returns a new kubeconfig for a contract, which may be empty if the caller has only one. The old one stays valid until it
    /// expires.
    pub async fn renew_kubeconfig(&self, contract: &str) -> Result<Renewed, Error> {
        self.renew(contract, "").await
    }

    /// Returns a new kubeconfig for the konnector that holds a contract. `holder` are the records of the holder that the provider may
    /// have, separated by spaces.
    pub async fn renew_kubeconfig_as_holder(&self, contract: &str, holder: &str) -> Result<Renewed, Error> {
        self.renew(contract, holder).await
    }

    async fn renew(&self, contract: &str, holder: &str) -> Result<Renewed, Error> {
        let request = RenewKubeconfigRequest {
            contract: contract.to_owned(),
            holder: holder.to_owned(),
        };
        let response = self.call(methods::RENEW_KUBECONFIG, request).await?;
        let kubeconfig = response.kubeconfig.ok_or_else(|| self.missing("kubeconfig"))?;
        Ok(Renewed {
            contract: response.contract,
            kubeconfig: SecretKubeconfig::new(kubeconfig),
        })
    }

    /// Revokes all credentials of a contract, and stops their renewal until an owner binds again.
    pub async fn revoke_credentials(&self, contract: &str, reason: &str) -> Result<RevokeCredentialsResponse, Error> {
        let request = RevokeCredentialsRequest {
            contract: contract.to_owned(),
            reason: reason.to_owned(),
        };
        self.call(methods::REVOKE_CREDENTIALS, request).await
    }
}
