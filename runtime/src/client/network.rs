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

use super::{ClientError, Clients, ClusterTraffic, RequestLimits, SharedToken, lease_check::LeaseCheck};
use crate::lease::Renewals;

/// The body of an answer, which may be a watch that sends for a long time.
pub type TransportBody = UnsyncBoxBody<Bytes, BoxError>;

/// Carries requests to API servers. The URI of a request is complete, with scheme and host, and its headers hold the credentials.
pub trait Transport: fmt::Debug + Send + Sync {
    /// Sends a request, and returns the answer as soon as its headers are known.
    fn send(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<TransportBody>, BoxError>>;
}

/// The network on which clients reach API servers. The default is TCP and TLS. Clones share the network.
#[derive(Clone, Debug, Default)]
pub struct Network {
    transport: Option<Arc<dyn Transport>>,
    lease: LeaseCheck,
}

/// A [`Transport`] as a service.
#[derive(Clone, Debug)]
pub(super) struct TransportService(pub(super) Arc<dyn Transport>);

// === impl Network ===

impl Network {
    /// A network that consists of this transport, without TCP and TLS.
    pub fn of(transport: impl Transport + 'static) -> Self {
        Self {
            transport: Some(Arc::new(transport)),
            lease: LeaseCheck::default(),
        }
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

    /// Makes [`Clients::write`] of each cluster fail all requests but reads while the renewal of this Lease is overdue. A request
    /// that waits for a connection at that moment is not sent either.
    pub fn require_lease(&self, renewals: Renewals) {
        self.lease.set(Some(renewals));
    }

    /// Lets all writes pass again, as before [`Network::require_lease`].
    pub fn require_no_lease(&self) {
        self.lease.set(None);
    }

    pub(super) fn transport(&self) -> Option<TransportService> {
        self.transport.clone().map(TransportService)
    }

    pub(super) fn lease_check(&self) -> &LeaseCheck {
        &self.lease
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
