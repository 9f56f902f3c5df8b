//! Kubernetes clients for controllers: no request is delayed by the client, none hangs, and the caller decides about retries.

mod clock;
mod h2_pool;
mod lease_check;
mod network;
mod rate_limit;
mod request;
mod traffic;
mod transport;

use std::{
    error::Error as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use http::{HeaderValue, Request, Response, StatusCode, header::AUTHORIZATION};
use http_body_util::Limited;
use hyper::body::{Body as HttpBody, Bytes};
use kube::{
    Client, Config,
    client::{Body, ConfigExt as _},
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Notify;
use tower::{
    BoxError, Service, ServiceBuilder,
    util::{Either, MapResponseLayer},
};

use lease_check::LeaseCheck;
use traffic::PoolTraffic;
use transport::Endpoint;

pub use clock::ServerClock;
pub use network::{Network, Transport, TransportBody};
pub use rate_limit::RateLimit;
pub(crate) use request::{RequestKind, ResponseTimer};
pub use traffic::{ClusterTraffic, TrafficMetrics, TrafficTotals};

/// A request that is not a watch must be answered within this time.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The longest answer that is read, in bytes, unless it is the stream of a list or a watch, whose reader has limits of its own. Reading
/// ends where an answer gets longer.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Why a client cannot be built. No variant holds a credential.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig does not exist, or names no usable cluster, context or user.
    #[error("cannot use the kubeconfig{}: {source}", of(.path.as_deref()))]
    Kubeconfig {
        /// The file; `None` if it was found as kubectl finds it.
        path: Option<PathBuf>,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// The kubeconfig is not valid YAML. Its text is not repeated, as the parser would do: it holds credentials.
    #[error("the kubeconfig{} is not valid: its YAML cannot be parsed{}", of(.path.as_deref()), at(.line.as_ref()))]
    Unparsable {
        /// The file; `None` if it was found as kubectl finds it.
        path: Option<PathBuf>,
        /// The line at which the parser failed, counted from one.
        line: Option<u64>,
    },
    /// Neither a kubeconfig nor an in-cluster environment was found.
    #[error("found neither a kubeconfig nor an in-cluster service account: {0}")]
    Infer(#[from] kube::config::InferConfigError),
    /// TLS or credentials could not be set up.
    #[error("cannot set up the connection: {0}")]
    Setup(#[from] kube::Error),
    /// The kubeconfig's `tls-server-name` is not a valid name.
    #[error("the TLS server name {0:?} is not a valid name")]
    ServerName(String),
    /// The bearer token contains bytes that an HTTP header must not.
    #[error("the token contains characters that an HTTP header must not")]
    Token,
}

/// A bearer token that every request reads anew, so that a renewed token takes effect without a new client. Clones share it.
#[derive(Clone)]
pub struct SharedToken(Arc<TokenCell>);

struct TokenCell {
    header: ArcSwap<HeaderValue>,
    refused: Notify,
}

/// Clients for one cluster. Each has connections of its own, so that no kind of traffic waits for another.
#[derive(Clone)]
pub struct Clients {
    /// For watches and large lists, which have no time limit as a whole.
    pub watch: Client,
    /// For writes and small reads, which must be answered within 20 s.
    pub write: Client,
    /// For leases and heartbeats, which a burst of writes must not delay.
    pub lease: Client,
    /// The time of the cluster, as answers to `write` and `lease` tell it.
    pub clock: ServerClock,
}

/// Limits that the user of a command sets for its requests.
#[derive(Clone, Debug, Default)]
pub struct RequestLimits {
    /// Time within which each request must be answered; zero means no limit, `None` the defaults of [`Clients`].
    pub request_timeout: Option<Duration>,
    /// Requests per second, those for leases excepted; `None` means no limit.
    pub rate: Option<RateLimit>,
}

/// Layers around the transport of one client.
struct ClientLayers<'a> {
    /// Whether lists and watches are read as streams, which are limited elsewhere.
    streams: bool,
    config: &'a Config,
    token: Option<&'a SharedToken>,
    traffic: PoolTraffic,
    timeout: Option<Duration>,
    rate: Option<&'a RateLimit>,
    lease: Option<&'a LeaseCheck>,
    clock: Option<&'a ServerClock>,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clients")
    }
}

impl Clients {
    /// Uses one client for all traffic. Nothing reads the clock of the cluster.
    pub fn of(client: Client) -> Self {
        Self {
            watch: client.clone(),
            write: client.clone(),
            lease: client,
            clock: ServerClock::default(),
        }
    }

    /// Builds the clients of one cluster without connecting. Each client keeps `idle_max` idle connections at most.
    pub fn new(config: &Config, idle_max: usize) -> Result<Self, ClientError> {
        Self::counted(config, None, idle_max, &ClusterTraffic::default())
    }

    /// As [`Clients::new`], with the limits of a command's user.
    pub fn limited(config: &Config, idle_max: usize, limits: &RequestLimits) -> Result<Self, ClientError> {
        Self::build(
            &Network::default(),
            config,
            None,
            idle_max,
            limits,
            &ClusterTraffic::default(),
        )
    }

    /// As [`Clients::new`], with a token in place of the credentials of the configuration.
    pub fn with_token(config: &Config, idle_max: usize, token: &SharedToken) -> Result<Self, ClientError> {
        Self::counted(config, Some(token), idle_max, &ClusterTraffic::default())
    }

    /// As [`Clients::with_token`] if there is a token, with counters of the traffic.
    pub fn counted(
        config: &Config,
        token: Option<&SharedToken>,
        idle_max: usize,
        traffic: &ClusterTraffic,
    ) -> Result<Self, ClientError> {
        Network::default().clients(config, token, idle_max, traffic)
    }

    fn build(
        network: &Network,
        config: &Config,
        token: Option<&SharedToken>,
        idle_max: usize,
        limits: &RequestLimits,
        traffic: &ClusterTraffic,
    ) -> Result<Self, ClientError> {
        let wanted = |default: Option<Duration>| limits.request_timeout.or(default).filter(|limit| !limit.is_zero());
        let layers = |traffic: &PoolTraffic, timeout, rate, lease| ClientLayers {
            streams: false,
            config,
            token,
            traffic: traffic.clone(),
            timeout,
            rate,
            lease,
            clock: None,
        };
        let clock = ServerClock::default();
        let told = |layers| ClientLayers {
            clock: Some(&clock),
            ..layers
        };
        let streaming = |layers| ClientLayers {
            streams: true,
            ..layers
        };
        let (rate, request_timeout) = (limits.rate.as_ref(), Some(REQUEST_TIMEOUT));
        let check = Some(network.lease_check());
        let (watch, write, lease) = (traffic.watch(), traffic.write(), traffic.lease());
        if let Some(transport) = network.transport() {
            return Ok(Self {
                watch: streaming(layers(watch, wanted(None), rate, None)).client(transport.clone())?,
                write: told(layers(write, wanted(request_timeout), rate, check)).client(transport.clone())?,
                lease: told(layers(lease, request_timeout, None, None)).client(transport)?,
                clock,
            });
        }
        let endpoint = Endpoint::new(config)?;
        Ok(Self {
            watch: streaming(layers(watch, wanted(None), rate, None)).client(endpoint.watches(watch, idle_max))?,
            write: told(layers(write, wanted(request_timeout), rate, check)).client(endpoint.plain(write, idle_max))?,
            // A lease that is renewed too late is lost, so the user's limits do not apply.
            lease: told(layers(lease, request_timeout, None, None)).client(endpoint.plain(lease, 2))?,
            clock,
        })
    }
}

// === impl ClientLayers ===

impl ClientLayers<'_> {
    /// Builds a client on this transport.
    fn client<S, B>(self, transport: S) -> Result<Client, ClientError>
    where
        S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>> + Clone + Send + 'static,
        S::Future: Send,
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let Self {
            streams,
            config,
            token,
            traffic,
            timeout,
            rate,
            lease,
            clock,
        } = self;
        let transport = match timeout {
            Some(limit) => Either::Left(ServiceBuilder::new().timeout(limit).service(transport)),
            None => Either::Right(tower::ServiceExt::<Request<Body>>::map_err(transport, Into::into)),
        };
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(rate.cloned())
            .layer(config.extra_headers_layer()?)
            .option_layer(if token.is_some() { None } else { config.auth_layer()? })
            .option_layer(token.cloned().map(|token| {
                tower::util::MapRequestLayer::new(move |mut request: Request<Body>| {
                    request
                        .headers_mut()
                        .insert(AUTHORIZATION, HeaderValue::clone(&token.0.header.load()));
                    request
                })
            }))
            .option_layer(
                token
                    .cloned()
                    .map(|token| MapResponseLayer::new(move |response| token.notice(response))),
            )
            .option_layer(
                clock
                    .cloned()
                    .map(|clock| MapResponseLayer::new(move |response| clock.notice(response))),
            )
            .option_layer(lease.cloned())
            .map_response({
                let traffic = traffic.clone();
                move |response: Response<B>| {
                    traffic.response(response.status());
                    within_limit(response, streams)
                }
            })
            .map_request(move |request: Request<Body>| {
                traffic.request(request.method());
                request
            })
            .map_err(BoxError::from)
            .service(transport);
        Ok(Client::new(service, config.default_namespace.clone()))
    }
}

