//! Kubernetes clients with limits chosen for a controller: no request is delayed, none hangs, and retries are left to
//! the caller, who knows what the request means.

mod line;
mod meter;
mod pace;
mod streams;
mod transport;

use std::{
    error::Error as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use http::{HeaderValue, Request, Response, StatusCode, header::AUTHORIZATION};
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

use meter::PoolMeter;
use transport::Reach;

pub(crate) use line::Line;
pub use meter::{Meter, Totals, Traffic};
pub use pace::Pace;

/// A request that is not a watch must be answered within this time.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Why no client could be made. No variant carries a credential.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig is not there, or names no usable cluster, context or user.
    #[error("cannot use the kubeconfig{}: {source}", of(.path.as_deref()))]
    Kubeconfig {
        /// The file, if one was named.
        path: Option<PathBuf>,
        /// What is wrong.
        source: KubeconfigError,
    },
    /// What should be a kubeconfig is none. Its text is not repeated, as the parser would: it holds credentials.
    #[error("the kubeconfig{} is none: its YAML cannot be parsed{}", of(.path.as_deref()), at(.line.as_ref()))]
    Unparsable {
        /// The file, if one was named.
        path: Option<PathBuf>,
        /// Where the parser gave up.
        line: Option<u64>,
    },
    /// Neither a kubeconfig nor an in-cluster environment was found.
    #[error("found neither a kubeconfig nor an in-cluster service account: {0}")]
    Infer(#[from] kube::config::InferConfigError),
    /// TLS or credentials could not be set up.
    #[error("cannot set up the connection: {0}")]
    Setup(#[from] kube::Error),
    /// The name that the certificate of the API server is to have is none.
    #[error("the TLS server name {0:?} is no name")]
    ServerName(String),
    /// A token holds bytes that no HTTP header may hold.
    #[error("the token is not one: it holds characters that a header cannot")]
    Token,
}

/// A bearer token that every request reads anew: a renewed one takes effect with no new connection and no pause.
#[derive(Clone)]
pub struct SharedToken(Arc<Cell>);

struct Cell {
    header: ArcSwap<HeaderValue>,
    refused: Notify,
}

/// Clients for one cluster, one connection pool per kind of traffic, so that none waits behind another.
#[derive(Clone)]
pub struct Clients {
    /// Watches and large lists: never time out as a whole.
    pub watch: Client,
    /// Writes and small reads.
    pub write: Client,
    /// Leases and heartbeats, which a burst of writes must not starve.
    pub lease: Client,
}

/// What a person wants the requests of a command to keep to.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Within which time each must be answered; zero for no limit at all. `None` leaves it at what [`Clients`] say.
    pub request_timeout: Option<Duration>,
    /// How many there may be in a second, but for those about leases.
    pub pace: Option<Pace>,
}

/// What is done to the requests of a pool.
struct Layers<'a> {
    config: &'a Config,
    token: Option<&'a SharedToken>,
    meter: PoolMeter,
    timeout: Option<Duration>,
    pace: Option<&'a Pace>,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clients")
    }
}

impl Clients {
    /// Builds the clients of one cluster. Connects nowhere yet. `idle_max` bounds the idle connections of a pool.
    pub fn new(config: &Config, idle_max: usize) -> Result<Self, ClientError> {
        Self::metered(config, None, idle_max, &Meter::default())
    }

    /// As [`Clients::new`], for a person who set limits.
    pub fn limited(config: &Config, idle_max: usize, limits: &Limits) -> Result<Self, ClientError> {
        Self::build(config, None, idle_max, limits, &Meter::default())
    }

    /// As [`Clients::new`], with a token in place of what the configuration has for credentials.
    pub fn with_token(config: &Config, idle_max: usize, token: &SharedToken) -> Result<Self, ClientError> {
        Self::metered(config, Some(token), idle_max, &Meter::default())
    }

    /// As [`Clients::new`], with a token where there is one, and counting what goes over the wire.
    pub fn metered(
        config: &Config,
        token: Option<&SharedToken>,
        idle_max: usize,
        meter: &Meter,
    ) -> Result<Self, ClientError> {
        Self::build(config, token, idle_max, &Limits::default(), meter)
    }

    fn build(
        config: &Config,
        token: Option<&SharedToken>,
        idle_max: usize,
        limits: &Limits,
        meter: &Meter,
    ) -> Result<Self, ClientError> {
        let wanted = |default: Option<Duration>| limits.request_timeout.or(default).filter(|limit| !limit.is_zero());
        let reach = Reach::new(config)?;
        let layers = |meter: &PoolMeter, timeout, pace| Layers {
            config,
            token,
            meter: meter.clone(),
            timeout,
            pace,
        };
        let (pace, request_timeout) = (limits.pace.as_ref(), Some(REQUEST_TIMEOUT));
        let (watch, write, lease) = (meter.watch(), meter.write(), meter.lease());
        Ok(Self {
            watch: layers(watch, wanted(None), pace).around(reach.watches(watch, idle_max))?,
            write: layers(write, wanted(request_timeout), pace).around(reach.plain(write, idle_max))?,
            // A lease that is renewed too late is lost.
            lease: layers(lease, request_timeout, None).around(reach.plain(lease, 2))?,
        })
    }
}

// === impl Layers ===

impl Layers<'_> {
    /// A client whose requests are carried so.
    fn around<S, B>(self, transport: S) -> Result<Client, ClientError>
    where
        S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>> + Clone + Send + 'static,
        S::Future: Send,
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let Self {
            config,
            token,
            meter,
            timeout,
            pace,
        } = self;
        let transport = match timeout {
            Some(limit) => Either::Left(ServiceBuilder::new().timeout(limit).service(transport)),
            None => Either::Right(tower::ServiceExt::<Request<Body>>::map_err(transport, Into::into)),
        };
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(pace.cloned())
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
                    .map(|token| MapResponseLayer::new(move |response| token.heed(response))),
            )
            .map_request(move |request: Request<Body>| {
                meter.request(request.method());
                request
            })
            .map_err(BoxError::from)
            .service(transport);
        Ok(Client::new(service, config.default_namespace.clone()))
    }
}

// === impl SharedToken ===

impl SharedToken {
    /// A cell that holds this token.
    pub fn new(token: &SecretString) -> Result<Self, ClientError> {
        Ok(Self(Arc::new(Cell {
            header: ArcSwap::from_pointee(bearer(token)?),
            refused: Notify::new(),
        })))
    }

    /// Replaces the token, for all clients that share the cell.
    pub fn set(&self, token: &SecretString) -> Result<(), ClientError> {
        self.0.header.store(Arc::new(bearer(token)?));
        Ok(())
    }

    /// Waits until some request was answered 401 since this was last waited for. That may have been with a token that
    /// was replaced meanwhile.
    pub async fn refused(&self) {
        self.0.refused.notified().await;
    }

    fn heed<B>(&self, response: Response<B>) -> Response<B> {
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

fn bearer(token: &SecretString) -> Result<HeaderValue, ClientError> {
    let text = format!("Bearer {}", token.expose_secret());
    let mut value = HeaderValue::try_from(text).map_err(|_| ClientError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Reads a kubeconfig (of the path, else as kubectl finds it) or the in-cluster environment.
pub async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, ClientError> {
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    config_with(kubeconfig, &options).await
}

/// As [`config`], with a choice of cluster and user too.
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
    async fn a_refused_token_is_told_of_once_and_replaced_without_a_new_client() {
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
}
