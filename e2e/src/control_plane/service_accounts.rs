//! Tokens, kubeconfigs and clients of ServiceAccounts.

use std::path::PathBuf;

use anyhow::{Context, Result};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, api::PostParams};

use super::{ControlPlane, ServiceAccountClaims};

/// Longer than any test; a kubeconfig whose expiry matters is made with a token of the test's own.
const KUBECONFIG_TOKEN_SECONDS: i64 = 24 * 60 * 60;

impl ControlPlane {
    /// Gets a token by TokenRequest. No audiences means the API server; a lifetime below 600 seconds is refused.
    pub async fn token_for(&self, namespace: &str, name: &str, audiences: &[&str], seconds: i64) -> Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: audiences.iter().map(|audience| (*audience).to_owned()).collect(),
                expiration_seconds: Some(seconds),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("no token for ServiceAccount {namespace}/{name}"))?;
        let status = answer.status.context("a TokenRequest was answered without a token")?;
        Ok(status.token)
    }

    /// Signs a token that the API server accepts as its own.
    pub fn sign_service_account_token(&self, claims: &ServiceAccountClaims) -> Result<String> {
        self.signing_key.sign(claims, &self.server_url())
    }

    /// Writes a kubeconfig of a ServiceAccount, which must exist, and returns its path. The namespace of the context is that of
    /// the ServiceAccount.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let token = self.token_for(namespace, name, &[], KUBECONFIG_TOKEN_SECONDS).await?;
        let yaml = self.token_kubeconfig(namespace, token).to_yaml()?;
        self.workdir.write(&format!("{namespace}-{name}.kubeconfig"), yaml)
    }

    /// A client that acts as a ServiceAccount.
    pub async fn service_account_client(&self, namespace: &str, name: &str) -> Result<Client> {
        let token = self.token_for(namespace, name, &[], KUBECONFIG_TOKEN_SECONDS).await?;
        self.token_kubeconfig(namespace, token).client().await
    }
}
