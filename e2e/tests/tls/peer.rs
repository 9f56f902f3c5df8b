//! What a client sees of a server's certificate, and what the server's Secret holds.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use bindery_e2e::{NAMESPACE, Provider, TLS_SECRET};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs},
};

/// Connects to a server under a name, with these CAs, and returns the certificate that it serves.
pub(crate) async fn served(address: &str, name: &str, ca_pem: &str) -> Result<CertificateDer<'static>> {
    let mut roots = RootCertStore::empty();
    for ca in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(ca?)?;
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let host = address.strip_prefix("https://").context("an https:// URL")?;
    let stream = TcpStream::connect(host).await?;
    let name = ServerName::try_from(name.to_owned())?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let certificates = stream.get_ref().1.peer_certificates().context("no certificate")?;
    Ok(certificates.first().context("no certificate")?.clone().into_owned())
}

/// The Secrets of the server's namespace.
pub(crate) fn secrets(provider: &Provider) -> Api<Secret> {
    Api::namespaced(provider.plane.client(), NAMESPACE)
}

/// A value of the server's Secret; `None` if there is no such key.
pub(crate) async fn stored(provider: &Provider, key: &str) -> Result<Option<String>> {
    let data = secrets(provider).get(TLS_SECRET).await?.data.unwrap_or_default();
    let value = data.get(key).map(|value| String::from_utf8(value.0.clone()));
    Ok(value.transpose()?)
}
