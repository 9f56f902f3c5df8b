//! Failures of the connection to the server, told apart by what the user has to do.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use bindery_proto::address::{Address, Scheme};
use h2::Reason;
use rustls::{AlertDescription, CertificateError, InvalidMessage};
use tonic::{ConnectError, Status, TimeoutExpired};

use super::one_line;

/// What a server can say of the certificate of a client.
const CLIENT_CERTIFICATE_ALERTS: [AlertDescription; 9] = [
    AlertDescription::CertificateRequired,
    AlertDescription::BadCertificate,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::CertificateRevoked,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnknownCA,
    AlertDescription::AccessDenied,
    // Its signature is not that of the CA which it names: a CA of the same name signed it.
    AlertDescription::DecryptError,
];

/// The server could not be reached, or the connection broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportError {
    /// Address of the server.
    pub address: String,
    /// What failed, by what the user has to do about it.
    pub fault: TransportFault,
    /// Message of the failure, for people.
    pub detail: String,
    /// Whether the server certainly did not process the call: it was not sent, or the server says so.
    pub unprocessed: bool,
}

/// Kind of a failed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportFault {
    /// The connection was refused.
    Refused,
    /// The host name cannot be resolved.
    NameUnknown,
    /// The server did not accept the connection in time.
    ConnectTimeout,
    /// The server's certificate is signed by a CA that is not trusted.
    CertificateUntrusted,
    /// The server's certificate is for another name.
    CertificateName,
    /// The server's certificate has expired, or is not valid yet.
    CertificateExpired,
    /// The server requires a client certificate and got none, or does not accept the one that it got.
    ClientCertificate,
    /// The TLS handshake failed for another reason.
    Tls,
    /// The server does not speak TLS.
    ServerIsPlaintext,
    /// The server speaks TLS, but neither HTTP/2 nor gRPC-Web.
    NoHttp2,
    /// An established connection broke, or the server closed it while a call was under way.
    Broken,
    /// The stream had no message, not even a heartbeat, for 90 s.
    Silent,
}

impl TransportFault {
    /// Returns the reason for conditions and metrics, which never changes.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Refused => "ConnectionRefused",
            Self::NameUnknown => "NameUnknown",
            Self::ConnectTimeout => "ConnectTimeout",
            Self::CertificateUntrusted => "CertificateUntrusted",
            Self::CertificateName => "CertificateNameMismatch",
            Self::CertificateExpired => "CertificateExpired",
            Self::ClientCertificate => "ClientCertificateRefused",
            Self::Tls => "TlsFailed",
            Self::ServerIsPlaintext => "ServerIsPlaintext",
            Self::NoHttp2 => "NoHttp2",
            Self::Broken => "ConnectionBroken",
            Self::Silent => "StreamSilent",
        }
    }

    /// Whether a retry cannot succeed until the configuration of client or server has changed.
    pub fn is_permanent(self) -> bool {
        match self {
            Self::CertificateUntrusted
            | Self::CertificateName
            | Self::CertificateExpired
            | Self::ClientCertificate
            | Self::Tls
            | Self::ServerIsPlaintext
            | Self::NoHttp2 => true,
            Self::Refused | Self::NameUnknown | Self::ConnectTimeout | Self::Broken | Self::Silent => false,
        }
    }

    fn explanation(self, address: &str) -> &'static str {
        match self {
            Self::Refused => "no program listens there; check host and port, and that the server runs",
            Self::NameUnknown => "the name has no address; check its spelling and the DNS",
            Self::ConnectTimeout => "no response; check host and port, and firewalls and network policies on the way",
            Self::CertificateUntrusted => {
                "its certificate is signed by a CA that is not trusted here; give that CA's certificate"
            }
            Self::CertificateName => {
                "its certificate is for another name; dial that name, or give it as the server's name"
            }
            Self::CertificateExpired => "its certificate is not valid at this time; renew it, and check the clocks",
            Self::ClientCertificate => {
                "it accepts only clients with a certificate that its CAs signed; present a valid one"
            }
            Self::Tls => "TLS failed",
            Self::ServerIsPlaintext => {
                "it speaks no TLS; check the port (plaintext is allowed on loopback alone, as http://)"
            }
            Self::NoHttp2 => {
                "it speaks TLS but neither HTTP/2 nor gRPC-Web; a proxy in front of it must pass one of them on, at the right path"
            }
            Self::Broken
                if address.starts_with(Scheme::Http.as_str()) && !address.starts_with(Scheme::Https.as_str()) =>
            {
                "the connection broke; if the server speaks TLS, dial https://"
            }
            Self::Broken => "the connection broke",
            Self::Silent => "it has been silent for longer than a live stream is",
        }
    }
}

impl TransportError {
    /// Recognizes a status that tonic made on the client; returns `None` for one that the server sent.
    pub(crate) fn find(status: &Status, address: &Address) -> Option<Self> {
        let first = status.source()?;
        let chain = chain(first);
        if chain.iter().any(|error| error.is::<TimeoutExpired>()) {
            return None;
        }
        let unprocessed = chain
            .iter()
            .any(|error| error.is::<ConnectError>() || is_unprocessed(*error));
        let fault = chain
            .iter()
            .find_map(|error| fault_of(*error))
            .unwrap_or(TransportFault::Broken);
        let detail = chain.last().map_or_else(String::new, ToString::to_string);
        Some(Self {
            address: address.to_string(),
            fault,
            detail,
            unprocessed,
        })
    }
}

