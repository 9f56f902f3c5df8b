//! Kubeconfigs with everything inline.

use std::fmt;

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use kube::config::KubeConfigOptions;
use serde_json::{Value, json};

use crate::pki::Identity;

/// One cluster, one user, one context.
#[derive(Clone, Debug)]
pub struct Kubeconfig {
    /// URL of the API server.
    pub server: String,
    /// Certificate authority of the API server, PEM.
    pub ca_pem: String,
    /// Namespace of the context.
    pub namespace: String,
    /// Who uses it.
    pub user: User,
}

/// How a kubeconfig authenticates.
#[derive(Clone)]
pub enum User {
    /// A client certificate.
    Certificate(Identity),
    /// A bearer token.
    Token(String),
}

impl Kubeconfig {
    /// The same kubeconfig for another address of the API server, such as a [`Proxy`](crate::Proxy)'s.
    #[must_use]
    pub fn with_server(&self, server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            ..self.clone()
        }
    }

    /// The file's content.
    pub fn to_yaml(&self) -> Result<String> {
        serde_saphyr::to_string(&self.to_value()).context("cannot write a kubeconfig")
    }

    /// The content of a file with the clusters and users of several kubeconfigs, each in a context of that name. None of them is the
    /// current context.
    pub fn joined(all: &[(&str, &Self)]) -> Result<String> {
        let parts: Vec<_> = all.iter().map(|(name, it)| (*name, it.to_value())).collect();
        let list = |section: &str, field: &str| -> Vec<Value> {
            let parts = parts.iter();
            parts
                .map(|(name, it)| json!({"name": name, field: it[section][0][field]}))
                .collect()
        };
        let context = |name: &str| json!({"name": name, "context": {"cluster": name, "user": name}});
        let joined = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": list("clusters", "cluster"),
            "users": list("users", "user"),
            "contexts": parts.iter().map(|(name, _)| context(name)).collect::<Vec<_>>(),
        });
        serde_saphyr::to_string(&joined).context("cannot write a kubeconfig")
    }

    /// A client that uses it.
    pub async fn client(&self) -> Result<kube::Client> {
        let kubeconfig = serde_json::from_value(self.to_value())?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(kube::Client::try_from(config)?)
    }

    pub(crate) fn to_value(&self) -> Value {
        let user = match &self.user {
            User::Certificate(identity) => json!({
                "client-certificate-data": STANDARD.encode(&identity.certificate),
                "client-key-data": STANDARD.encode(&identity.key),
            }),
            User::Token(token) => json!({ "token": token }),
        };
        let cluster = json!({ "server": self.server, "certificate-authority-data": STANDARD.encode(&self.ca_pem) });
        let context = json!({ "cluster": "default", "user": "default", "namespace": self.namespace });
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "default", "cluster": cluster }],
            "users": [{ "name": "default", "user": user }],
            "contexts": [{ "name": "default", "context": context }],
            "current-context": "default",
        })
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate(_) => "Certificate(..)",
            Self::Token(_) => "Token(..)",
        })
    }
}
