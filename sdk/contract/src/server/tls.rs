//! Certificates of the scripted servers.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

use crate::script::Tls;

/// A CA that clients trust, one that they do not, and the server's certificates of both.
pub struct Certificates {
    trusted: CertifiedIssuer<'static, KeyPair>,
    other: CertifiedIssuer<'static, KeyPair>,
}

impl Certificates {
    /// Makes both CAs.
    pub fn make() -> Result<Self> {
        Ok(Self {
            trusted: authority("Trusted CA")?,
            other: authority("Other CA")?,
        })
    }

    /// The certificate of the CA that clients trust, PEM.
    pub fn ca_pem(&self) -> String {
        self.trusted.pem()
    }

    pub(super) fn acceptor(&self, tls: Tls) -> Result<Option<TlsAcceptor>> {
        let (issuer, name) = match tls {
            Tls::Plaintext | Tls::Missing => return Ok(None),
            Tls::Trusted | Tls::Expired | Tls::NoHttp2 => (&self.trusted, "127.0.0.1"),
            Tls::Untrusted => (&self.other, "127.0.0.1"),
            Tls::OtherName => (&self.trusted, "bind.example.com"),
        };
        let mut leaf = CertificateParams::new(vec![name.to_owned()])?;
        if tls == Tls::Expired {
            leaf.not_before = date_time_ymd(2000, 1, 1);
            leaf.not_after = date_time_ymd(2001, 1, 1);
        }
        let key = KeyPair::generate()?;
        let certificate = leaf.signed_by(&key, issuer)?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(|fault| anyhow::anyhow!("no key: {fault}"))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .context("the certificate cannot be served")?;
        let protocol: &[u8] = if tls == Tls::NoHttp2 { b"http/1.1" } else { b"h2" };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Some(TlsAcceptor::from(Arc::new(config))))
    }
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut ca = CertificateParams::new(Vec::<String>::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.distinguished_name.push(rcgen::DnType::CommonName, name);
    Ok(CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?)
}
