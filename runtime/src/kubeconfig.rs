//! Reads a provider's kubeconfig.
//!
//! The provider writes it, and the konnector uses it inside the consumer's cluster: an entry that would run a program, read a
//! file, use a proxy or trust an unverified server is refused, also where no context uses it. Nothing here reads a file or
//! connects; no error repeats content of the document.

use std::{fmt, sync::Arc};

use bindery_api::{backend::Backend, hash};
use kube::{Config, config::Kubeconfig};
use secrecy::SecretString;

mod entries;
mod lifetime;
mod refusal;

use entries::{
    connection, current, endpoint, location, namespace, refuse_dangerous_cluster, refuse_dangerous_user, token,
};

pub use lifetime::Lifetime;
pub use refusal::Refusal;

/// The longest kubeconfig that is read, in bytes; one with certificates and tokens has some 10 KiB.
const DOCUMENT_LENGTH_MAX: usize = 256 << 10;

/// How to reach one contract on its provider, as its kubeconfig says.
#[derive(Clone)]
pub struct ProviderAccess {
    /// Address of the provider's API server and how it is verified; without the token.
    pub config: Config,
    /// The bearer token; `None` where the kubeconfig has a client certificate instead.
    pub token: Option<SecretString>,
    /// The contract namespace.
    pub namespace: Arc<str>,
    /// The gRPC endpoint, if the provider has one.
    pub backend: Option<Backend>,
    /// When the token was issued and expires, by the provider's clock.
    pub lifetime: Lifetime,
    /// Digest of the document.
    pub fingerprint: Fingerprint,
    /// Digest of everything but the tokens: another one needs a new connection.
    pub endpoint: Fingerprint,
    /// Digest of what says where the contract is: address, CA, TLS server name and namespace. Another credential does not change it.
    pub location: Fingerprint,
}

/// A digest that tells documents apart and does not reveal their content.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(Arc<str>);

// === impl Fingerprint ===

impl Fingerprint {
    /// Computes the fingerprint of a list of parts.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        // Half of the digest is enough to tell documents apart.
        let half = hash::of_parts(parts)
            .first_chunk()
            .copied()
            .map_or(0, u128::from_be_bytes);
        Self(format!("{half:032x}").into())
    }

    /// Returns the fingerprint as 32 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// === impl ProviderAccess ===

impl fmt::Debug for ProviderAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderAccess")
            .field("server", &self.config.cluster_url.host())
            .field("namespace", &self.namespace)
            .field("fingerprint", &self.fingerprint.as_str())
            .finish_non_exhaustive()
    }
}

impl ProviderAccess {
    /// Reads a kubeconfig: bytes in, result out, for any bytes. It never panics.
    pub fn parse(document: &[u8]) -> Result<Self, Refusal> {
        if document.len() > DOCUMENT_LENGTH_MAX {
            return Err(Refusal::TooLong { length: document.len() });
        }
        let kubeconfig: Kubeconfig = serde_saphyr::from_slice(document).map_err(|error| Refusal::Unparsable {
            line: error.location().map(|at| at.line()),
        })?;
        for named in &kubeconfig.clusters {
            named.cluster.as_ref().map_or(Ok(()), refuse_dangerous_cluster)?;
        }
        for named in &kubeconfig.auth_infos {
            named.auth_info.as_ref().map_or(Ok(()), refuse_dangerous_user)?;
        }
        let (context, cluster, user) = current(&kubeconfig)?;
        let namespace = namespace(context)?;
        let config = connection(cluster, user, namespace)?;
        let token = token(user)?;
        if token.is_none() && config.auth_info.client_certificate_data.is_none() {
            return Err(Refusal::NoCredential);
        }
        let backend = Backend::find(cluster.extensions.as_deref().unwrap_or_default())?;
        let lifetime = token.as_ref().map(Lifetime::of_token).unwrap_or_default();
        Ok(Self {
            token,
            namespace: namespace.into(),
            backend,
            lifetime,
            fingerprint: Fingerprint::of([document]),
            endpoint: endpoint(cluster, user, namespace),
            location: location(cluster, namespace),
            config,
        })
    }

    /// Returns the URL of the API server, for messages.
    pub fn server(&self) -> String {
        self.config.cluster_url.to_string().trim_end_matches('/').to_owned()
    }
}

#[cfg(test)]
mod tests;
