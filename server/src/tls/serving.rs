//! The certificate that the gRPC port serves, in a cell that each handshake reads.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use rustls::{
    crypto::aws_lc_rs,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

use super::{Certificate, TlsError, pem};

/// The certificate that new connections get. Handshakes fail while it is empty.
#[derive(Debug, Default)]
pub struct ServingCertificate(ArcSwapOption<Served>);

#[derive(Debug)]
struct Served {
    key: Arc<CertifiedKey>,
    not_after: Timestamp,
}

/// The two files of a certificate chain and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// PEM file of the certificate chain, the server's own first.
    pub certificate: PathBuf,
    /// PEM file of the private key.
    pub key: PathBuf,
}

impl ServingCertificate {
    /// Serves a certificate with its key from now on. Fails if they do not belong together.
    pub fn set(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        not_after: Timestamp,
    ) -> Result<(), rustls::Error> {
        let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())?;
        let key = Arc::new(key);
        self.0.store(Some(Arc::new(Served { key, not_after })));
        Ok(())
    }

    /// Serves what the files hold from now on. After an error the former certificate stays.
    pub fn load(&self, files: &Files) -> Result<(), TlsError> {
        let refused = |path: &Path, what| {
            let path = path.to_owned();
            move |source| TlsError::Pem { path, what, source }
        };
        let chain =
            pem::read_certificates(&read(&files.certificate)?).map_err(refused(&files.certificate, "certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?).map_err(refused(&files.key, "private key"))?;
        let own = chain.first().cloned().unwrap_or_else(|| Vec::new().into());
        let own = Certificate::read(own).map_err(|source| TlsError::Certificate {
            path: files.certificate.clone(),
            source,
        })?;
        self.set(chain, key, own.validity.not_after)
            .map_err(|source| TlsError::Mismatch {
                certificate: files.certificate.clone(),
                key: files.key.clone(),
                source,
            })
    }

    /// When the certificate expires; `None` while there is none.
    pub fn not_after(&self) -> Option<Timestamp> {
        self.0.load().as_ref().map(|served| served.not_after)
    }

    #[cfg(test)]
    pub(crate) fn current(&self) -> Option<CertificateDer<'static>> {
        self.0.load().as_ref().map(|served| served.key.cert[0].clone())
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load().as_ref().map(|served| Arc::clone(&served.key))
    }
}

/// Reads a file; the error names it.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source: io::Error| TlsError::Read {
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
        let certificate = ServingCertificate::default();
        assert_eq!(certificate.not_after(), None);
        certificate.load(&files).expect("a certificate");
        assert_eq!(certificate.current(), Some(first.cert.der().clone()));

        write(&files, &second.cert.pem(), &first.signing_key.serialize_pem());
        assert!(matches!(certificate.load(&files), Err(TlsError::Mismatch { .. })));
        write(&files, "nonsense", &second.signing_key.serialize_pem());
        assert!(matches!(certificate.load(&files), Err(TlsError::Pem { .. })));
        fs::remove_file(&files.key).expect("removed");
        assert!(certificate.load(&files).is_err());
        assert_eq!(
            certificate.current(),
            Some(first.cert.der().clone()),
            "the old one stays"
        );

        write(&files, &second.cert.pem(), &second.signing_key.serialize_pem());
        certificate.load(&files).expect("a new certificate");
        assert_eq!(certificate.current(), Some(second.cert.der().clone()));
    }
}
