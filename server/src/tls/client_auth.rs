//! Client certificates: who may connect to the gRPC port at all. Tokens are required all the same.

use std::{path::Path, sync::Arc};

use rustls::{
    RootCertStore,
    crypto::aws_lc_rs,
    server::{VerifierBuilderError, WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::{TlsError, pem, serving::read};

/// The CAs of the clients that may connect.
#[derive(Clone, Debug)]
pub struct ClientAuthorities(Arc<dyn ClientCertVerifier>);

impl ClientAuthorities {
    /// Reads the CAs of a PEM file.
    pub fn load(path: &Path) -> Result<Self, TlsError> {
        let refused = |source: VerifierBuilderError| TlsError::ClientAuthorities {
            path: path.to_owned(),
            source,
        };
        let certificates = pem::read_certificates(&read(path)?).map_err(|source| TlsError::Pem {
            path: path.to_owned(),
            what: "certificate",
            source,
        })?;
        let mut roots = RootCertStore::empty();
        for (index, certificate) in certificates.into_iter().enumerate() {
            roots.add(certificate).map_err(|source| TlsError::ClientAuthority {
                path: path.to_owned(),
                number: index + 1,
                source,
            })?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        verifier.map(Self).map_err(refused)
    }

    pub(super) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_without_a_ca_is_refused_by_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("clients.crt");
        let load = |text: Option<&str>| {
            match text {
                Some(text) => fs::write(&path, text).expect("a file"),
                None => drop(fs::remove_file(&path)),
            }
            ClientAuthorities::load(&path)
                .map(drop)
                .map_err(|error| error.to_string())
        };
        let made = || {
            rcgen::generate_simple_self_signed(vec!["ca".to_owned()])
                .expect("a CA")
                .cert
                .pem()
        };
        assert_eq!(load(Some(&made())), Ok(()));
        assert_eq!(load(Some(&(made() + &made()))), Ok(()));
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for text in [None, Some(""), Some("nonsense"), Some(garbage)] {
            let error = load(text).expect_err("a refusal");
            assert!(error.contains("clients.crt"), "{error}");
        }
        let second = load(Some(&(made() + garbage))).expect_err("a refusal");
        assert!(second.contains("certificate 2 of "), "{second}");
    }
}
