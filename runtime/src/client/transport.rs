//! Connections to an API server: none delays a request, and one that is dead is noticed within half a minute.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt as _, TryFutureExt as _, future::BoxFuture};
use http::{Request, Response, Uri, uri::Scheme};
use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, ResolveServerName};
use hyper_util::{
    client::legacy::{Client as HyperClient, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use kube::{
    Config,
    client::{Body, ConfigExt as _},
};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tower::{BoxError, Service};

use super::{
    ClientError, RequestKind, ResponseTimer,
    h2_pool::{H2Pool, PermitBody, PoolAnswer},
    traffic::{CountedStream, PoolTraffic},
};

/// Idle connections are closed before the API server (90 s) closes them under a request.
const POOL_IDLE: Duration = Duration::from_mins(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Lists that are read at the same time. More would only wait in the API server, each on a connection of its own.
const LISTS_MAX: usize = 16;

/// Settings of connections to one API server. Its pools share them, and so the TLS sessions that can be resumed.
pub(super) struct Endpoint {
    tls: ClientConfig,
    names: Arc<dyn ResolveServerName + Send + Sync>,
}

/// Carries each request on a connection of its own (HTTP/1.1) until its answer was read.
pub(super) type PlainTransport = HyperClient<HttpsConnector<Connector>, Body>;

/// Carries watches on shared connections where the API server speaks HTTP/2, and limits how many lists are read at the same
/// time. What a request is stands in its extension [`RequestKind`].
#[derive(Clone, Debug)]
pub(super) struct WatchTransport {
    shared: H2Pool<HttpsConnector<Connector>>,
    plain: PlainTransport,
    lists: Arc<Semaphore>,
}

/// Makes TCP connections whose bytes are counted.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    http: HttpConnector,
    traffic: PoolTraffic,
}

// === impl Endpoint ===

impl Endpoint {
    pub(super) fn new(config: &Config) -> Result<Self, ClientError> {
        let names: Arc<dyn ResolveServerName + Send + Sync> = match &config.tls_server_name {
            Some(name) => {
                let name = ServerName::try_from(name.clone()).map_err(|_| ClientError::ServerName(name.clone()))?;
                Arc::new(FixedServerNameResolver::new(name))
            }
            None => Arc::new(DefaultServerNameResolver::default()),
        };
        let tls = config.rustls_client_config()?;
        Ok(Self { tls, names })
    }

    pub(super) fn plain(&self, traffic: &PoolTraffic, idle_max: usize) -> PlainTransport {
        HyperClient::builder(TokioExecutor::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(idle_max)
            .build(self.connector(traffic, &[]))
    }

    pub(super) fn watches(&self, traffic: &PoolTraffic, idle_max: usize) -> WatchTransport {
        WatchTransport {
            shared: H2Pool::new(self.connector(traffic, &[b"h2", b"http/1.1"])),
            plain: self.plain(traffic, idle_max),
            lists: Arc::new(Semaphore::new(LISTS_MAX)),
        }
    }

    fn connector(&self, traffic: &PoolTraffic, protocols: &[&[u8]]) -> HttpsConnector<Connector> {
        let mut tls = self.tls.clone();
        tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        HttpsConnector::new(Connector::new(traffic.clone()), tls, false, Arc::clone(&self.names))
    }
}

// === impl WatchTransport ===

impl WatchTransport {
    async fn send(self, mut request: Request<Body>) -> Result<Response<PermitBody>, BoxError> {
        let permit = match request.extensions().get() {
            Some(RequestKind::List(timer)) => Some(self.list_permit(timer).await?),
            // Without TLS, nothing negotiates HTTP/2.
            Some(RequestKind::Watch) if request.uri().scheme() == Some(&Scheme::HTTPS) => {
                match self.shared.send(request).await? {
                    PoolAnswer::Answered(answer) => return Ok(answer),
                    PoolAnswer::NotSpoken(unsent) => request = unsent,
                }
                None
            }
            Some(RequestKind::Watch) | None => None,
        };
        let answer = self.plain.request(request).await?;
        Ok(answer.map(|body| PermitBody::new(body, permit)))
    }

    /// Waits for a permit to read a list, with the timer of the list stopped.
    async fn list_permit(&self, timer: &ResponseTimer) -> Result<OwnedSemaphorePermit, BoxError> {
        timer.stop();
        let permit = Arc::clone(&self.lists).acquire_owned().await?;
        timer.start();
        Ok(permit)
    }
}

impl Service<Request<Body>> for WatchTransport {
    type Response = Response<PermitBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<PermitBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().send(request).boxed()
    }
}

// === impl Connector ===

impl Connector {
    fn new(traffic: PoolTraffic) -> Self {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        // A peer that vanished without a word is noticed within half a minute, also on a silent watch.
        http.set_keepalive(Some(Duration::from_secs(15)));
        http.set_keepalive_interval(Some(Duration::from_secs(5)));
        http.set_keepalive_retries(Some(3));
        #[cfg(target_os = "linux")]
        http.set_tcp_user_timeout(Some(Duration::from_secs(20)));
        Self { http, traffic }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<CountedStream<TcpStream>>;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Uri>::poll_ready(&mut self.http, context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let traffic = self.traffic.clone();
        let trafficed = |stream: TokioIo<TcpStream>| TokioIo::new(CountedStream::new(stream.into_inner(), traffic));
        self.http.call(uri).map_ok(trafficed).boxed()
    }
}

#[cfg(test)]
mod tests;
