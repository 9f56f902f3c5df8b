//! Why a provider's kubeconfig is refused.

use bindery_api::backend::InvalidBackend;

use super::DOCUMENT_LENGTH_MAX;

/// Why a provider's kubeconfig is refused. No variant holds any of its content but names of fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The kubeconfig is longer than 256 KiB.
    #[error(
        "the kubeconfig has {length} bytes, more than the {DOCUMENT_LENGTH_MAX} that are read; bind again to get a whole one"
    )]
    TooLong {
        /// Length of the kubeconfig in bytes.
        length: usize,
    },
    /// The document is not the YAML of a kubeconfig.
    #[error("the kubeconfig cannot be parsed{}; store the one that the provider gave, unchanged", at(*.line))]
    Unparsable {
        /// The line at which the parser failed, counted from one.
        line: Option<u64>,
    },
    /// The kubeconfig lacks a part that is needed.
    #[error("the kubeconfig has no {missing}; bind again to get a whole one")]
    Incomplete {
        /// Name of the missing part.
        missing: &'static str,
    },
    /// The current context names no namespace.
    #[error(
        "the kubeconfig's current context has no namespace; set contexts[].context.namespace to the contract namespace"
    )]
    NoNamespace,
    /// The namespace of the current context is not a valid name.
    #[error("the namespace of the kubeconfig's current context is no valid name; bind again to get a whole one")]
    InvalidNamespace,
    /// The kubeconfig uses a field that lets the provider run programs, read files or redirect traffic on the consumer.
    #[error("the kubeconfig uses {field}, which {danger}; {mend}")]
    Dangerous {
        /// Name of the field.
        field: &'static str,
        /// What the field does.
        danger: &'static str,
        /// What the provider has to write instead.
        mend: &'static str,
    },
    /// The address of the API server is not a URL.
    #[error(
        "clusters[].cluster.server of the kubeconfig is not an https URL; give the API server's address as https://host:port"
    )]
    InvalidServer,
    /// A certificate or key cannot be decoded.
    #[error("{field} of the kubeconfig is not base64 of PEM; store the one that the provider gave, unchanged")]
    InvalidPem {
        /// Name of the field.
        field: &'static str,
    },
    /// The kubeconfig has neither a token nor a client certificate.
    #[error("the kubeconfig has no users[].user.token and no client certificate; bind again to get a whole one")]
    NoCredential,
    /// The token contains characters that an HTTP header must not.
    #[error("users[].user.token of the kubeconfig holds characters that no token has; store it without line breaks")]
    InvalidToken,
    /// The extension for the gRPC endpoint is not valid.
    #[error(transparent)]
    InvalidBackend(#[from] InvalidBackend),
}

// === impl Refusal ===

impl Refusal {
    /// Returns the reason for events and metrics, which never changes.
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

fn at(line: Option<u64>) -> String {
    line.map_or_else(String::new, |line| format!(" (line {line})"))
}