// === impl SharedToken ===

impl SharedToken {
    /// Shares a token. Fails if an HTTP header cannot hold it.
    pub fn new(token: &SecretString) -> Result<Self, ClientError> {
        Ok(Self(Arc::new(TokenCell {
            header: ArcSwap::from_pointee(bearer(token)?),
            refused: Notify::new(),
        })))
    }

    /// Replaces the token in all clients that share it. Fails if an HTTP header cannot hold it.
    pub fn set(&self, token: &SecretString) -> Result<(), ClientError> {
        self.0.header.store(Arc::new(bearer(token)?));
        Ok(())
    }

    /// Waits until a request was answered 401 since the last call returned; the token may have been replaced since that request.
    pub async fn refused(&self) {
        self.0.refused.notified().await;
    }

    /// Wakes [`SharedToken::refused`] where an answer says 401.
    fn notice<B>(&self, response: Response<B>) -> Response<B> {
        if response.status() == StatusCode::UNAUTHORIZED {
            self.0.refused.notify_one();
        }
        response
    }
}

impl std::fmt::Debug for SharedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedToken")
    }
}

/// Limits the length of an answer. Where lists and watches are streams, only refusals are read as a whole.
fn within_limit<B>(response: Response<B>, streams: bool) -> Response<Limited<B>> {
    let is_stream = streams && response.status().is_success();
    let limit = if is_stream { usize::MAX } else { ANSWER_BYTES_MAX };
    response.map(|body| Limited::new(body, limit))
}

