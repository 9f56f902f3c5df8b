//! What a certificate says of itself.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, GeneralName, ParsedExtension, X509Certificate};

/// Certificates that the server makes are valid from this long before they were made, for clients whose clocks are behind.
pub(super) const BACKDATED: SignedDuration = SignedDuration::from_hours(1);

/// A certificate, and what is read from it.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The certificate, DER.
    pub der: CertificateDer<'static>,
    /// When it is valid.
    pub validity: Validity,
    /// The DNS names and IP addresses that it is for.
    pub names: BTreeSet<String>,
    /// Its subject, DER.
    pub subject: Vec<u8>,
    /// The subject of the CA that signed it, DER.
    pub issuer: Vec<u8>,
}

/// When a certificate was made, and when it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// When it was made. Where the server did not make the certificate, an hour after it became valid.
    pub issued: Timestamp,
    /// When it expires.
    pub not_after: Timestamp,
}

/// Why a certificate cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// It is no X.509 certificate.
    #[error("the certificate is not valid X.509")]
    Malformed,
    /// Its times cannot be represented.
    #[error("the certificate's validity is out of range")]
    Validity,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("validity", &self.validity)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl Certificate {
    /// Reads a certificate.
    pub fn read(der: CertificateDer<'static>) -> Result<Self, CertificateError> {
        let (rest, parsed) = X509Certificate::from_der(&der).map_err(|_| CertificateError::Malformed)?;
        if !rest.is_empty() {
            return Err(CertificateError::Malformed);
        }
        let time = |second| Timestamp::from_second(second).map_err(|_| CertificateError::Validity);
        let not_before = time(parsed.validity().not_before.timestamp())?;
        let validity = Validity {
            issued: not_before
                .checked_add(BACKDATED)
                .map_err(|_| CertificateError::Validity)?,
            not_after: time(parsed.validity().not_after.timestamp())?,
        };
        let names = parsed
            .extensions()
            .iter()
            .flat_map(|extension| names(extension.parsed_extension()));
        Ok(Self {
            validity,
            names: names.collect(),
            subject: parsed.subject().as_raw().to_vec(),
            issuer: parsed.issuer().as_raw().to_vec(),
            der,
        })
    }

    /// The certificate as PEM.
    pub fn pem(&self) -> String {
        super::pem::encode_certificate(&self.der)
    }

    /// The SHA-256 of the certificate, in lower-case hexadecimal.
    pub fn fingerprint(&self) -> String {
        use std::fmt::Write as _;

        Sha256::digest(&self.der).iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Whether it names another certificate as the CA that signed it. The signature is not verified.
    pub fn is_issued_by(&self, ca: &Self) -> bool {
        self.issuer == ca.subject
    }

    /// Whether it is not valid yet, as one is that was made where the clock is ahead.
    pub fn is_early(&self, now: Timestamp) -> bool {
        self.validity
            .issued
            .checked_sub(BACKDATED)
            .is_ok_and(|not_before| now < not_before)
    }

    /// Whether it has expired.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.validity.not_after <= now
    }
}

impl Validity {
    /// The validity of a certificate that is made now, which ends at `end` at the latest.
    pub fn starting(now: Timestamp, lifetime: Duration, end: Option<Timestamp>) -> Self {
        let not_after = later(now, lifetime);
        Self {
            issued: now,
            not_after: end.map_or(not_after, |end| end.min(not_after)),
        }
    }

    /// The time after `numerator/denominator` of the lifetime. A lifetime longer than `limit` counts as `limit`.
    pub fn after_share(&self, numerator: u32, denominator: u32, limit: Duration) -> Timestamp {
        let own = Duration::try_from(self.not_after.duration_since(self.issued)).unwrap_or_default();
        later(self.issued, own.min(limit) / denominator * numerator)
    }
}

/// The time after a duration; the end of time if there is no such time.
fn later(time: Timestamp, duration: Duration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

fn names(extension: &ParsedExtension<'_>) -> Vec<String> {
    let ParsedExtension::SubjectAlternativeName(names) = extension else {
        return Vec::new();
    };
    names.general_names.iter().filter_map(name).collect()
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(|bytes| IpAddr::from(Ipv4Addr::from(bytes)));
            let v6 = || <[u8; 16]>::try_from(*bytes).map(|bytes| IpAddr::from(Ipv6Addr::from(bytes)));
            v4.or_else(|_| v6()).ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn reads_names_and_times() {
        let names = ["bind.example.com", "10.0.0.7", "2001:db8::7"].map(str::to_owned);
        let mut params = rcgen::CertificateParams::new(names.clone()).expect("parameters");
        params.not_before = rcgen::date_time_ymd(2026, 1, 2);
        params.not_after = rcgen::date_time_ymd(2060, 1, 2);
        let key = rcgen::KeyPair::generate().expect("a key");
        let issued = params.self_signed(&key).expect("a certificate");
        let read = Certificate::read(issued.der().clone()).expect("a certificate");
        assert_eq!(read.names, names.into());
        assert_eq!(read.validity.issued.to_string(), "2026-01-02T01:00:00Z");
        assert_eq!(read.validity.not_after.to_string(), "2060-01-02T00:00:00Z");
        assert!(read.is_issued_by(&read));
        assert_eq!(
            read.pem().parse::<String>().expect("text").lines().count(),
            issued.pem().lines().count()
        );

        assert_eq!(Certificate::read(vec![0; 9].into()), Err(CertificateError::Malformed));
        let mut longer = issued.der().to_vec();
        longer.push(0);
        assert_eq!(Certificate::read(longer.into()), Err(CertificateError::Malformed));
    }

    #[test]
    fn shares_of_a_lifetime_are_counted_from_its_begin() {
        let validity = Validity::starting(at(1000), Duration::from_mins(5), None);
        assert_eq!(validity.not_after, at(1300));
        assert_eq!(validity.after_share(2, 3, Duration::MAX), at(1200));
        assert_eq!(validity.after_share(2, 3, Duration::from_secs(30)), at(1020));
        let cut = Validity::starting(at(1000), Duration::from_mins(5), Some(at(1090)));
        assert_eq!(cut.after_share(1, 3, Duration::MAX), at(1030));
        let endless = Validity::starting(at(1000), Duration::MAX, None);
        assert_eq!(endless.not_after, Timestamp::MAX);
    }
}
