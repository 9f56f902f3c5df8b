//! Makes CAs and serving certificates, and carries out what [`plan`](super::plan) decided.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use secrecy::{ExposeSecret as _, SecretString};

use super::{
    Ca, ManagedTls, Serving,
    plan::{Policy, Step},
};
use crate::tls::{Certificate, CertificateError, Validity, certificate::BACKDATED};

/// Why a certificate cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The cryptography failed, or a name cannot stand in a certificate.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// What was made cannot be read.
    #[error("cannot make a certificate: {0}")]
    Read(#[from] CertificateError),
}

/// Issues certificates. Tests of decisions use an issuer that makes no keys.
pub trait IssueCertificates {
    /// Makes a CA.
    fn ca(&self, validity: Validity) -> Result<Ca, IssueError>;
    /// Makes a serving certificate.
    fn serving(&self, ca: &Ca, names: &BTreeSet<String>, validity: Validity) -> Result<Serving, IssueError>;
}

/// Issues certificates with new keys on the curve P-256.
#[derive(Clone, Copy, Debug)]
pub struct KeyIssuer;

impl IssueCertificates for KeyIssuer {
    fn ca(&self, validity: Validity) -> Result<Ca, IssueError> {
        let mut params = params(Vec::new(), validity)?;
        // Each CA has a name of its own, so that clients that trust two of them find the right one.
        let name = format!("bindery-server CA {:016x}", rand::random::<u64>());
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let made = params.self_signed(&key)?;
        Ok(Ca {
            certificate: Certificate::read(made.der().clone())?,
            key: private(&key),
        })
    }

    fn serving(&self, ca: &Ca, names: &BTreeSet<String>, validity: Validity) -> Result<Serving, IssueError> {
        let mut params = params(names.iter().cloned().collect(), validity)?;
        params.distinguished_name.push(DnType::CommonName, "bindery-server");
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let signer = KeyPair::from_pem(ca.key.expose_secret())?;
        let signer = Issuer::from_ca_cert_der(&ca.certificate.der, signer)?;
        let key = KeyPair::generate()?;
        let made = params.signed_by(&key, &signer)?;
        Ok(Serving {
            certificate: Certificate::read(made.der().clone())?,
            key: private(&key),
        })
    }
}

fn params(names: Vec<String>, validity: Validity) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    let not_before = validity.issued.saturating_sub(BACKDATED);
    let time = |time: Timestamp| {
        let seconds = u64::try_from(time.as_second()).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds)
    };
    params.not_before = time(not_before.unwrap_or(Timestamp::UNIX_EPOCH));
    params.not_after = time(validity.not_after);
    Ok(params)
}

fn private(key: &KeyPair) -> SecretString {
    key.serialize_pem().into()
}

/// Makes the first CA.
pub fn bootstrap(policy: &Policy, issuer: &impl IssueCertificates, now: Timestamp) -> Result<ManagedTls, IssueError> {
    let ca = issuer.ca(Validity::starting(now, policy.ca_lifetime, None))?;
    Ok(ManagedTls::of(ca))
}

/// Carries out steps in their order.
pub fn apply(
    mut state: ManagedTls,
    steps: &[Step],
    policy: &Policy,
    issuer: &impl IssueCertificates,
    now: Timestamp,
) -> Result<ManagedTls, IssueError> {
    for step in steps {
        match step {
            Step::DropExpired => {
                state.former.retain(|ca| !ca.is_expired(now));
                state.next = state.next.filter(|ca| !ca.certificate.is_expired(now));
            }
            Step::PublishCa => state.next = Some(issuer.ca(Validity::starting(now, policy.ca_lifetime, None))?),
            Step::SignWithNext => {
                if let Some(next) = state.next.take() {
                    let former = std::mem::replace(&mut state.signing, next).certificate;
                    state.former.extend((!former.is_expired(now)).then_some(former));
                }
            }
            Step::IssueServing(names) => {
                let end = state.signing.certificate.validity.not_after;
                let validity = Validity::starting(now, policy.serving_lifetime, Some(end));
                state.serving = Some(issuer.serving(&state.signing, names, validity)?);
            }
        }
    }
    Ok(state)
}
