//! Builds a client: its address, trusted CAs, token source and time limits.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bindery_proto::address::{Address, AddressError, Scheme};
use http::Uri;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use secrecy::ExposeSecret as _;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::client::connections::Connections;
use crate::client::{Client, Limits, MESSAGE_RECEIVE_MAX, Shared};
use crate::retry::RetryPolicy;
use crate::token::file::FileToken;
use crate::token::{StaticToken, TokenSource};
use crate::trace::CallTracer;
use crate::transport::{Protocol, Route, WebSettings, WebTls};
use crate::watch::WatchTiming;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Limit on the time limits of a client: longer ones are cut to it.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_hours(24);

const USER_AGENT: &str = concat!("bindery-sdk-rust/", env!("CARGO_PKG_VERSION"));

/// Settings of a client; see [`Client::builder`].
#[must_use]
pub struct ClientBuilder {
    address: String,
    authority: Authority,
    client_certificate: Option<ClientCertificate>,
    server_name: Option<String>,
    allow_plaintext: bool,
    tokens: Option<Arc<dyn TokenSource>>,
    connect_timeout: Duration,
    protocol: Protocol,
    limits: Limits,
    retry: RetryPolicy,
    watch: WatchTiming,
    user_agent: String,
    tracer: Option<Arc<dyn CallTracer>>,
}

/// The CA certificates that a client trusts.
enum Authority {
    /// Those of the system.
    System,
    /// These, PEM.
    Pem(Vec<u8>),
    /// Those in this file, PEM.
    File(PathBuf),
}

/// A certificate by which the client shows the server who it is, and its private key, both PEM.
struct ClientCertificate {
    chain: Vec<u8>,
    key: secrecy::SecretSlice<u8>,
}

/// Why the settings of a client are not valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The address is not valid.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The address is `http://`, but not of this machine, or plaintext was not allowed.
    #[error("{address} is plaintext, over which tokens could be read; {advice}")]
    Plaintext {
        /// Address of the backend that the client was to dial.
        address: Address,
        /// What to write instead.
        advice: &'static str,
    },
    /// The CA certificates are not valid PEM.
    #[error(
        "the CA certificates for {address} cannot be used: {fault}; give one or more PEM blocks of type CERTIFICATE"
    )]
    Ca {
        /// Address of the backend that the client was to dial.
        address: Address,
        /// What is wrong with the certificates.
        fault: String,
    },
    /// The file with the CA certificates cannot be read.
    #[error("cannot read the file {} with the CA certificates for {address}: {source}", path.display())]
    CaFile {
        /// Address of the backend that the client was to dial.
        address: Address,
        /// Path of the file with the CA certificates.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The client certificate and its key are not valid PEM, or do not belong together.
    #[error(
        "the client certificate for {address} cannot be used: {fault}; give its chain and its private key, both PEM"
    )]
    ClientCertificate {
        /// Address of the backend that the client was to dial.
        address: Address,
        /// What is wrong with the certificate or its key.
        fault: String,
    },
    /// TLS cannot be set up.
    #[error("TLS for {address} cannot be set up: {fault}")]
    Tls {
        /// Address of the backend that the client was to dial.
        address: Address,
        /// Why TLS cannot be set up.
        fault: String,
    },
    /// A time limit is zero.
    #[error("{setting} is zero; give a longer one")]
    Timeout {
        /// What the time limit is of, for people.
        setting: &'static str,
    },
    /// The user agent is not a valid header value.
    #[error("the user agent {0:?} cannot stand in a header")]
    UserAgent(String),
}

impl BuildError {
    /// Returns the reason for conditions and metrics, which never changes.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Address(_) => "AddressInvalid",
            Self::Plaintext { .. } => "PlaintextRefused",
            Self::Ca { .. } | Self::CaFile { .. } => "CaInvalid",
            Self::ClientCertificate { .. } => "ClientCertificateInvalid",
            Self::Tls { .. } => "TlsSetupFailed",
            Self::Timeout { .. } => "TimeoutInvalid",
            Self::UserAgent(_) => "UserAgentInvalid",
        }
    }
}

impl Client {
    /// Returns a builder of a client for the backend at `https://host:port`, or below a path prefix at which a proxy serves it.
    pub fn builder(address: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(address.into())
    }
}

impl ClientBuilder {
    fn new(address: String) -> Self {
        Self {
            address,
            authority: Authority::System,
            client_certificate: None,
            server_name: None,
            allow_plaintext: false,
            tokens: None,
            connect_timeout: CONNECT_TIMEOUT,
            protocol: Protocol::default(),
            limits: Limits::default(),
            retry: RetryPolicy::default(),
            watch: WatchTiming::default(),
            user_agent: USER_AGENT.to_owned(),
            tracer: None,
        }
    }

