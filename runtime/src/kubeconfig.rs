//! A provider's kubeconfig, taken apart and judged.
//!
//! Its author is the provider, and it is used inside the consumer's cluster: whatever would run a program, read a file,
//! go through a stranger's proxy or trust an unverified server is refused, not ignored. That is judged of every entry,
//! also of those that no context uses. Nothing here reads a file or dials; no error repeats what the document holds.

use std::{fmt, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_api::{
    backend::{Backend, InvalidBackend},
    hash,
};
use http::Uri;
use kube::{
    Config,
    config::{AuthInfo, Cluster, Context, Kubeconfig},
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use secrecy::SecretString;

mod lifetime;

pub use lifetime::Lifetime;

/// Longest document that is read: a kubeconfig with certificates and tokens is some 10 KiB.
const DOCUMENT_LENGTH_MAX: usize = 256 << 10;

/// How to reach one contract on its provider.
#[derive(Clone)]
pub struct ProviderAccess {
    /// Where the provider's API server is and how it is verified; without a token.
    pub config: Config,
    /// The bearer token, unless a client certificate stands in its place.
    pub token: Option<SecretString>,
    /// The contract namespace.
    pub namespace: Arc<str>,
    /// The gRPC endpoint, where the provider has one.
    pub backend: Option<Backend>,
    /// When the token was issued and until when it holds, by the provider's clock.
    pub lifetime: Lifetime,
    /// Tells this document from any other.
    pub fingerprint: Fingerprint,
    /// Tells one connection from another: all but the tokens.
    pub endpoint: Fingerprint,
}

/// A digest that tells documents apart and says nothing of their content.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(Arc<str>);

/// Why a kubeconfig is not used. No variant holds anything of its content but names of fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is longer than any kubeconfig.
    #[error(
        "the kubeconfig has {length} bytes, more than the {DOCUMENT_LENGTH_MAX} that are read; bind again to get a whole one"
    )]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// It is no YAML, or not that of a kubeconfig.
    #[error("the kubeconfig cannot be parsed{}; store the one that the provider gave, unchanged", place(*.line))]
    Unparsable {
        /// Where the parser gave up.
        line: Option<u64>,
    },
    /// It does not say which context to use, or the one it names is not there.
    #[error("the kubeconfig has no {missing}; bind again to get a whole one")]
    Incomplete {
        /// What is missing.
        missing: &'static str,
    },
    /// The current context names no namespace.
    #[error(
        "the kubeconfig's current context has no namespace; set contexts[].context.namespace to the contract namespace"
    )]
    NoNamespace,
    /// The contract namespace has a name that no namespace can have.
    #[error("the namespace of the kubeconfig's current context is no valid name; bind again to get a whole one")]
    InvalidNamespace,
    /// A field that would make its reader do what the provider says.
    #[error("the kubeconfig uses {field}, which {danger}; {mend}")]
    Dangerous {
        /// The field.
        field: &'static str,
        /// What it would do.
        danger: &'static str,
        /// What to write instead.
        mend: &'static str,
    },
    /// The address of the API server is none.
    #[error(
        "clusters[].cluster.server of the kubeconfig is no https URL; give the API server's address as https://host:port"
    )]
    InvalidServer,
    /// A certificate or key cannot be read.
    #[error("{field} of the kubeconfig is not base64 of PEM; store the one that the provider gave, unchanged")]
    InvalidPem {
        /// The field.
        field: &'static str,
    },
    /// Neither a token nor a client certificate.
    #[error("the kubeconfig has no users[].user.token and no client certificate; bind again to get a whole one")]
    NoCredential,
    /// The token cannot be sent.
    #[error("users[].user.token of the kubeconfig holds characters that no token has; store it without line breaks")]
    InvalidToken,
    /// The entry for the gRPC endpoint cannot be read.
    #[error(transparent)]
    InvalidBackend(#[from] InvalidBackend),
}

// === impl Refusal ===

impl Refusal {
    /// Stable word for events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "TooLong",
            Self::Unparsable { .. } => "Unparsable",
            Self::Incomplete { .. } => "Incomplete",
            Self::NoNamespace => "NoNamespace",
            Self::InvalidNamespace => "InvalidNamespace",
            Self::Dangerous { .. } => "Dangerous",
            Self::InvalidServer => "InvalidServer",
            Self::InvalidPem { .. } => "InvalidPem",
            Self::NoCredential => "NoCredential",
            Self::InvalidToken => "InvalidToken",
            Self::InvalidBackend(_) => "InvalidBackend",
        }
    }
}

