//! TLS of the gRPC port: the serving certificate, the CAs that clients need, and the CAs of client certificates.
//!
//! The certificate comes from files ([`FollowedFiles`](crate::files::FollowedFiles)), which are read again when they change, or the server makes and rotates it
//! itself ([`managed`]). Either way the parts of the server see cells whose content changes while connections go on:
//! [`ServingCertificate`] and [`CaBundle`].

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::ServerConfig;

mod certificate;
mod client_auth;
pub mod managed;
mod metrics;
mod pem;
mod serving;

pub use certificate::{Certificate, CertificateError, Validity};
pub use client_auth::ClientAuthorities;
pub use metrics::ExpiryMetrics;
pub use pem::{encode_certificate, read_certificates};
pub use serving::{Files, ServingCertificate};

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not PEM, or holds no certificate or no private key.
    #[error("{} holds no {what}: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What the file should hold.
        what: &'static str,
        /// Why.
        source: rustls_pki_types::pem::Error,
    },
    /// A file holds a certificate that cannot be read.
    #[error("{}: {source}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why.
        source: CertificateError,
    },
    /// The key does not belong to the certificate, or is of an unsupported kind.
    #[error("certificate {} and key {} do not go together: {source}", certificate.display(), key.display())]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// A certificate in a file of CAs of client certificates cannot be read.
    #[error("certificate {number} of {} cannot be used as a CA of client certificates: {source}", path.display())]
    ClientAuthority {
        /// The file.
        path: PathBuf,
        /// Which of its certificates, from 1 on.
        number: usize,
        /// Why.
        source: rustls::Error,
    },
    /// The CAs of client certificates cannot be used.
    #[error("the CAs of client certificates in {} cannot be used: {source}", path.display())]
    ClientAuthorities {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rustls::server::VerifierBuilderError,
    },
    /// The TLS library refuses its own defaults.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// Where the certificate of the gRPC port comes from.
#[derive(Clone, Debug)]
pub enum TlsSource {
    /// There is none: the port is plaintext, on loopback.
    Plaintext,
    /// From files.
    Files(Files),
    /// The server makes it.
    Managed(managed::reconciler::ManagedSettings),
}

/// TLS of a port, as new connections are to use it. Clones share it.
#[derive(Clone, Debug)]
pub struct PortTls(Arc<ArcSwap<ServerConfig>>);

impl PortTls {
    /// TLS with a serving certificate. Clients need no certificate.
    pub fn new(serving: &Arc<ServingCertificate>) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(ArcSwap::from_pointee(server_config(serving, None)?))))
    }

    /// Accepts only clients with a certificate of these CAs from now on. Connections that exist stay; no session of theirs is
    /// resumed.
    pub fn set_client_authorities(
        &self,
        serving: &Arc<ServingCertificate>,
        clients: &ClientAuthorities,
    ) -> Result<(), TlsError> {
        self.0.store(Arc::new(server_config(serving, Some(clients))?));
        Ok(())
    }

    /// The configuration for a connection that is accepted now.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.0.load_full()
    }
}

/// The configuration of a TLS server that serves the current certificate. It speaks HTTP/2, and HTTP/1.1 for gRPC-Web.
fn server_config(
    serving: &Arc<ServingCertificate>,
    clients: Option<&ClientAuthorities>,
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(clients.verifier()),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::<ServingCertificate>::clone(serving));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The CAs, PEM, by which clients verify this server; empty if clients use the roots of their system. Clones share the cell,
/// so that each credential is handed out with the CAs of that time.
#[derive(Clone, Debug, Default)]
pub struct CaBundle(Arc<ArcSwapOption<Bundle>>);

#[derive(Debug)]
struct Bundle {
    pem: Arc<str>,
    not_after: Option<jiff::Timestamp>,
}

impl CaBundle {
    /// The bundle as it is now.
    pub fn current(&self) -> Option<Arc<str>> {
        self.0.load().as_ref().map(|bundle| Arc::clone(&bundle.pem))
    }

    /// When the CA that signs expires; of a file, when the first of its CAs to expire does.
    pub fn not_after(&self) -> Option<jiff::Timestamp> {
        self.0.load().as_ref().and_then(|bundle| bundle.not_after)
    }

    /// Replaces the bundle by the content of a PEM file. After an error the former bundle stays.
    pub fn load(&self, path: &Path) -> Result<(), TlsError> {
        let text = serving::read(path)?;
        let certificates = read_certificates(&text).map_err(|source| TlsError::Pem {
            path: path.to_owned(),
            what: "certificate",
            source,
        })?;
        let read = certificates
            .into_iter()
            .map(Certificate::read)
            .collect::<Result<Vec<_>, _>>();
        let read = read.map_err(|source| TlsError::Certificate {
            path: path.to_owned(),
            source,
        })?;
        let first = read.iter().map(|ca| ca.validity.not_after).min();
        self.set(&read.iter().map(Certificate::pem).collect::<String>(), first);
        Ok(())
    }

    /// Replaces the bundle.
    pub(crate) fn set(&self, pem: &str, not_after: Option<jiff::Timestamp>) {
        let pem = pem.into();
        self.0.store(Some(Arc::new(Bundle { pem, not_after })));
    }
}

/// Whether a certificate can be for this name: a DNS name in lower case, or an IP address.
pub fn is_certificate_name(name: &str) -> bool {
    // Clients match no name that ends with a dot.
    let is_dns = rustls_pki_types::DnsName::try_from(name).is_ok() && !name.ends_with('.');
    name.parse::<IpAddr>().is_ok() || (is_dns && name.to_ascii_lowercase() == name)
}