    /// Trusts these CA certificates (PEM) instead of those of the system, or of a file given before.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authority = Authority::Pem(pem.into());
        self
    }

    /// Trusts the CA certificates in this file (PEM), which [`Self::build`] reads, instead of those of the system, or of a text given
    /// before.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.authority = Authority::File(path.into());
        self
    }

    /// Presents this certificate (PEM, with its intermediates) and proves that it has its private key (PEM), if the server asks
    /// for a client certificate. A token is needed all the same.
    pub fn client_certificate_pem(
        mut self,
        chain: impl Into<Vec<u8>>,
        key: impl Into<secrecy::SecretSlice<u8>>,
    ) -> Self {
        let (chain, key) = (chain.into(), key.into());
        self.client_certificate = Some(ClientCertificate { chain, key });
        self
    }

    /// Requires that the server's certificate is for this name instead of the host of the address.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Allows `http://` to a loopback address. It is never allowed to other hosts.
    pub fn allow_plaintext(mut self, allow: bool) -> Self {
        self.allow_plaintext = allow;
        self
    }

    /// Sends this token with each call.
    pub fn token(self, token: impl Into<secrecy::SecretString>) -> Self {
        self.token_source(StaticToken::new(token))
    }

    /// Sends the present token of this file with each call.
    pub fn token_file(self, path: impl Into<PathBuf>) -> Self {
        self.token_source(FileToken::new(path))
    }

    /// Sends tokens of this source, which must be for [`Client::audience`].
    pub fn token_source(mut self, tokens: impl TokenSource) -> Self {
        self.tokens = Some(Arc::new(tokens));
        self
    }

    /// Sets the time limit for connecting, TLS included. The default is 10 s. Zero is an error; above 24 h, the limit is 24 h.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the protocol. The default is gRPC, and gRPC-Web over HTTP/1.1 where a proxy on the way does not speak HTTP/2.
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Sets the time limit of a call with its token and all its attempts. The default is 30 s, and longer for calls that wait for a
    /// controller. Zero is an error; above 24 h, the limit is 24 h.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limits.total = Some(timeout);
        self
    }

    /// Sets the time limit of one attempt. The default is 10 s, and longer for calls that wait for a controller. Zero is an error;
    /// above 24 h, the limit is 24 h.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.limits.attempt = Some(timeout);
        self
    }

    /// Sets how often and how soon failed calls are retried.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Sets how soon watches reconnect, and which silence of a stream ends it. For tests alone: servers rely on the defaults.
    #[doc(hidden)]
    pub fn watch_timing(mut self, reconnect: RetryPolicy, silence: Duration) -> Self {
        self.watch = WatchTiming { reconnect, silence };
        self
    }

    /// Sets the user agent, which precedes the SDK's own in the server's log.
    pub fn user_agent(mut self, name: impl fmt::Display) -> Self {
        self.user_agent = format!("{name} {USER_AGENT}");
        self
    }

    /// Sets what follows the calls, such as for distributed tracing. Without it calls are sent without a trace context.
    pub fn call_tracer(mut self, tracer: impl CallTracer) -> Self {
        self.tracer = Some(Arc::new(tracer));
        self
    }

    /// Builds the client, which connects with its first call. Must be called within a Tokio runtime. No proxy of the environment is
    /// used.
    pub fn build(mut self) -> Result<Client, BuildError> {
        self.check_timeouts()?;
        let address = self.check_address()?;
        let mut endpoint = Endpoint::from_shared(address.to_string())
            .map_err(|error| BuildError::Tls {
                address: address.clone(),
                fault: error.to_string(),
            })?
            .connect_timeout(self.connect_timeout)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(KEEP_ALIVE_INTERVAL))
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .user_agent(self.user_agent.clone())
            .map_err(|_| BuildError::UserAgent(self.user_agent.clone()))?;
        let mut ca_pem = None;
        if address.scheme() == Scheme::Https {
            ca_pem = self.authority_pem(&address)?;
            endpoint = endpoint
                .tls_config(self.tls(&address, ca_pem.as_deref())?)
                .map_err(|error| tls_error(&address, &error))?;
        }
        let origin = origin(&address)?;
        let route = Route::new(origin, self.protocol, self.web(&address, ca_pem));
        Ok(self.finish(address, Connections::to(endpoint), route))
    }

    /// Builds a client on an existing channel, such as an in-memory one. The address still determines the audience and the names
    /// in errors; CA, server name, connect timeout and user agent are those of the channel, on which watches are opened too, and
    /// over which gRPC alone is spoken.
    pub fn build_with_channel(mut self, channel: Channel) -> Result<Client, BuildError> {
        self.check_timeouts()?;
        let address = self.check_address()?;
        let route = Route::by_grpc(origin(&address)?);
        Ok(self.finish(address, Connections::of_channel(channel), route))
    }

    fn check_timeouts(&mut self) -> Result<(), BuildError> {
        let limits = [
            ("the time limit of a call", self.limits.total.as_mut()),
            ("the time limit of an attempt", self.limits.attempt.as_mut()),
            ("the time limit for connecting", Some(&mut self.connect_timeout)),
        ];
        for (setting, limit) in limits {
            if let Some(limit) = limit {
                *limit = check_timeout(setting, *limit)?;
            }
        }
        Ok(())
    }

    fn check_address(&self) -> Result<Address, BuildError> {
        let address: Address = self.address.parse()?;
        let advice = match address.scheme() {
            Scheme::Http if !address.is_loopback() => "dial https://, plaintext is for loopback addresses alone",
            Scheme::Http if !self.allow_plaintext => "dial https://, or allow plaintext explicitly",
            Scheme::Https | Scheme::Http => return Ok(address),
        };
        Err(BuildError::Plaintext { address, advice })
    }

    fn tls(&self, address: &Address, ca_pem: Option<&[u8]>) -> Result<ClientTlsConfig, BuildError> {
        // Set even if it is the host: tonic would take the brackets of an IPv6 address as part of the name.
        let name = self.server_name.clone().unwrap_or_else(|| address.host());
        let mut config = ClientTlsConfig::new().domain_name(name).timeout(self.connect_timeout);
        if let Some(client) = &self.client_certificate {
            config = config.identity(client.identity().map_err(|fault| BuildError::ClientCertificate {
                address: address.clone(),
                fault,
            })?);
        }
        Ok(match ca_pem {
            Some(pem) => config.ca_certificate(Certificate::from_pem(pem)),
            None => config.with_native_roots(),
        })
    }

    /// Reads the CA that is trusted in place of those of the system.
    fn authority_pem(&self, address: &Address) -> Result<Option<Vec<u8>>, BuildError> {
        let pem = match &self.authority {
            Authority::System => return Ok(None),
            Authority::Pem(pem) => pem.clone(),
            Authority::File(path) => std::fs::read(path).map_err(|source| BuildError::CaFile {
                address: address.clone(),
                path: path.clone(),
                source,
            })?,
        };
        // Checked here because tonic ignores invalid certificates, and would then trust no server.
        check_certificates(&pem).map_err(|fault| BuildError::Ca {
            address: address.clone(),
            fault,
        })?;
        Ok(Some(pem))
    }

    fn web(&self, address: &Address, ca_pem: Option<Vec<u8>>) -> WebSettings {
        let tls = WebTls {
            ca_pem,
            client_certificate: self
                .client_certificate
                .as_ref()
                .map(|client| (client.chain.clone(), client.key.clone())),
            server_name: self.server_name.clone().unwrap_or_else(|| address.host()),
        };
        WebSettings {
            tls: (address.scheme() == Scheme::Https).then_some(tls),
            connect_timeout: self.connect_timeout,
            user_agent: self.user_agent.clone(),
            message_max: MESSAGE_RECEIVE_MAX,
        }
    }

    fn finish(self, address: Address, connections: Connections, route: Route) -> Client {
        let shared = Shared {
            address,
            connections,
            route: Arc::new(route),
            tokens: self.tokens,
            retry: self.retry,
            watch: self.watch,
            tracer: self.tracer,
        };
        Client::new(shared, self.limits)
    }
}