fn place(line: Option<u64>) -> String {
    line.map_or_else(String::new, |line| format!(" (line {line})"))
}

// === impl Fingerprint ===

impl Fingerprint {
    /// Of several parts, each with its length, so that no two lists read the same.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        // Half of the digest tells documents apart.
        let half = hash::of_parts(parts)
            .first_chunk()
            .copied()
            .map_or(0, u128::from_be_bytes);
        Self(format!("{half:032x}").into())
    }

    /// As hexadecimal text.
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
    /// Reads and judges a kubeconfig.
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
            config,
        })
    }

    /// Host of the API server, for messages.
    pub fn server(&self) -> String {
        self.config.cluster_url.to_string().trim_end_matches('/').to_owned()
    }
}

fn current(kubeconfig: &Kubeconfig) -> Result<(&Context, &Cluster, &AuthInfo), Refusal> {
    let missing = |missing| Refusal::Incomplete { missing };
    let name = kubeconfig.current_context.as_deref().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| missing("current-context"))?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == name);
    let context = context.and_then(|named| named.context.as_ref());
    let context = context.ok_or_else(|| missing("context of the name in current-context"))?;
    let cluster = kubeconfig
        .clusters
        .iter()
        .find(|cluster| cluster.name == context.cluster);
    let cluster = cluster.and_then(|named| named.cluster.as_ref());
    let cluster = cluster.ok_or_else(|| missing("cluster of the name in the current context"))?;
    let user = kubeconfig
        .auth_infos
        .iter()
        .find(|user| Some(&user.name) == context.user.as_ref());
    let user = user.and_then(|named| named.auth_info.as_ref());
    let user = user.ok_or_else(|| missing("user of the name in the current context"))?;
    Ok((context, cluster, user))
}

fn refuse_dangerous_cluster(cluster: &Cluster) -> Result<(), Refusal> {
    let dangerous = |field, danger, mend| Err(Refusal::Dangerous { field, danger, mend });
    if cluster.insecure_skip_tls_verify == Some(true) {
        return dangerous(
            "insecure-skip-tls-verify",
            "trusts whoever answers",
            "give the API server's CA in certificate-authority-data",
        );
    }
    if cluster.certificate_authority.is_some() {
        return dangerous(
            "certificate-authority",
            "reads a file",
            "give its content in certificate-authority-data",
        );
    }
    if cluster.proxy_url.is_some() {
        return dangerous(
            "proxy-url",
            "leads traffic through a host of the provider's choice",
            "remove it",
        );
    }
    Ok(())
}

fn refuse_dangerous_user(user: &AuthInfo) -> Result<(), Refusal> {
    const TOKEN: &str = "give a token in users[].user.token";
    let fields = [
        (user.exec.is_some(), "exec", "runs a program", TOKEN),
        (user.auth_provider.is_some(), "auth-provider", "runs a plugin", TOKEN),
        (user.token_file.is_some(), "tokenFile", "reads a file", TOKEN),
        (
            user.client_certificate.is_some(),
            "client-certificate",
            "reads a file",
            "give its content in client-certificate-data",
        ),
        (
            user.client_key.is_some(),
            "client-key",
            "reads a file",
            "give its content in client-key-data",
        ),
        (
            user.username.is_some() || user.password.is_some(),
            "username or password",
            "no API server takes any more",
            TOKEN,
        ),
        (
            user.impersonate.is_some()
                || user.impersonate_uid.is_some()
                || user.impersonate_groups.is_some()
                || user.impersonate_user_extra.is_some(),
            "impersonation (as)",
            "acts as somebody else than the contract",
            "remove it",
        ),
    ];
    match fields.into_iter().find(|(used, ..)| *used) {
        Some((_, field, danger, mend)) => Err(Refusal::Dangerous { field, danger, mend }),
        None => Ok(()),
    }
}