/// Returns the kind of failure that an error or one of its sources tells.
pub(crate) fn fault_in(error: &(dyn StdError + 'static)) -> Option<TransportFault> {
    chain(error).into_iter().find_map(fault_of)
}

/// Iterates over an error and its sources, also those inside of an `io::Error`.
fn chain<'a>(first: &'a (dyn StdError + 'static)) -> Vec<&'a (dyn StdError + 'static)> {
    let mut chain = vec![first];
    let mut error = first;
    loop {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let next = match inner {
            Some(inner) => Some(inner as &(dyn StdError + 'static)),
            None => error.source(),
        };
        match next {
            Some(next) => {
                chain.push(next);
                error = next;
            }
            None => return chain,
        }
    }
}

fn fault_of(error: &(dyn StdError + 'static)) -> Option<TransportFault> {
    if let Some(tls) = error.downcast_ref::<rustls::Error>() {
        return Some(tls_fault(tls));
    }
    if let Some(io) = error.downcast_ref::<io::Error>() {
        return match io.kind() {
            io::ErrorKind::ConnectionRefused => Some(TransportFault::Refused),
            io::ErrorKind::TimedOut => Some(TransportFault::ConnectTimeout),
            _ => None,
        };
    }
    // The types of these are private to their crates.
    let text = error.to_string();
    if text.contains("dns error") {
        Some(TransportFault::NameUnknown)
    } else if text.contains("HTTP/2 was not negotiated") {
        Some(TransportFault::NoHttp2)
    } else if refuses_client_certificate(&text) {
        Some(TransportFault::ClientCertificate)
    } else {
        None
    }
}

/// Whether an error says that the server processed nothing of a stream: it refused the stream (RFC 9113, section 8.7), it shut the
/// connection down before the stream (section 6.8), or the connection had ended before the stream was sent.
fn is_unprocessed(error: &(dyn StdError + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<h2::Error>() {
        // Of the streams that the server may have begun when it shuts down, h2 reports how each of them ends instead.
        return error.is_remote() && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM));
    }
    let unsent = error.downcast_ref::<hyper::Error>();
    unsent.is_some_and(hyper::Error::is_canceled)
}

/// Whether an error says that the server refused the client's certificate. In TLS 1.3 the server says so when the client's end of
/// the handshake is over already; HTTP/2 keeps only the text of such an error.
fn refuses_client_certificate(text: &str) -> bool {
    let alert = text.split_once("received fatal alert: ").map(|(_, alert)| alert.trim());
    alert.is_some_and(|alert| {
        let mut known = CLIENT_CERTIFICATE_ALERTS.iter();
        known.any(|known| alert == format!("{known:?}"))
    })
}

fn tls_fault(error: &rustls::Error) -> TransportFault {
    match error {
        rustls::Error::InvalidCertificate(fault) => match fault {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                TransportFault::CertificateName
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => TransportFault::CertificateExpired,
            _ => TransportFault::CertificateUntrusted,
        },
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion) => {
            TransportFault::ServerIsPlaintext
        }
        rustls::Error::NoApplicationProtocol
        | rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => TransportFault::NoHttp2,
        rustls::Error::AlertReceived(alert) if CLIENT_CERTIFICATE_ALERTS.contains(alert) => {
            TransportFault::ClientCertificate
        }
        _ => TransportFault::Tls,
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot reach the server at {}: {}",
            self.address,
            self.fault.explanation(&self.address)
        )?;
        if self.detail.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", one_line(&self.detail))
    }
}

impl StdError for TransportError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: io::Error, expect: Option<TransportFault>) {
        let address: Address = "https://bind.example.com".parse().unwrap();
        let status = Status::from_error(Box::new(error));
        assert_eq!(TransportError::find(&status, &address).map(|error| error.fault), expect);
    }

    fn certificate(fault: CertificateError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(fault))
    }

    #[test]
    fn faults_are_found_below_the_surface() {
        check(io::ErrorKind::ConnectionRefused.into(), Some(TransportFault::Refused));
        check(io::ErrorKind::ConnectionReset.into(), Some(TransportFault::Broken));
        check(
            certificate(CertificateError::UnknownIssuer),
            Some(TransportFault::CertificateUntrusted),
        );
        check(
            certificate(CertificateError::Expired),
            Some(TransportFault::CertificateExpired),
        );
        check(
            certificate(CertificateError::NotValidForName),
            Some(TransportFault::CertificateName),
        );
        check(io::Error::other(io::Error::other(TimeoutExpired(()))), None);
    }

    #[test]
    fn a_response_is_no_fault() {
        let address: Address = "https://bind.example.com".parse().unwrap();
        assert_eq!(TransportError::find(&Status::unavailable("draining"), &address), None);
    }
}
