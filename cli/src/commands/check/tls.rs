//! Makes a TLS handshake, and reports what is wrong with the certificate. Nothing is sent over the connection.

use std::{io, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{Config, client::ConfigExt as _};
use rustls::{
    CertificateError, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use crate::check::facts::{CertificateFault, TlsFacts};

/// A time at which every certificate has expired that ever does: the end of the year 9999.
const FAR_FUTURE: Duration = Duration::from_secs(253_402_300_799);

/// Connects to the server of a configuration, and makes the handshake that its clients make. A kubeconfig of a contract that names
/// a proxy is refused when it is read, so there is none to go through. `protocols` are offered by ALPN.
pub(super) async fn handshake(config: &Config, protocols: &[&[u8]], limit: Duration) -> TlsFacts {
    match timeout(limit, attempt(config, protocols)).await {
        Ok(facts) => facts,
        Err(_) => TlsFacts::NotConnected(format!("no answer within {} s", limit.as_secs())),
    }
}

async fn attempt(config: &Config, protocols: &[&[u8]]) -> TlsFacts {
    let url = &config.cluster_url;
    let is_plaintext = url.scheme_str() == Some("http");
    let host = url.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_u16().unwrap_or(if is_plaintext { 80 } else { 443 });
    let stream = match TcpStream::connect((host, port)).await {
        Ok(stream) => stream,
        Err(error) => return TlsFacts::NotConnected(error.to_string()),
    };
    if is_plaintext {
        return TlsFacts::Plaintext;
    }
    let dialled = config.tls_server_name.as_deref().unwrap_or(host);
    let Ok(name) = ServerName::try_from(dialled.to_owned()) else {
        return TlsFacts::NoTls(format!("{dialled:?} is no name of a server"));
    };
    let mut client = match config.rustls_client_config() {
        Ok(client) => client,
        Err(error) => return TlsFacts::NoTls(error.to_string()),
    };
    client.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    match TlsConnector::from(Arc::new(client)).connect(name.clone(), stream).await {
        Ok(stream) => {
            let (_, connection) = stream.get_ref();
            let chain = connection.peer_certificates().unwrap_or_default();
            TlsFacts::Trusted(valid_until(chain, &name))
        }
        Err(error) => refused(&error, dialled),
    }
}

fn refused(error: &io::Error, dialled: &str) -> TlsFacts {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(fault)) => TlsFacts::Refused(of_certificate(fault, dialled)),
        Some(other) => TlsFacts::NoTls(other.to_string()),
        // The connection broke: something in front of a server that is away may have accepted it.
        None => TlsFacts::NotConnected(error.to_string()),
    }
}

fn of_certificate(fault: &CertificateError, dialled: &str) -> CertificateFault {
    match fault {
        CertificateError::Expired => CertificateFault::Expired(None),
        CertificateError::ExpiredContext { not_after, .. } => CertificateFault::Expired(time(*not_after)),
        CertificateError::NotValidYet => CertificateFault::NotYetValid(None),
        CertificateError::NotValidYetContext { not_before, .. } => CertificateFault::NotYetValid(time(*not_before)),
        CertificateError::NotValidForName => CertificateFault::WrongName {
            dialled: dialled.to_owned(),
            names: Vec::new(),
        },
        CertificateError::NotValidForNameContext { presented, .. } => CertificateFault::WrongName {
            dialled: dialled.to_owned(),
            names: presented.clone(),
        },
        // A certificate that is signed by another key of a CA with the same name has a bad signature.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => CertificateFault::Untrusted,
        other => CertificateFault::Other(other.to_string()),
    }
}

/// When the server's own certificate expires: a verification at a time when it has expired says since when. The verifier
/// looks at the validity before it looks for a CA, so that the certificate stands in for its own.
fn valid_until(chain: &[CertificateDer<'_>], name: &ServerName<'_>) -> Option<Timestamp> {
    let (own, others) = chain.split_first()?;
    let mut roots = RootCertStore::empty();
    roots.add(own.clone().into_owned()).ok()?;
    let verifier = WebPkiServerVerifier::builder(Arc::new(roots)).build().ok()?;
    let at = UnixTime::since_unix_epoch(FAR_FUTURE);
    match verifier.verify_server_cert(own, others, name, &[], at) {
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => time(not_after),
        _ => None,
    }
}

fn time(time: UnixTime) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(time.as_secs()).ok()?).ok()
}
