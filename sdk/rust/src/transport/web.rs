//! gRPC-Web over HTTP/1.1: each call in progress, and each watch, has a connection of its own.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use secrecy::{ExposeSecret as _, SecretSlice};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::{ConnectError, Status};
use tonic_web::{GrpcWebCall, GrpcWebClientService};
use tower::util::BoxCloneSyncService;
use tower::{Service as _, ServiceExt as _, service_fn};

use super::frames::{BodyFault, CompleteBody, ReceivedBody};
use super::{BoxError, LongLived};

/// Calls in progress at the same time, each on its own connection. Further calls wait. Watches are not counted.
const CALLS_MAX: usize = 32;
/// How long a connection that no call uses is kept: servers and proxies close them after 30 s and more.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const GRPC_WEB: HeaderName = HeaderName::from_static("x-grpc-web");

type Connection = MaybeHttpsStream<TokioIo<TcpStream>>;
type Connector = BoxCloneSyncService<Uri, Connection, BoxError>;

/// What gRPC-Web needs of the settings of a client.
pub(crate) struct WebSettings {
    /// None for plaintext.
    pub(crate) tls: Option<WebTls>,
    pub(crate) connect_timeout: Duration,
    pub(crate) user_agent: String,
    /// Size limit of a response, in bytes.
    pub(crate) message_max: usize,
}

/// The TLS settings of a client, which were checked when it was built.
pub(crate) struct WebTls {
    /// PEM; those of the system if absent.
    pub(crate) ca_pem: Option<Vec<u8>>,
    /// A certificate chain and its private key, PEM.
    pub(crate) client_certificate: Option<(Vec<u8>, SecretSlice<u8>)>,
    pub(crate) server_name: String,
}

/// The connections for gRPC-Web, set up by the first call that needs one.
pub(super) struct LazyWebConnections {
    settings: WebSettings,
    web: OnceLock<Result<WebConnections, String>>,
}

/// The connections for gRPC-Web. Clones share them.
#[derive(Clone)]
pub(super) struct WebConnections {
    http: Client<Connector, GrpcWebCall<Full<Bytes>>>,
    user_agent: HeaderValue,
    message_max: usize,
    calls: Arc<Semaphore>,
}

impl LazyWebConnections {
    pub(super) fn new(settings: WebSettings) -> Self {
        Self {
            settings,
            web: OnceLock::new(),
        }
    }

    pub(super) fn get(&self) -> Result<WebConnections, BoxError> {
        let made = self
            .web
            .get_or_init(|| WebConnections::new(&self.settings).map_err(|error| error.to_string()));
        made.clone()
            .map_err(|error| format!("gRPC-Web cannot be set up: {error}").into())
    }
}

impl WebConnections {
    fn new(settings: &WebSettings) -> Result<Self, BoxError> {
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(CALLS_MAX)
            .build(settings.connector()?);
        Ok(Self {
            http,
            user_agent: HeaderValue::try_from(&settings.user_agent)?,
            message_max: settings.message_max,
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
        })
    }

    /// Sends a call by gRPC-Web. The response is one of gRPC, or an error of a proxy.
    pub(super) async fn send(self, mut parts: Parts, body: Bytes) -> Result<Response<Body>, BoxError> {
        let permit = match parts.extensions.get::<LongLived>() {
            Some(_) => None,
            None => Some(self.calls.acquire_owned().await?),
        };
        // It is of a single connection, and speaks of trailers.
        parts.headers.remove(header::TE);
        parts.headers.insert(GRPC_WEB, HeaderValue::from_static("1"));
        parts.headers.insert(header::USER_AGENT, self.user_agent);
        // Some proxies refuse a request without it.
        parts.headers.insert(header::CONTENT_LENGTH, body.len().into());
        let fault = BodyFault::default();
        let of_connection = Arc::clone(&fault);
        let http = self.http.map_response(move |response: Response<Incoming>| {
            response.map(|body| ReceivedBody::new(body, self.message_max, of_connection))
        });
        let request = Request::from_parts(parts, Full::new(body));
        // Boxed, since the compiler cannot tell otherwise that it is Send.
        let sending: BoxFuture<'static, _> = GrpcWebClientService::new(http).oneshot(request).boxed();
        let response = sending.await.map_err(|error| -> BoxError {
            if error.is_connect() {
                Box::new(ConnectError(error.into()))
            } else {
                error.into()
            }
        })?;
        let complete = Status::from_header_map(response.headers()).is_some() || !super::is_grpc(response.headers());
        Ok(response.map(|body| Body::new(CompleteBody::new(body, fault, complete, permit))))
    }
}

impl WebSettings {
    fn connector(&self) -> Result<Connector, BoxError> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_keepalive(Some(KEEP_ALIVE));
        let limit = self.connect_timeout;
        let Some(tls) = &self.tls else {
            return Ok(limited(limit, move |uri| {
                let mut http = http.clone();
                async move { Ok(MaybeHttpsStream::Http(http.call(uri).await?)) }
            }));
        };
        let name = ServerName::try_from(tls.server_name.clone())?;
        // Without ALPN a server speaks HTTP/1.1.
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls.config()?)
            .https_only()
            .with_server_name_resolver(FixedServerNameResolver::new(name))
            .enable_http1()
            .wrap_connector(http);
        Ok(limited(limit, move |uri| https.clone().call(uri)))
    }
}

/// Connects by `connect` within a time limit, TLS included.
fn limited<F, C>(limit: Duration, connect: F) -> Connector
where
    F: Fn(Uri) -> C + Clone + Send + Sync + 'static,
    C: Future<Output = Result<Connection, BoxError>> + Send + 'static,
{
    BoxCloneSyncService::new(service_fn(move |uri| {
        let connecting = timeout(limit, connect(uri));
        async move {
            connecting
                .await
                .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
        }
    }))
}

impl WebTls {
    fn config(&self) -> Result<ClientConfig, BoxError> {
        let mut roots = RootCertStore::empty();
        if let Some(pem) = &self.ca_pem {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate?)?;
            }
        } else {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let Some((chain, key)) = &self.client_certificate else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(key.expose_secret())?;
        Ok(builder.with_client_auth_cert(chain, key)?)
    }
}
