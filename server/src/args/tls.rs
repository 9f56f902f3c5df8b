//! The flags about TLS of the gRPC port.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use bindery_proto::address::Address;
use clap::ArgAction;

use super::{ArgsError, duration};
use crate::tls::{
    Files, TlsSource, is_certificate_name,
    managed::{Policy, reconciler::ManagedSettings},
};

/// Shortest lifetime of a certificate that the server makes.
const LIFETIME_MIN: Duration = Duration::from_secs(10);

/// The flags with which the server makes no certificate, so that flags about its certificates would be ignored.
const NOT_MADE: [&str; 2] = ["tls_cert_file", "allow_plaintext"];

/// Flags about TLS of the gRPC port.
#[derive(Clone, Debug, clap::Args)]
pub struct TlsArgs {
    /// Certificate chain of the gRPC port, PEM. Read again when the file changes. Without it the server makes a CA and a
    /// certificate, keeps them in --tls-secret and renews them.
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of that certificate, PEM. Read again when the file changes.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_key_file: Option<PathBuf>,
    /// Serve gRPC without TLS. For trying things out: only on a loopback address.
    #[arg(long, conflicts_with_all = ["tls_cert_file", "client_ca_file"])]
    pub allow_plaintext: bool,
    /// CAs of client certificates, PEM. If given, only clients with a certificate that one of them signed can connect; tokens
    /// are needed all the same. Read again when the file changes.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// Secret of the server's namespace for the CA and the certificate that the server makes.
    #[arg(long, value_name = "NAME", default_value = "bindery-server-tls", conflicts_with_all = NOT_MADE)]
    pub tls_secret: String,
    /// Service in front of the server: the certificate is for its names in the cluster too.
    #[arg(long, value_name = "NAME", default_value = "bindery-server", conflicts_with_all = NOT_MADE)]
    pub tls_service: String,
    /// Further DNS names and IP addresses that the certificate is for, by comma or by giving this several times.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = certificate_name, action = ArgAction::Append,
          conflicts_with_all = NOT_MADE)]
    pub tls_name: Vec<String>,
    /// Lifetime of the certificate. It is renewed at two thirds.
    #[arg(long, value_name = "DURATION", default_value = "2160h", value_parser = lifetime, conflicts_with_all = NOT_MADE)]
    pub tls_lifetime: Duration,
    /// Lifetime of the CA. The next CA is handed out beside it from two thirds on, and signs from five sixths on.
    #[arg(long, value_name = "DURATION", default_value = "87600h", value_parser = lifetime, conflicts_with_all = NOT_MADE)]
    pub tls_ca_lifetime: Duration,
}

impl TlsArgs {
    /// Where the certificate comes from. `external` is the address that clients dial, `namespace` that of the server.
    pub(super) fn source(
        &self,
        listen: SocketAddr,
        external: &Address,
        namespace: &str,
    ) -> Result<TlsSource, ArgsError> {
        if let (Some(certificate), Some(key)) = (&self.tls_cert_file, &self.tls_key_file) {
            return Ok(TlsSource::Files(Files {
                certificate: certificate.clone(),
                key: key.clone(),
            }));
        }
        if self.allow_plaintext {
            return if listen.ip().is_loopback() {
                Ok(TlsSource::Plaintext)
            } else {
                Err(ArgsError::PlaintextExposed(listen))
            };
        }
        if self.tls_lifetime > self.tls_ca_lifetime / 3 {
            return Err(ArgsError::CaTooShort);
        }
        let service = format!("{}.{namespace}.svc", self.tls_service);
        let made = [
            external.host(),
            "localhost".to_owned(),
            format!("{service}.cluster.local"),
            service,
        ];
        let made = made.map(|name| certificate_name(&name).map_err(|_| ArgsError::CertificateName(name)));
        let given = self.tls_name.iter().cloned().map(Ok);
        let names = made.into_iter().chain(given).collect::<Result<_, _>>()?;
        Ok(TlsSource::Managed(ManagedSettings {
            namespace: namespace.to_owned(),
            name: self.tls_secret.clone(),
            policy: Policy {
                ca_lifetime: self.tls_ca_lifetime,
                serving_lifetime: self.tls_lifetime,
                names,
            },
        }))
    }
}

fn certificate_name(text: &str) -> Result<String, String> {
    // An IP address in its canonical form, as it is read back from a certificate.
    let name = match text.parse::<std::net::IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => text.to_ascii_lowercase(),
    };
    if is_certificate_name(&name) {
        Ok(name)
    } else {
        Err("is neither a DNS name nor an IP address".to_owned())
    }
}

fn lifetime(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        lifetime if lifetime < LIFETIME_MIN => Err("must be at least 10s".to_owned()),
        lifetime => Ok(lifetime),
    }
}
