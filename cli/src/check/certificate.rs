//! Judges what a TLS handshake showed.

use bindery_runtime::terminal::span;
use jiff::Timestamp;

use super::{
    Check,
    facts::{CertificateFault, TlsFacts},
    finding::Findings,
};

/// A certificate that expires within this many seconds is a warning.
const EXPIRES_SOON: i64 = 7 * 24 * 3_600;

/// What a certificate is judged for.
pub(super) struct Certificate<'a> {
    pub(super) check: Check,
    /// Whose certificate it is, such as `the backend https://bind.example.com`.
    pub(super) of: &'a str,
    /// What trusts the CA, such as `Secret kube-bind/kubeconfig-cowboys`.
    pub(super) trusted_by: &'a str,
    /// The mend for a CA that is not trusted.
    pub(super) other_ca: &'a str,
    /// How its admin replaces the certificate.
    pub(super) replace: &'a str,
}

/// Judges a certificate; does nothing where no connection was made, which another check reports.
pub(super) fn judge(certificate: &Certificate<'_>, tls: &TlsFacts, now: Timestamp, found: &mut Findings) {
    let (check, of) = (certificate.check, certificate.of);
    let fault = match tls {
        TlsFacts::Plaintext => return found.skip(check, format!("{of} is plaintext on this machine's loopback")),
        TlsFacts::NotConnected(_) => return found.skip(check, format!("not checked: {of} cannot be reached")),
        TlsFacts::NoTls(why) => {
            let mend = "check the port: another program may listen there, or a proxy may end TLS";
            return found.fail(check, format!("{of} does not speak TLS as it should: {why}"), mend);
        }
        TlsFacts::Trusted(until) => return trusted(certificate, *until, now, found),
        TlsFacts::Refused(fault) => fault,
    };
    let replace = certificate.replace;
    match fault {
        CertificateFault::Untrusted => found.fail(
            check,
            format!(
                "{of} has a certificate of a CA that is not in {}",
                certificate.trusted_by
            ),
            certificate.other_ca,
        ),
        CertificateFault::Expired(since) => found.fail(
            check,
            format!("the certificate of {of} expired{}", at(" at ", *since)),
            format!("{replace}; if the certificate is still valid, set the clock of this machine"),
        ),
        CertificateFault::NotYetValid(from) => found.fail(
            check,
            format!("the certificate of {of} is not valid{}", at(" before ", *from)),
            "set the clock of this machine by NTP, such as with `timedatectl set-ntp true`",
        ),
        CertificateFault::WrongName { dialled, names } => found.fail(
            check,
            format!(
                "the certificate of {of} is for {}, and not for {dialled}",
                crate::text::joined(names)
            ),
            format!("{replace} that names {dialled}, or change the address to a name of the certificate"),
        ),
        CertificateFault::Other(why) => {
            found.fail(check, format!("the certificate of {of} is refused: {why}"), replace);
        }
    }
}

fn trusted(certificate: &Certificate<'_>, until: Option<Timestamp>, now: Timestamp, found: &mut Findings) {
    let (check, of) = (certificate.check, certificate.of);
    let Some(until) = until else {
        return found.passed(check, format!("the certificate of {of} is trusted"));
    };
    let left = until.as_second() - now.as_second();
    if left < EXPIRES_SOON {
        let message = format!("the certificate of {of} expires in {}, at {until}", span(left));
        return found.warn(check, message, certificate.replace);
    }
    found.passed(
        check,
        format!("the certificate of {of} is trusted, and valid until {until}"),
    );
}

fn at(word: &str, time: Option<Timestamp>) -> String {
    time.map_or_else(String::new, |time| format!("{word}{time}"))
}
