//! The client certificate that the konnector presents to backends that ask for one.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bindery_runtime::kubeconfig::Fingerprint;
use bindery_sdk::ClientBuilder;
use secrecy::{ExposeSecret as _, SecretSlice};

/// The files of the client certificate, if the konnector has one. They are read for each new client of a backend, so that a
/// renewed certificate is used without a restart. Clones share the paths.
#[derive(Clone, Debug, Default)]
pub struct ClientCertificateFiles(Option<Arc<[PathBuf; 2]>>);

/// A client certificate and its private key, both PEM.
#[derive(Clone, Debug)]
pub struct ClientCertificate {
    chain: Vec<u8>,
    key: SecretSlice<u8>,
}

/// A file of the client certificate cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}, of --client-certificate and --client-key: {source}", path.display())]
pub struct ClientCertificateError {
    path: PathBuf,
    source: io::Error,
}

impl ClientCertificateFiles {
    /// The files with the certificate and with its key. Without both, no certificate is presented.
    pub fn new(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Self {
        Self(
            certificate
                .zip(key)
                .map(|(certificate, key)| Arc::new([certificate, key])),
        )
    }

    /// Reads the files; `None` if there is no client certificate.
    pub fn read(&self) -> Result<Option<ClientCertificate>, ClientCertificateError> {
        let Some([certificate, key]) = self.0.as_deref() else {
            return Ok(None);
        };
        Ok(Some(ClientCertificate {
            chain: read(certificate)?,
            key: read(key)?.into(),
        }))
    }
}

impl ClientCertificate {
    /// Tells this certificate apart from others.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of([self.chain.as_slice(), self.key.expose_secret()])
    }

    /// Presents the certificate to the backend of a client.
    pub fn present(self, builder: ClientBuilder) -> ClientBuilder {
        builder.client_certificate_pem(self.chain, self.key)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ClientCertificateError> {
    fs::read(path).map_err(|source| ClientCertificateError {
        path: path.to_owned(),
        source,
    })
}
