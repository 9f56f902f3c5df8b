//! What carries requests: connections that delay nothing, and of which one that is dead is noticed.

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
    ClientError, Line,
    meter::{Metered, PoolMeter},
    streams::{Held, Sent, Streams},
};

/// Idle connections are closed before the API server (90 s) closes them under a request.
const POOL_IDLE: Duration = Duration::from_mins(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Lists that are read at once. More would only wait in the API server, each on a connection of its own. See [`Line`].
const LISTS: usize = 16;

/// How to reach one API server. All pools share it, and with it the TLS sessions that can be resumed.
pub(super) struct Reach {
    tls: ClientConfig,
    names: Arc<dyn ResolveServerName + Send + Sync>,
}

/// Gives each request a connection of its own for as long as it takes.
pub(super) type Plain = HyperClient<HttpsConnector<Connector>, Body>;

/// Carries watches on connections that they share where that is possible, and lists only so many at once.
#[derive(Clone, Debug)]
pub(super) struct Watches {
    streams: Streams<HttpsConnector<Connector>>,
    plain: Plain,
    lists: Arc<Semaphore>,
}

/// Makes TCP connections whose bytes are counted.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    http: HttpConnector,
    meter: PoolMeter,
}

// === impl Reach ===

impl Reach {
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

    pub(super) fn plain(&self, meter: &PoolMeter, idle_max: usize) -> Plain {
        HyperClient::builder(TokioExecutor::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(idle_max)
            .build(self.connector(meter, &[]))
    }

    pub(super) fn watches(&self, meter: &PoolMeter, idle_max: usize) -> Watches {
        Watches {
            streams: Streams::new(self.connector(meter, &[b"h2", b"http/1.1"])),
            plain: self.plain(meter, idle_max),
            lists: Arc::new(Semaphore::new(LISTS)),
        }
    }

    fn connector(&self, meter: &PoolMeter, protocols: &[&[u8]]) -> HttpsConnector<Connector> {
        let mut tls = self.tls.clone();
        tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        HttpsConnector::new(Connector::new(meter.clone()), tls, false, Arc::clone(&self.names))
    }
}

// === impl Watches ===

impl Watches {
    async fn send(self, request: Request<Body>) -> Result<Response<Held>, BoxError> {
        if !is_watch(request.uri()) {
            let turn = if is_small(request.uri()) {
                None
            } else {
                Some(self.turn(request.extensions().get()).await?)
            };
            let answer = self.plain.request(request).await?;
            return Ok(answer.map(|body| Held::new(body, turn)));
        }
        // Without TLS nobody says which protocols he speaks.
        let request = if request.uri().scheme() == Some(&Scheme::HTTPS) {
            match self.streams.send(request).await? {
                Sent::Answered(answer) => return Ok(answer),
                Sent::Refused(request) => request,
            }
        } else {
            request
        };
        let answer = self.plain.request(request).await?;
        Ok(answer.map(|body| Held::new(body, None)))
    }

    /// Waits for the turn of a list.
    async fn turn(&self, line: Option<&Line>) -> Result<OwnedSemaphorePermit, BoxError> {
        if let Some(line) = line {
            line.wait();
        }
        let turn = Arc::clone(&self.lists).acquire_owned().await?;
        if let Some(line) = line {
            line.go();
        }
        Ok(turn)
    }
}

impl Service<Request<Body>> for Watches {
    type Response = Response<Held>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Held>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().send(request).boxed()
    }
}

fn is_watch(uri: &Uri) -> bool {
    pairs(uri).any(|pair| pair == "watch=1" || pair == "watch=true")
}

/// One object says how far an API server has come, and is quickly read.
fn is_small(uri: &Uri) -> bool {
    pairs(uri).any(|pair| pair == "limit=1")
}

fn pairs(uri: &Uri) -> impl Iterator<Item = &str> {
    uri.query().unwrap_or_default().split('&')
}

// === impl Connector ===

impl Connector {
    fn new(meter: PoolMeter) -> Self {
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
        Self { http, meter }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Metered<TcpStream>>;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Uri>::poll_ready(&mut self.http, context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let meter = self.meter.clone();
        let metered = |stream: TokioIo<TcpStream>| TokioIo::new(Metered::new(stream.into_inner(), meter));
        self.http.call(uri).map_ok(metered).boxed()
    }
}

#[cfg(test)]
mod tests;
