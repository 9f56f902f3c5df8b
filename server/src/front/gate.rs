//! The one way into every method: each call gets an id and a span, is counted, held against the limits and the table of
//! methods, and told apart by who makes it. What a handler then gets is a [`Call`].

use std::{convert::Infallible, fmt, net::IpAddr, panic::AssertUnwindSafe, sync::Arc, time::Instant};

use bindery_proto::v1alpha2::ErrorReason;
use futures::{FutureExt as _, future::BoxFuture};
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response,
    header::{AUTHORIZATION, Entry},
};
use tokio::sync::Semaphore;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, body::Body};
use tower::{Layer, Service};
use tracing::{Instrument as _, Span, field};

use super::{
    access::{self, Freshness, Method},
    auth::{Authenticators, Caller, Presented},
    connection::Peer,
    error::{self, Failure, Outcome},
    limits::{CALLS_MAX, Deadline, PEER_RATE, PRINCIPAL_CALLS_MAX, PRINCIPAL_RATE, Rate, Slot, Slots},
    metrics::Metrics,
    request_id::{self, RequestId},
};

const VERSION_HEADER: HeaderName = HeaderName::from_static("x-server-version");

/// What a handler knows of its call beside the message.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// Who calls; nobody in a method that needs no token.
    caller: Option<Arc<Caller>>,
    /// The token, so that a stream can have it checked again.
    token: Option<Arc<Presented>>,
    /// When to answer.
    pub deadline: Deadline,
}

/// What the gate must know of the server behind it.
pub(super) trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Whether the caches have seen everything once.
    fn is_ready(&self) -> bool;

    /// Whether that namespace can be a contract's.
    fn may_be_contract(&self, namespace: &str) -> bool;

    /// Refuses the ServiceAccount of a contract that does not exist, and, where a token is given, one that is revoked.
    fn confirm<'a>(&'a self, contract: &'a str, token: Option<&'a Presented>) -> BoxFuture<'a, Outcome<()>>;
}

/// The gate.
#[derive(Debug)]
pub(super) struct Gate {
    backend: Arc<dyn Backend>,
    authenticators: Authenticators,
    metrics: Metrics,
    stop: CancellationToken,
    peers: Rate<IpAddr>,
    principals: Rate<String>,
    calls_of_principal: Slots<String>,
    calls: Semaphore,
}

/// Puts every call through the gate.
#[derive(Clone, Debug)]
pub(super) struct GateLayer(pub Arc<Gate>);

/// A service behind the gate.
#[derive(Clone, Debug)]
pub(super) struct Gated<S> {
    gate: Arc<Gate>,
    inner: S,
}

// === impl Call ===

impl Call {
    /// A call by somebody.
    pub(super) fn new(caller: Option<Arc<Caller>>, token: Option<Arc<Presented>>, deadline: Deadline) -> Self {
        Self {
            caller,
            token,
            deadline,
        }
    }

    /// The call that a request belongs to.
    pub(super) fn of<T>(request: &tonic::Request<T>) -> Outcome<Self> {
        let call = request.extensions().get::<Self>().cloned();
        call.ok_or_else(|| Failure::internal("a request came past the gate"))
    }

    /// Who calls.
    pub(super) fn caller(&self) -> Outcome<&Arc<Caller>> {
        self.caller
            .as_ref()
            .ok_or_else(|| Failure::internal("a method that needs a caller is open"))
    }

    /// The token of the caller.
    pub(super) fn token(&self) -> Option<&Arc<Presented>> {
        self.token.as_ref()
    }
}

// === impl Gate ===

