//! Acting as a ServiceAccount.

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
    /// A token by TokenRequest. No audiences means the API server; fewer than 600 seconds are refused.
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

    /// Signs a token that the API server takes for its own.
    pub fn sign_service_account_token(&self, claims: &ServiceAccountClaims) -> Result<String> {
        self.signing_key.sign(claims, &self.server_url())
    }

    /// Path of a kubeconfig that acts as a ServiceAccount, with its namespace as the context's. The ServiceAccount must
    /// exist.
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
