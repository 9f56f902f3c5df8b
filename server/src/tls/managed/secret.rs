//! The form of the Secret: PEM under fixed keys. `tls.crt`, `tls.key` and `ca.crt` are those of other TLS Secrets.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use rustls::{
    RootCertStore, client::verify_server_cert_signed_by_trust_anchor, crypto::aws_lc_rs::default_provider,
    server::ParsedCertificate, sign::CertifiedKey,
};
use rustls_pki_types::{PrivateKeyDer, UnixTime, pem::PemObject as _};
use secrecy::{ExposeSecret as _, SecretString};

use super::{Ca, ManagedTls, PrivateKey, Serving};
use crate::tls::{Certificate, pem};

/// The CAs that clients are to trust.
pub const BUNDLE: &str = "ca.crt";
/// The serving certificate.
const SERVING: [&str; 2] = ["tls.crt", "tls.key"];
/// The CA that signs.
const SIGNING: [&str; 2] = ["signing-ca.crt", "signing-ca.key"];
/// The CA that will sign next.
const NEXT: [&str; 2] = ["next-ca.crt", "next-ca.key"];

/// Why the content of the Secret cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretFault {
    /// It was not made by this server.
    #[error("it holds {found} and no CA that signs, so it was not made by this server")]
    Foreign {
        /// The keys that it has.
        found: String,
    },
    /// A key of it is missing or changed.
    #[error("{key} {what}")]
    Damaged {
        /// The key.
        key: &'static str,
        /// What is wrong with its value.
        what: &'static str,
    },
}

/// Reads the Secret; `None` if it is empty. A serving certificate that cannot be used counts as absent, since a new one does no
/// harm; a CA that cannot be used is an error, since a new one would cost the trust of all clients.
pub fn decode(secret: &Secret) -> Result<Option<ManagedTls>, SecretFault> {
    let none = BTreeMap::new();
    let data = secret.data.as_ref().unwrap_or(&none);
    if data.is_empty() {
        return Ok(None);
    }
    if !SIGNING.iter().chain(&NEXT).any(|key| data.contains_key(*key)) {
        let found = data.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        return Err(SecretFault::Foreign { found });
    }
    let signing = ca(data, SIGNING)?;
    let has_next = NEXT.iter().any(|key| data.contains_key(*key));
    let next = has_next.then(|| ca(data, NEXT)).transpose()?;
    let mut state = ManagedTls {
        next,
        serving: serving(data, &signing),
        ..ManagedTls::of(signing)
    };
    let bundle = authorities(data)?;
    if !bundle.iter().any(|ca| ca.der == state.signing.certificate.der) {
        let what = "does not hold the certificate of signing-ca.crt";
        return Err(SecretFault::Damaged { key: BUNDLE, what });
    }
    for ca in bundle {
        if !state.trusts(&ca) {
            state.former.push(ca);
        }
    }
    Ok(Some(state))
}

/// Whether the Secret lists the CAs that clients are to trust as `state` does, which was read from it.
pub fn has_bundle(secret: &Secret, state: &ManagedTls) -> bool {
    let data = secret.data.as_ref();
    data.and_then(|data| data.get(BUNDLE))
        .is_some_and(|bundle| bundle.0 == state.bundle().as_bytes())
}

/// The data of the Secret.
pub fn encode(state: &ManagedTls) -> BTreeMap<String, ByteString> {
    let mut data = BTreeMap::from([(BUNDLE.to_owned(), ByteString(state.bundle().into_bytes()))]);
    let mut add = |names: [&str; 2], certificate: &Certificate, key: &PrivateKey| {
        let [certificate_name, key_name] = names.map(str::to_owned);
        data.insert(certificate_name, ByteString(certificate.pem().into_bytes()));
        data.insert(key_name, ByteString(key.expose_secret().as_bytes().to_vec()));
    };
    add(SIGNING, &state.signing.certificate, &state.signing.key);
    if let Some(next) = &state.next {
        add(NEXT, &next.certificate, &next.key);
    }
    if let Some(serving) = &state.serving {
        add(SERVING, &serving.certificate, &serving.key);
    }
    data
}

type Data = BTreeMap<String, ByteString>;

fn ca(data: &Data, [certificate, key]: [&'static str; 2]) -> Result<Ca, SecretFault> {
    let damaged = |key, what| SecretFault::Damaged { key, what };
    let found = read_one(data, certificate).ok_or_else(|| damaged(certificate, "is not one certificate in PEM"))?;
    let private =
        read_key(data, key, &found).ok_or_else(|| damaged(key, "is not the private key of its certificate"))?;
    Ok(Ca {
        certificate: found,
        key: private,
    })
}

fn serving(data: &Data, signing: &Ca) -> Option<Serving> {
    let certificate = read_one(data, SERVING[0])?;
    let key = read_key(data, SERVING[1], &certificate)?;
    let is_sound = !certificate.is_issued_by(&signing.certificate) || is_signed_by(&certificate, &signing.certificate);
    is_sound.then_some(Serving { certificate, key })
}

fn authorities(data: &Data) -> Result<Vec<Certificate>, SecretFault> {
    let damaged = || SecretFault::Damaged {
        key: BUNDLE,
        what: "is not a list of certificates in PEM",
    };
    let text = data.get(BUNDLE).ok_or_else(damaged)?;
    let certificates = pem::read_certificates(&text.0).map_err(|_| damaged())?;
    let read = certificates
        .into_iter()
        .map(|der| Certificate::read(der).map_err(|_| damaged()));
    read.collect()
}

fn read_one(data: &Data, key: &str) -> Option<Certificate> {
    let certificates = pem::read_certificates(&data.get(key)?.0).ok()?;
    let [certificate] = <[_; 1]>::try_from(certificates).ok()?;
    Certificate::read(certificate).ok()
}

/// Reads a private key, if it is that of the certificate.
fn read_key(data: &Data, key: &str, certificate: &Certificate) -> Option<PrivateKey> {
    let text = std::str::from_utf8(&data.get(key)?.0).ok()?;
    let der = PrivateKeyDer::from_pem_slice(text.as_bytes()).ok()?;
    CertifiedKey::from_der(vec![certificate.der.clone()], der, &default_provider()).ok()?;
    Some(SecretString::from(text))
}

/// Whether a CA signed a certificate. The time is that at which it was made.
fn is_signed_by(certificate: &Certificate, ca: &Certificate) -> bool {
    let mut roots = RootCertStore::empty();
    let issued = u64::try_from(certificate.validity.issued.as_second()).unwrap_or_default();
    let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(issued));
    let Ok(parsed) = ParsedCertificate::try_from(&certificate.der) else {
        return false;
    };
    let algorithms = default_provider().signature_verification_algorithms.all;
    roots.add(ca.der.clone()).is_ok()
        && verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], time, algorithms).is_ok()
}

#[cfg(test)]
mod tests;