impl Gate {
    /// A gate before this backend. Once `stop` is cancelled, it lets nobody in.
    pub(super) fn new(
        backend: Arc<dyn Backend>,
        authenticators: Authenticators,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> Self {
        Self {
            backend,
            authenticators,
            metrics,
            stop,
            peers: Rate::new(PEER_RATE),
            principals: Rate::new(PRINCIPAL_RATE),
            calls_of_principal: Slots::new(PRINCIPAL_CALLS_MAX),
            calls: Semaphore::new(CALLS_MAX),
        }
    }

    async fn run<S>(&self, inner: S, request: Request<Body>) -> Response<Body>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send,
        S::Future: Send,
    {
        let began = Instant::now();
        let id = RequestId::of(request.headers());
        let method = access::method(request.uri().path());
        let label = method.map_or("unknown", |method| method.path);
        let span = tracing::info_span!(
            "call",
            method = label,
            request_id = id.as_str(),
            principal = field::Empty,
            code = field::Empty
        );
        let deadline = Deadline::of(request.headers());
        let answer = AssertUnwindSafe(self.answer(inner, request, method, deadline)).catch_unwind();
        let answer = timeout_at(deadline.answer_by(), answer.instrument(span.clone())).await;
        let answer = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Failure::internal("a handler panicked")),
            Err(_) => Err(Failure::new(ErrorReason::Deadline, "the call's deadline passed")),
        };
        let response = answer.unwrap_or_else(|failure| Status::from(failure).into_http());
        let foreign = method.is_some_and(|method| method.path.starts_with("/grpc."));
        let (response, status) = finish(response, &id, foreign);
        let code = status.as_ref().map_or(Code::Ok, Status::code);
        span.record("code", bindery_proto::code_name(code));
        span.in_scope(|| {
            if let Some(status) = &status {
                tracing::info!(why = status.message(), "refused");
            } else {
                tracing::debug!("answered");
            }
        });
        self.metrics.call(label, code, began.elapsed());
        response
    }

    async fn answer<S>(
        &self,
        mut inner: S,
        mut request: Request<Body>,
        method: Option<&'static Method>,
        deadline: Deadline,
    ) -> Outcome<Response<Body>>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send,
        S::Future: Send,
    {
        let peer = peer(&request);
        let call = match method {
            Some(method) if method.open => {
                self.peers.check(&peer)?;
                Call::new(None, None, deadline)
            }
            _ => {
                self.admit()?;
                let (caller, token) = self.identify(request.headers(), peer).await?;
                Call::new(Some(Arc::new(caller)), Some(Arc::new(token)), deadline)
            }
        };
        let Some(method) = method else {
            return Err(Failure::new(ErrorReason::FeatureOff, "this server has no such method")
                .with("method", request.uri().path()));
        };
        let _slot = match call.caller.as_deref() {
            None => None,
            Some(caller) => Some(self.charge(method, caller)?),
        };
        let permit = self.calls.try_acquire();
        if permit.is_err() && !method.open {
            let text = "the server answers as many calls as it can; try again";
            return Err(Failure::new(ErrorReason::Overloaded, text));
        }
        if let Some(contract) = call.caller.as_deref().and_then(Caller::contract) {
            let token = call.token.as_deref().filter(|_| method.freshness == Freshness::Live);
            self.backend.confirm(contract, token).await?;
        }
        request.extensions_mut().insert(call);
        match inner.call(request).await {
            Ok(response) => Ok(response),
            Err(never) => match never {},
        }
    }

    /// Holds a call against what its caller may do, and how often.
    fn charge(&self, method: &Method, caller: &Caller) -> Outcome<Slot<String>> {
        method.admit(caller)?;
        let name = &caller.identity.username;
        self.principals.check(name)?;
        self.calls_of_principal.take(name.clone()).ok_or_else(|| {
            let text = "too many calls at once; wait for some to be answered";
            Failure::new(ErrorReason::RateLimited, text)
        })
    }

    fn admit(&self) -> Outcome<()> {
        if self.stop.is_cancelled() {
            return Err(Failure::new(
                ErrorReason::ShuttingDown,
                "this replica is ending; another answers",
            ));
        }
        if !self.backend.is_ready() {
            return Err(Failure::new(
                ErrorReason::CacheNotReady,
                "this replica has not read everything yet",
            ));
        }
        Ok(())
    }

    async fn identify(&self, headers: &HeaderMap, peer: IpAddr) -> Outcome<(Caller, Presented)> {
        let token = match Presented::read(headers) {
            Ok(token) => token,
            Err(denial) => {
                self.peers.check(&peer)?;
                return Err(denial.into());
            }
        };
        if !self.authenticators.is_known(&token) {
            // Who was let in before may share an address with strangers.
            if !self.authenticators.was_good(&token) {
                self.peers.check(&peer)?;
            }
            self.metrics.token_check();
        }
        let identity = self.authenticators.authenticate(&token).await?;
        Span::current().record("principal", identity.username.as_str());
        let caller = Caller::new(identity, |namespace| self.backend.may_be_contract(namespace));
        Ok((caller, token))
    }
}

/// The address that a limit is kept for. A host of IPv6 has a whole network to call from.
fn peer(request: &Request<Body>) -> IpAddr {
    let address = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
    match address.map(|address| address.to_canonical()) {
        Some(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6([a, b, c, d, 0, 0, 0, 0].into())
        }
        Some(address) => address,
        None => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
    }
}

/// Adds what every answer carries, and completes an error. The status is returned where the answer is an error.
fn finish(mut response: Response<Body>, id: &RequestId, foreign: bool) -> (Response<Body>, Option<Status>) {
    let status = Status::from_header_map(response.headers()).filter(|status| status.code() != Code::Ok);
    let status = match status {
        Some(status) if !foreign => {
            let status = error::complete(&status, id.as_str());
            response = status.clone().into_http();
            Some(status)
        }
        status => status,
    };
    let headers = response.headers_mut();
    if let Some(id) = id.to_header() {
        headers.insert(request_id::HEADER, id);
    }
    headers.insert(VERSION_HEADER, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    (response, status)
}

// === impl GateLayer, Gated ===

impl<S> Layer<S> for GateLayer {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated {
            gate: Arc::clone(&self.0),
            inner,
        }
    }
}

impl<S> Service<Request<Body>> for Gated<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let gate = Arc::clone(&self.gate);
        let clone = self.inner.clone();
        // The clone is not known to be ready, the one that was polled is.
        let inner = std::mem::replace(&mut self.inner, clone);
        if let Entry::Occupied(mut values) = request.headers_mut().entry(AUTHORIZATION) {
            values.iter_mut().for_each(|value| value.set_sensitive(true));
        }
        Box::pin(async move { Ok(gate.run(inner, request).await) })
    }
}

#[cfg(test)]
mod tests;
