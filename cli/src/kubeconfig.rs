//! A provider's kubeconfig, judged before it is installed.
//!
//! The provider writes it and the konnector uses it inside this cluster: what would run a program, read a file or trust
//! whoever answers is refused here, before anything is written. No error repeats what the document holds.

mod token;

use bindery_api::backend::{Backend, InvalidBackend};
use jiff::Timestamp;
use kube::config::{AuthInfo, Cluster, Kubeconfig};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

pub(crate) use token::{expiry, principal};

/// Longest document that is read.
const LENGTH_MAX: usize = 256 << 10;

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
    /// The document without its tokens.
    shape: Value,
}

/// Why a kubeconfig is not installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KubeconfigError {
    /// It cannot be read.
    #[error("it is no kubeconfig in YAML")]
    Unparsable,
    /// Something that every kubeconfig of a provider has is not there.
    #[error("it has no {0}")]
    Missing(&'static str),
    /// It would do more than lead to the provider.
    #[error("it uses {field}, which {danger}")]
    Dangerous { field: &'static str, danger: &'static str },
    /// The entry for the gRPC endpoint cannot be read.
    #[error(transparent)]
    Backend(#[from] InvalidBackend),
    /// It is for another contract than the answer that it came with.
    #[error("it is for namespace {got:?}, and the contract is {want:?}")]
    OtherContract { got: String, want: String },
}

impl Credential {
    /// Reads and judges a document.
    pub(crate) fn parse(document: &[u8]) -> Result<Self, KubeconfigError> {
        let text = std::str::from_utf8(document).map_err(|_| KubeconfigError::Unparsable)?;
        if text.len() > LENGTH_MAX {
            return Err(KubeconfigError::Unparsable);
        }
        let kubeconfig: Kubeconfig = serde_saphyr::from_str(text).map_err(|_| KubeconfigError::Unparsable)?;
        // Also what no context uses: another program may choose it.
        for named in &kubeconfig.clusters {
            named.cluster.as_ref().map_or(Ok(()), judge_cluster)?;
        }
        for named in &kubeconfig.auth_infos {
            named.auth_info.as_ref().map_or(Ok(()), judge_user)?;
        }
        Self::of(&kubeconfig)
    }

    fn of(kubeconfig: &Kubeconfig) -> Result<Self, KubeconfigError> {
        use KubeconfigError::Missing;
        let name = kubeconfig.current_context.as_ref().ok_or(Missing("current-context"))?;
        let named = kubeconfig.contexts.iter().find(|context| context.name == *name);
        let context = named
            .and_then(|named| named.context.as_ref())
            .ok_or(Missing("current context"))?;
        let named = kubeconfig
            .clusters
            .iter()
            .find(|cluster| cluster.name == context.cluster);
        let cluster = named
            .and_then(|named| named.cluster.as_ref())
            .ok_or(Missing("cluster"))?;
        let named = kubeconfig
            .auth_infos
            .iter()
            .find(|user| Some(&user.name) == context.user.as_ref());
        let user = named
            .and_then(|named| named.auth_info.as_ref())
            .ok_or(Missing("user"))?;
        let namespace = context.namespace.as_ref().filter(|name| !name.is_empty());
        let server = cluster.server.as_ref().filter(|server| !server.is_empty());
        let backend = Backend::find(cluster.extensions.as_deref().unwrap_or_default())?;
        let token = user.token.as_ref().filter(|token| !token.expose_secret().is_empty());
        if token.is_none() && user.client_certificate_data.is_none() {
            return Err(Missing("token"));
        }
        Ok(Self {
            server: server.ok_or(Missing("server"))?.clone(),
            namespace: namespace.ok_or(Missing("namespace"))?.clone(),
            expires: token.and_then(expiry),
            renewable_until: backend
                .as_ref()
                .and_then(|backend| expiry(&SecretString::from(backend.token.as_str()))),
            backend,
            shape: shape(kubeconfig),
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
        self.shape == other.shape
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

fn judge_cluster(cluster: &Cluster) -> Result<(), KubeconfigError> {
    let server = cluster.server.as_deref().unwrap_or_default();
    refuse(&[
        (
            cluster.insecure_skip_tls_verify == Some(true),
            "insecure-skip-tls-verify",
            "trusts whoever answers",
        ),
        (
            cluster.certificate_authority.is_some(),
            "certificate-authority",
            "reads a file",
        ),
        (
            cluster.proxy_url.is_some(),
            "proxy-url",
            "leads traffic through a host of the provider's choice",
        ),
        (
            !server.is_empty() && !server.to_ascii_lowercase().starts_with("https://"),
            "a server that is no https:// URL",
            "sends the token to whoever listens",
        ),
    ])
}

fn judge_user(user: &AuthInfo) -> Result<(), KubeconfigError> {
    let impersonates = user.impersonate.is_some()
        || user.impersonate_uid.is_some()
        || user.impersonate_groups.is_some()
        || user.impersonate_user_extra.is_some();
    refuse(&[
        (user.exec.is_some(), "exec", "runs a program"),
        (user.auth_provider.is_some(), "auth-provider", "runs a plugin"),
        (user.token_file.is_some(), "tokenFile", "reads a file"),
        (user.client_certificate.is_some(), "client-certificate", "reads a file"),
        (user.client_key.is_some(), "client-key", "reads a file"),
        (
            user.username.is_some() || user.password.is_some(),
            "a password",
            "no API server takes",
        ),
        (impersonates, "impersonation", "acts as somebody else"),
    ])
}

fn refuse(fields: &[(bool, &'static str, &'static str)]) -> Result<(), KubeconfigError> {
    match fields.iter().find(|(used, ..)| *used) {
        Some((_, field, danger)) => Err(KubeconfigError::Dangerous { field, danger }),
        None => Ok(()),
    }
}

/// The document as JSON, without its tokens.
fn shape(kubeconfig: &Kubeconfig) -> Value {
    let mut shape = serde_json::to_value(kubeconfig).unwrap_or_default();
    drop_tokens(&mut shape);
    shape
}

fn drop_tokens(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("token");
            fields.values_mut().for_each(drop_tokens);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_tokens),
        _ => {}
    }
}

#[cfg(test)]
pub(crate) mod tests;
