//! How requests reach API servers: over TCP and TLS, or by a transport that the caller brings.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Bytes;
use kube::{Config, client::Body};
use tower::{BoxError, Service};

use super::{ClientError, Clients, ClusterTraffic, RequestLimits, SharedToken};

/// The body of an answer, which may be a watch that sends for a long time.
pub type TransportBody = UnsyncBoxBody<Bytes, BoxError>;

/// Carries requests to API servers. The URI of a request is complete, with scheme and host, and its headers hold the credentials.
pub trait Transport: fmt::Debug + Send + Sync {
    /// Sends a request, and returns the answer as soon as its headers are known.
    fn send(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<TransportBody>, BoxError>>;
}

/// The network on which clients reach API servers. The default is TCP and TLS. Clones share the network.
#[derive(Clone, Debug, Default)]
pub struct Network(Option<Arc<dyn Transport>>);

/// A [`Transport`] as a service.
#[derive(Clone, Debug)]
pub(super) struct TransportService(pub(super) Arc<dyn Transport>);

// === impl Network ===

impl Network {
    /// A network that consists of this transport, without TCP and TLS.
    pub fn of(transport: impl Transport + 'static) -> Self {
        Self(Some(Arc::new(transport)))
    }

    /// Builds the clients of one cluster on this network, as [`Clients::counted`] does.
    pub fn clients(
        &self,
        config: &Config,
        token: Option<&SharedToken>,
        idle_max: usize,
        traffic: &ClusterTraffic,
    ) -> Result<Clients, ClientError> {
        Clients::build(self, config, token, idle_max, &RequestLimits::default(), traffic)
    }

    pub(super) fn transport(&self) -> Option<TransportService> {
        self.0.clone().map(TransportService)
    }
}

// === impl TransportService ===

impl Service<Request<Body>> for TransportService {
    type Response = Response<TransportBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<TransportBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.send(request)
    }
}
