//! Certificates without keys, for tests of decisions.

use std::{cell::Cell, collections::BTreeSet, time::Duration};

use jiff::Timestamp;

use super::{
    Ca, ManagedTls, Serving,
    issue::{IssueCertificates, IssueError},
    plan::Policy,
};
use crate::tls::{Certificate, Validity};

/// Issues certificates without keys. CAs are numbered in the order in which they are made.
#[derive(Debug, Default)]
pub(super) struct NumberedCertificates(Cell<u32>);

impl IssueCertificates for NumberedCertificates {
    fn ca(&self, validity: Validity) -> Result<Ca, IssueError> {
        self.0.set(self.0.get() + 1);
        let name = self.0.get().to_be_bytes().to_vec();
        let certificate = Certificate {
            der: name.clone().into(),
            validity,
            names: BTreeSet::new(),
            subject: name.clone(),
            issuer: name,
        };
        Ok(Ca {
            certificate,
            key: "key".into(),
        })
    }

    fn serving(&self, ca: &Ca, names: &BTreeSet<String>, validity: Validity) -> Result<Serving, IssueError> {
        let certificate = Certificate {
            der: vec![0].into(),
            validity,
            names: names.clone(),
            subject: vec![0],
            issuer: ca.certificate.subject.clone(),
        };
        Ok(Serving {
            certificate,
            key: "key".into(),
        })
    }
}

/// A CA lives for 3600 s: the next one is published at 2400 and signs at 3000. A serving certificate is renewed every 600 s.
pub(super) fn policy() -> Policy {
    Policy {
        ca_lifetime: Duration::from_hours(1),
        serving_lifetime: Duration::from_mins(15),
        names: names(&["bind.example.com"]),
    }
}

pub(super) fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn number(name: &[u8]) -> u32 {
    u32::from_be_bytes(name.try_into().expect("a number"))
}

/// The CAs of the bundle by their numbers, the signing one first.
pub(super) fn bundle(state: &ManagedTls) -> Vec<u32> {
    state.authorities().map(|ca| number(&ca.der)).collect()
}

/// The number of the CA that signed the serving certificate.
pub(super) fn signer(state: &ManagedTls) -> u32 {
    number(&state.serving.as_ref().expect("a certificate").certificate.issuer)
}
