//! The CA and the serving certificate that the server makes itself, and keeps in a Secret of its namespace.
//!
//! All replicas serve what the Secret holds. Any replica may change it: a write names the resource version that it was
//! decided from, so that of two replicas one wins and the other reads again. [`decide`] decides what the Secret is to hold: [`plan`]
//! knows what is due, [`trust`] what clients trust, and [`issue`] makes certificates. [`secret`] is the form of the Secret, and
//! [`reconciler`] reads and writes it.

use secrecy::SecretString;

use super::Certificate;

mod access;
pub mod decide;
pub mod issue;
#[cfg(test)]
mod numbered;
pub mod plan;
pub mod reconciler;
pub mod secret;
pub mod trust;

pub use plan::Policy;

/// The private key of a certificate, PEM.
pub type PrivateKey = SecretString;

/// A CA that signs serving certificates.
#[derive(Clone, Debug)]
pub struct Ca {
    /// Its certificate.
    pub certificate: Certificate,
    /// Its private key.
    pub key: PrivateKey,
}

/// The serving certificate with its key.
#[derive(Clone, Debug)]
pub struct Serving {
    /// The certificate, which the signing CA signed without intermediates.
    pub certificate: Certificate,
    /// Its private key.
    pub key: PrivateKey,
}

/// What the Secret holds.
#[derive(Clone, Debug)]
pub struct ManagedTls {
    /// The CA that signs.
    pub signing: Ca,
    /// The CA that will sign next. Clients learn of it before it signs anything.
    pub next: Option<Ca>,
    /// The CAs that signed before and have not expired. Their keys are gone.
    pub former: Vec<Certificate>,
    /// The serving certificate; `None` until one is made, or if the one in the Secret is damaged.
    pub serving: Option<Serving>,
}

impl ManagedTls {
    /// What a new CA begins with.
    pub fn of(signing: Ca) -> Self {
        Self {
            signing,
            next: None,
            former: Vec::new(),
            serving: None,
        }
    }

    /// All CAs that clients are to trust, the signing one first.
    pub fn authorities(&self) -> impl Iterator<Item = &Certificate> {
        let next = self.next.iter().map(|ca| &ca.certificate);
        std::iter::once(&self.signing.certificate)
            .chain(next)
            .chain(&self.former)
    }

    /// Whether a CA is among those that clients are to trust.
    pub fn trusts(&self, ca: &Certificate) -> bool {
        self.authorities().any(|known| known.der == ca.der)
    }

    /// The CAs that clients are to trust, PEM.
    pub fn bundle(&self) -> String {
        self.authorities().map(Certificate::pem).collect()
    }
}
