//! A certificate authority for tests, and the certificates that it signs.

use std::fmt;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// A certificate authority that lives as long as a test.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate, without its authority's.
    pub certificate: String,
    /// The private key, PKCS #8.
    pub key: String,
}

impl Authority {
    /// Makes a self-signed authority.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self { issuer })
    }

    /// The authority's own certificate, to be trusted.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Signs for a server under DNS names and IP addresses.
    pub fn server(&self, names: &[&str]) -> Result<Identity> {
        self.sign(Self::of_server(names)?)
    }

    /// As [`Authority::server`], with a certificate that is valid from the year 2019 until the beginning of this day.
    pub fn server_until(&self, names: &[&str], until: jiff::civil::Date) -> Result<Identity> {
        let mut params = Self::of_server(names)?;
        let part = |number: i8| u8::try_from(number).unwrap_or(1);
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(until.year().into(), part(until.month()), part(until.day()));
        self.sign(params)
    }

    fn of_server(names: &[&str]) -> Result<CertificateParams> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, "server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        Ok(params)
    }

    /// Signs for a client: to Kubernetes, the common name is the user and the organization the group.
    pub fn client(&self, user: &str, group: &str) -> Result<Identity> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}