fn namespace(context: &Context) -> Result<&str, Refusal> {
    let name = context.namespace.as_deref().filter(|name| !name.is_empty());
    let name = name.ok_or(Refusal::NoNamespace)?;
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let valid = name.len() <= bindery_api::names::NAMESPACE_LENGTH_MAX
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if valid {
        Ok(name)
    } else {
        Err(Refusal::InvalidNamespace)
    }
}

fn connection(cluster: &Cluster, user: &AuthInfo, namespace: &str) -> Result<Config, Refusal> {
    let server = cluster.server.as_deref().filter(|server| !server.is_empty());
    let server = server.ok_or(Refusal::Incomplete {
        missing: "clusters[].cluster.server",
    })?;
    let url: Uri = server.parse().map_err(|_| Refusal::InvalidServer)?;
    match url.scheme_str() {
        Some("https") => {}
        Some("http") => {
            return Err(Refusal::Dangerous {
                field: "plain http in clusters[].cluster.server",
                danger: "sends the token to whoever listens",
                mend: "give an https:// address",
            });
        }
        _ => return Err(Refusal::InvalidServer),
    }
    let authority = url.authority().ok_or(Refusal::InvalidServer)?;
    if authority.as_str().contains('@') || url.query().is_some() {
        return Err(Refusal::InvalidServer);
    }
    let mut config = Config::new(url);
    namespace.clone_into(&mut config.default_namespace);
    config.default_retry = false;
    config.tls_server_name = cluster.tls_server_name.clone().filter(|name| !name.is_empty());
    config.root_cert = cluster
        .certificate_authority_data
        .as_deref()
        .map(authorities)
        .transpose()?;
    config.auth_info = certificate(user)?;
    Ok(config)
}

fn authorities(data: &str) -> Result<Vec<Vec<u8>>, Refusal> {
    let refusal = || Refusal::InvalidPem {
        field: "certificate-authority-data",
    };
    let pem = STANDARD.decode(data.trim()).map_err(|_| refusal())?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem)
        .map(|certificate| certificate.map(|der| der.to_vec()))
        .collect();
    certificates.ok().filter(|list| !list.is_empty()).ok_or_else(refusal)
}

/// The client certificate with its key, both or none.
fn certificate(user: &AuthInfo) -> Result<AuthInfo, Refusal> {
    let (certificate, key) = match (&user.client_certificate_data, &user.client_key_data) {
        (None, None) => return Ok(AuthInfo::default()),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => {
            return Err(Refusal::Incomplete {
                missing: "client-key-data",
            });
        }
        (None, Some(_)) => {
            return Err(Refusal::Incomplete {
                missing: "client-certificate-data",
            });
        }
    };
    let invalid = |field| Refusal::InvalidPem { field };
    let pem = STANDARD
        .decode(certificate.trim())
        .map_err(|_| invalid("client-certificate-data"))?;
    if !matches!(CertificateDer::pem_slice_iter(&pem).next(), Some(Ok(_))) {
        return Err(invalid("client-certificate-data"));
    }
    let secret = secrecy::ExposeSecret::expose_secret(key);
    STANDARD.decode(secret.trim()).map_err(|_| invalid("client-key-data"))?;
    Ok(AuthInfo {
        client_certificate_data: Some(certificate.clone()),
        client_key_data: Some(key.clone()),
        ..AuthInfo::default()
    })
}

fn token(user: &AuthInfo) -> Result<Option<SecretString>, Refusal> {
    let Some(token) = &user.token else {
        return Ok(None);
    };
    let text = secrecy::ExposeSecret::expose_secret(token);
    match text {
        "" => Ok(None),
        _ if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Some(token.clone())),
        _ => Err(Refusal::InvalidToken),
    }
}

/// All that makes a connection another one, so that a new token alone does not.
fn endpoint(cluster: &Cluster, user: &AuthInfo, namespace: &str) -> Fingerprint {
    let key = user.client_key_data.as_ref().map(secrecy::ExposeSecret::expose_secret);
    let fields = [
        cluster.server.as_deref(),
        cluster.certificate_authority_data.as_deref(),
        cluster.tls_server_name.as_deref(),
        user.client_certificate_data.as_deref(),
        key,
        Some(namespace),
        user.token.is_some().then_some("token"),
    ];
    Fingerprint::of(fields.map(|field| field.unwrap_or_default().as_bytes()))
}

#[cfg(test)]
mod tests;
