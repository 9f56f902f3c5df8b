//! The server's certificate, which is reloaded when its files change. If the new files cannot be used, the log says why, and the
//! old certificate stays in use.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio_util::sync::CancellationToken;

/// How often the files are checked for changes.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// Why a certificate cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
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
    /// The TLS library refuses its own defaults.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// The two files of a certificate chain and its private key.
#[derive(Clone, Debug)]
pub struct Files {
    /// PEM file of the certificate chain, the server's own first.
    pub certificate: PathBuf,
    /// PEM file of the private key.
    pub key: PathBuf,
}

/// A certificate that is reloaded when its files change.
#[derive(Debug)]
pub struct Certificate {
    files: Files,
    provider: Arc<CryptoProvider>,
    current: ArcSwap<CertifiedKey>,
}

/// Modification time and size of both files, by which a change is noticed.
type Stamp = [Option<(SystemTime, u64)>; 2];

impl Certificate {
    /// Reads the files for the first time.
    pub fn load(files: Files) -> Result<Arc<Self>, TlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let current = files.read(&provider)?;
        Ok(Arc::new(Self {
            files,
            provider,
            current: ArcSwap::from_pointee(current),
        }))
    }

    /// The configuration of a TLS server that serves the current certificate and speaks HTTP/2 only.
    pub fn server_config(self: &Arc<Self>) -> Result<ServerConfig, TlsError> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider));
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<Self>::clone(self);
        let mut config = builder
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }

    /// Checks the files every few seconds until `stop` is cancelled, and reloads them when they change.
    pub async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let mut known = self.files.stamp();
        while stop
            .run_until_cancelled(tokio::time::sleep(CHECK_EVERY))
            .await
            .is_some()
        {
            let stamp = self.files.stamp();
            if stamp == known {
                continue;
            }
            match self.reload() {
                Ok(()) => {
                    tracing::info!(certificate = %self.files.certificate.display(), "certificate replaced");
                    known = stamp;
                }
                // Perhaps only one of the two files is written yet: try again at the next check.
                Err(error) => tracing::error!(%error, "the old certificate stays in use"),
            }
        }
    }

    fn reload(&self) -> Result<(), TlsError> {
        self.current.store(Arc::new(self.files.read(&self.provider)?));
        Ok(())
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

impl Files {
    fn read(&self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let certificate = read(&self.certificate)?;
        let pem = |path: &Path, what, source| TlsError::Pem {
            path: path.to_owned(),
            what,
            source,
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&certificate)
            .collect::<Result<_, _>>()
            .map_err(|source| pem(&self.certificate, "certificate", source))?;
        if chain.is_empty() {
            return Err(pem(
                &self.certificate,
                "certificate",
                rustls_pki_types::pem::Error::NoItemsFound,
            ));
        }
        let key =
            PrivateKeyDer::from_pem_slice(&read(&self.key)?).map_err(|source| pem(&self.key, "private key", source))?;
        CertifiedKey::from_der(chain, key, provider).map_err(|source| TlsError::Mismatch {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            source,
        })
    }

    fn stamp(&self) -> Stamp {
        [&self.certificate, &self.key].map(|path| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey as Issued, generate_simple_self_signed};

    use super::*;

    fn issue() -> Issued<rcgen::KeyPair> {
        generate_simple_self_signed(vec!["bind.example.com".to_owned()]).expect("a certificate")
    }

    fn write(files: &Files, certificate: &str, key: &str) {
        fs::write(&files.certificate, certificate).expect("a file");
        fs::write(&files.key, key).expect("a file");
    }

    #[test]
    fn a_new_certificate_is_taken_and_a_broken_one_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = Files {
            certificate: folder.path().join("tls.crt"),
            key: folder.path().join("tls.key"),
        };
        let (first, second) = (issue(), issue());
        write(&files, &first.cert.pem(), &first.signing_key.serialize_pem());
        let certificate = Certificate::load(files.clone()).expect("a certificate");
        let served = || certificate.current.load().cert[0].clone();
        assert_eq!(served(), *first.cert.der());

        write(&files, &second.cert.pem(), &first.signing_key.serialize_pem());
        assert!(matches!(certificate.reload(), Err(TlsError::Mismatch { .. })));
        write(&files, "nonsense", &second.signing_key.serialize_pem());
        assert!(matches!(certificate.reload(), Err(TlsError::Pem { .. })));
        fs::remove_file(&files.key).expect("removed");
        assert!(certificate.reload().is_err());
        assert_eq!(served(), *first.cert.der(), "the old one stays");

        write(&files, &second.cert.pem(), &second.signing_key.serialize_pem());
        certificate.reload().expect("a new certificate");
        assert_eq!(served(), *second.cert.der());
        assert_eq!(
            certificate.server_config().expect("a configuration").alpn_protocols,
            [b"h2"]
        );
    }
}