fn bearer(token: &SecretString) -> Result<HeaderValue, ClientError> {
    let text = format!("Bearer {}", token.expose_secret());
    let mut value = HeaderValue::try_from(text).map_err(|_| ClientError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Reads the kubeconfig at a path; without a path, the one that kubectl would use, else the in-cluster environment.
pub async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, ClientError> {
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    config_with(kubeconfig, &options).await
}

/// As [`config`], with a choice of context, cluster and user.
pub async fn config_with(kubeconfig: Option<&Path>, options: &KubeConfigOptions) -> Result<Config, ClientError> {
    let is_chosen = options.context.is_some() || options.cluster.is_some() || options.user.is_some();
    let read = match kubeconfig {
        Some(path) => match Kubeconfig::read_from(path) {
            Ok(document) => Config::from_custom_kubeconfig(document, options).await,
            Err(error) => Err(error),
        },
        None if is_chosen => Config::from_kubeconfig(options).await,
        None => return Config::infer().await.map_err(not_inferred),
    };
    read.map_err(|source| match unparsable(kubeconfig, &source) {
        Some(error) => error,
        None => ClientError::Kubeconfig {
            path: kubeconfig.map(Path::to_owned),
            source,
        },
    })
}

fn not_inferred(error: InferConfigError) -> ClientError {
    let kubeconfig = error.source().and_then(|source| source.downcast_ref());
    let unparsable = kubeconfig.and_then(|kubeconfig| unparsable(None, kubeconfig));
    unparsable.unwrap_or(ClientError::Infer(error))
}

fn unparsable(path: Option<&Path>, error: &KubeconfigError) -> Option<ClientError> {
    match error {
        KubeconfigError::Parse(error) => Some(ClientError::Unparsable {
            path: path.map(Path::to_owned),
            line: error.location().map(|location| location.line()),
        }),
        _ => None,
    }
}

fn of(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |path| format!(" {}", path.display()))
}

fn at(line: Option<&u64>) -> String {
    line.map_or_else(String::new, |line| format!(" (line {line})"))
}

#[cfg(test)]
mod tests {
    use axum::{Router, http::HeaderMap};
    use futures::FutureExt as _;

    use super::*;
    use crate::errors;

    #[tokio::test]
    async fn a_refused_token_is_reported_once_and_replaced_without_a_new_client() {
        let answer = async |headers: HeaderMap| {
            let good = headers.get(AUTHORIZATION).is_some_and(|value| value == "Bearer new");
            if good { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });

        let token = SharedToken::new(&"old".into()).unwrap();
        let clients = Clients::with_token(&Config::new(url.parse().unwrap()), 1, &token).unwrap();
        let ask = async || {
            let request = Request::get("/").body(Body::empty()).unwrap();
            clients.write.send(request).await.unwrap().status()
        };
        assert_eq!(token.refused().now_or_never(), None);
        assert_eq!(ask().await, StatusCode::UNAUTHORIZED);
        assert_eq!(ask().await, StatusCode::UNAUTHORIZED);
        assert_eq!(token.refused().now_or_never(), Some(()));
        assert_eq!(token.refused().now_or_never(), None);
        token.set(&"new".into()).unwrap();
        assert_eq!(ask().await, StatusCode::OK);
        assert_eq!(token.refused().now_or_never(), None);
    }

    async fn refusal(content: &str) -> String {
        let path = std::env::temp_dir().join(format!("bindery-kubeconfig-{:032x}", rand::random::<u128>()));
        std::fs::write(&path, content).unwrap();
        let refusal = config(Some(&path), None).await.unwrap_err();
        std::fs::remove_file(&path).unwrap();
        let text = errors::chain(&refusal);
        assert!(text.contains(path.to_str().unwrap()), "{text}");
        text
    }

    #[tokio::test]
    async fn an_unusable_kubeconfig_is_named_and_not_repeated() {
        let spoiled = refusal("users:\n- user: {token: hunter2\n- [").await;
        assert!(
            spoiled.contains("cannot be parsed (line 3)") && !spoiled.contains("hunter2"),
            "{spoiled}"
        );
        let empty = refusal("apiVersion: v1\nkind: Config\n").await;
        assert!(empty.contains("current context"), "{empty}");
    }

    #[tokio::test]
    async fn an_answer_without_end_is_read_up_to_its_limit() {
        let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let endless = {
            let sent = Arc::clone(&sent);
            move |status: StatusCode| {
                let sent = Arc::clone(&sent);
                let chunks = futures::stream::repeat_with(move || {
                    sent.fetch_add(1 << 20, std::sync::atomic::Ordering::Relaxed);
                    Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 1 << 20]))
                });
                (status, axum::body::Body::from_stream(chunks))
            }
        };
        let router = Router::new()
            .route(
                "/ok",
                axum::routing::get({
                    let endless = endless.clone();
                    async move || endless(StatusCode::OK)
                }),
            )
            .route(
                "/refused",
                axum::routing::get(async move || endless(StatusCode::FORBIDDEN)),
            );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let clients = Clients::new(&Config::new(url.parse().unwrap()), 1).unwrap();
        let get = |path: &str| Request::get(path).body(Vec::new()).unwrap();
        let mut received = 0;
        for (client, path) in [
            (&clients.write, "/ok"),
            (&clients.lease, "/ok"),
            (&clients.watch, "/refused"),
        ] {
            let answer = client.request::<serde_json::Value>(get(path)).await;
            assert!(answer.is_err(), "{path}");
            // What is on its way in buffers comes on top.
            received += ANSWER_BYTES_MAX + (16 << 20);
            let sent = sent.load(std::sync::atomic::Ordering::Relaxed);
            assert!(sent < received, "{path}: {sent} bytes");
        }
    }
}
