//! Certificates as PEM.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};

/// Encodes a certificate as PEM.
pub fn encode_certificate(der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let lines: Vec<_> = body.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

/// Reads all certificates of a PEM document, of which there is at least one.
pub fn read_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, rustls_pki_types::pem::Error> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?;
    if certificates.is_empty() {
        return Err(rustls_pki_types::pem::Error::NoItemsFound);
    }
    Ok(certificates)
}