impl ClientCertificate {
    /// Checks the files, since tonic does not say which of the two is wrong.
    fn identity(&self) -> Result<Identity, String> {
        let chain = CertificateDer::pem_slice_iter(&self.chain).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| format!("the certificate: {error}"))?;
        if chain.is_empty() {
            return Err("the certificate: there is none".to_owned());
        }
        let pem = self.key.expose_secret();
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| format!("the private key: {error}"))?;
        CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(|error| error.to_string())?;
        Ok(Identity::from_pem(&self.chain, pem))
    }
}

/// Returns the time limit that is used for a setting; fails if it is zero.
pub(crate) fn check_timeout(setting: &'static str, timeout: Duration) -> Result<Duration, BuildError> {
    if timeout.is_zero() {
        return Err(BuildError::Timeout { setting });
    }
    Ok(timeout.min(TIMEOUT_MAX))
}

fn origin(address: &Address) -> Result<Uri, BuildError> {
    address
        .to_string()
        .parse()
        .map_err(|error: http::uri::InvalidUri| BuildError::Tls {
            address: address.clone(),
            fault: error.to_string(),
        })
}

fn check_certificates(pem: &[u8]) -> Result<(), String> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() {
        return Err("there is none".to_owned());
    }
    Ok(())
}

fn tls_error(address: &Address, error: &tonic::transport::Error) -> BuildError {
    let fault = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    BuildError::Tls {
        address: address.clone(),
        fault,
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("address", &self.address)
            .field("server_name", &self.server_name)
            .field("allow_plaintext", &self.allow_plaintext)
            .field("limits", &self.limits)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(builder: ClientBuilder, expect: Result<&str, &str>) {
        let got = builder.build();
        let got = got.as_ref().map(Client::audience).map_err(BuildError::reason);
        assert_eq!(got, expect.map(str::to_owned));
    }

    #[tokio::test]
    async fn plaintext_is_for_loopback_by_request() {
        let allowed = |address: &str| Client::builder(address).allow_plaintext(true);
        check(allowed("http://127.0.0.1:8080"), Ok("http://127.0.0.1:8080"));
        check(allowed("http://[::1]:8080"), Ok("http://[::1]:8080"));
        check(allowed("http://localhost:8080"), Ok("http://localhost:8080"));
        check(Client::builder("http://127.0.0.1:8080"), Err("PlaintextRefused"));
        check(allowed("http://10.0.0.1:8080"), Err("PlaintextRefused"));
        check(allowed("http://bind.example.com"), Err("PlaintextRefused"));
    }

    #[tokio::test]
    async fn settings_that_cannot_work_are_refused_at_once() {
        let address = "https://bind.example.com";
        check(
            Client::builder("https://bind.example.com/a/../b"),
            Err("AddressInvalid"),
        );
        let below = "https://bind.example.com/bindery";
        check(Client::builder(format!("{below}/")), Ok(below));
        check(Client::builder(address).ca_pem("no certificate"), Err("CaInvalid"));
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        check(Client::builder(address).ca_pem(garbage), Err("CaInvalid"));
        let ca = rcgen::generate_simple_self_signed(["ca".to_owned()])
            .unwrap()
            .cert
            .pem();
        check(Client::builder(address).ca_pem(ca.clone()), Ok(address));
        check(
            Client::builder(address).ca_pem(ca.clone()).server_name("not a name"),
            Err("TlsSetupFailed"),
        );
        check(
            Client::builder(address).ca_pem(ca.clone()).user_agent("line\nbreak"),
            Err("UserAgentInvalid"),
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.crt");
        check(Client::builder(address).ca_file(&file), Err("CaInvalid"));
        std::fs::write(&file, garbage).unwrap();
        check(Client::builder(address).ca_file(&file), Err("CaInvalid"));
        std::fs::write(&file, ca).unwrap();
        check(Client::builder(address).ca_file(&file), Ok(address));
    }

    #[tokio::test]
    async fn a_client_certificate_comes_with_its_own_key() {
        let made = || rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
        let (client, other) = (made(), made());
        let with = |chain: &str, key: &str| {
            let builder = Client::builder("https://bind.example.com");
            builder.client_certificate_pem(chain, key.as_bytes().to_vec())
        };
        let (chain, key) = (client.cert.pem(), client.signing_key.serialize_pem());
        check(with(&chain, &key), Ok("https://bind.example.com"));
        let invalid = Err("ClientCertificateInvalid");
        check(with(&chain, &other.signing_key.serialize_pem()), invalid);
        check(with(&chain, "no key"), invalid);
        check(with("no certificate", &key), invalid);
    }

    #[tokio::test]
    async fn time_limits_are_longer_than_nothing_and_no_longer_than_a_day() {
        let address = "https://bind.example.com";
        let builder = || Client::builder(address).ca_pem(rcgen::generate_simple_self_signed([]).unwrap().cert.pem());
        let invalid = Err("TimeoutInvalid");
        check(builder().timeout(Duration::ZERO), invalid);
        check(builder().attempt_timeout(Duration::ZERO), invalid);
        check(builder().connect_timeout(Duration::ZERO), invalid);
        let longest = builder()
            .timeout(Duration::MAX)
            .attempt_timeout(Duration::MAX)
            .connect_timeout(Duration::MAX);
        check(longest, Ok(address));
        assert_eq!(check_timeout("x", Duration::MAX).unwrap(), TIMEOUT_MAX);
        let client = builder().build().unwrap();
        assert_eq!(
            client.with_timeout(Duration::ZERO).unwrap_err().reason(),
            "TimeoutInvalid"
        );
    }

    #[test]
    fn debug_shows_no_token() {
        let shown = format!("{:?}", Client::builder("https://bind.example.com").token("hunter2"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
