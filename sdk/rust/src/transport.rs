//! How calls reach the server: by gRPC over HTTP/2, or by gRPC-Web over HTTP/1.1 where a proxy on the way does not speak HTTP/2.

mod choice;
mod frames;
mod web;

use std::error::Error as StdError;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower::Service;

use crate::error::transport::{TransportFault, fault_in};
use choice::{ProtocolChoice, SendPlan};
use web::LazyWebConnections;

pub use choice::Protocol;
pub(crate) use web::{WebSettings, WebTls};

type BoxError = Box<dyn StdError + Send + Sync>;

/// Marks a request whose response may take hours, so that it takes no permit of those for calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongLived;

/// The way from a client to its server: what is known of it, and the connections for gRPC-Web.
pub(crate) struct Route {
    origin: Uri,
    /// None where the user made the channel, of which nothing else is known.
    web: Option<Arc<LazyWebConnections>>,
    choice: Mutex<ProtocolChoice>,
}

/// Sends calls by gRPC over a channel, or by gRPC-Web, whichever gets through.
#[derive(Clone)]
pub(crate) struct Transport {
    route: Arc<Route>,
    grpc: Channel,
}

impl Route {
    /// A route to the server at the URL `origin`.
    pub(crate) fn new(origin: Uri, protocol: Protocol, web: WebSettings) -> Self {
        Self {
            origin,
            web: Some(Arc::new(LazyWebConnections::new(web))),
            choice: Mutex::new(ProtocolChoice::new(protocol)),
        }
    }

    /// A route by gRPC alone.
    pub(crate) fn by_grpc(origin: Uri) -> Self {
        Self {
            origin,
            web: None,
            choice: Mutex::new(ProtocolChoice::new(Protocol::Grpc)),
        }
    }

    /// A client of this route, by gRPC over this channel or by gRPC-Web. Paths begin with the prefix of the address.
    pub(crate) fn over(self: &Arc<Self>, grpc: Channel) -> Grpc<Transport> {
        let route = Arc::clone(self);
        Grpc::with_origin(Transport { route, grpc }, self.origin.clone())
    }

    /// The protocol that the next call uses first: gRPC or gRPC-Web.
    pub(crate) fn protocol(&self) -> Protocol {
        self.choice.lock().current(Instant::now())
    }
}

impl Transport {
    async fn send(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        // At most MESSAGE_SEND_MAX, kept for the case that the call must be sent again by the other protocol.
        let body = body.collect().await?.to_bytes();
        let plan = self.route.choice.lock().plan(Instant::now());
        match (plan, self.route.web.clone()) {
            (SendPlan::Grpc, _) | (_, None) => by_grpc(self.grpc, parts, body).await,
            (SendPlan::Web, Some(web)) => self.by_web(&web, parts, body).await,
            (SendPlan::GrpcOrWeb, Some(web)) => self.by_either(&web, parts, body).await,
        }
    }

    /// Sends a call by gRPC-Web, and by gRPC if HTTP/1.1 cannot be negotiated any more.
    async fn by_web(self, web: &LazyWebConnections, parts: Parts, body: Bytes) -> Result<Response<Body>, BoxError> {
        let outcome = web.get()?.send(parts.clone(), body.clone()).await;
        if matches!(&outcome, Ok(response) if is_of_server(response)) {
            return outcome;
        }
        let is_free = self.route.choice.lock().web_failed();
        match &outcome {
            Err(error) if is_free && fault_in(&**error) == Some(TransportFault::NoHttp2) => {
                by_grpc(self.grpc, parts, body).await
            }
            _ => outcome,
        }
    }

    /// Sends a call by gRPC, and by gRPC-Web if HTTP/2 does not reach the server.
    async fn by_either(self, web: &LazyWebConnections, parts: Parts, body: Bytes) -> Result<Response<Body>, BoxError> {
        let Self { route, grpc } = self;
        let first = by_grpc(grpc, parts.clone(), body.clone()).await;
        if !lacks_http2(&first) {
            if first.is_ok() {
                route.choice.lock().grpc_worked();
            }
            return first;
        }
        let second = match web.get()?.send(parts, body).await {
            Ok(second) if is_of_server(&second) => second,
            // Some servers show their certificate only to a client that offers HTTP/1.1.
            Err(error) if fault_in(&*error).is_some_and(is_about_trust) => return Err(error),
            // A server that speaks neither is told by the first error.
            _ => return first,
        };
        if is_grpc(second.headers()) && route.choice.lock().web_worked(Instant::now()) {
            tracing::info!(server = %route.origin, "HTTP/2 does not reach the server: calls are sent as gRPC-Web over HTTP/1.1");
        }
        Ok(second)
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().send(request).map_ok(without_page).boxed()
    }
}

async fn by_grpc(mut channel: Channel, parts: Parts, body: Bytes) -> Result<Response<Body>, BoxError> {
    poll_fn(|cx| channel.poll_ready(cx)).await?;
    let request = Request::from_parts(parts, Body::new(Full::new(body)));
    Ok(channel.call(request).await?)
}

/// Whether the outcome of a call by gRPC says that HTTP/2 does not reach the server, so that the server did nothing. Without TLS only a
/// status says so: nothing is negotiated, and a server of HTTP/1.1 breaks the connection as others may.
fn lacks_http2(outcome: &Result<Response<Body>, BoxError>) -> bool {
    match outcome {
        Ok(response) => !is_grpc(response.headers()) && refuses_grpc(response.status()),
        Err(error) => fault_in(&**error) == Some(TransportFault::NoHttp2),
    }
}

/// Makes a status of gRPC of a response that is an error of a proxy, by its HTTP status as gRPC says: its page would be read as gRPC.
fn without_page(response: Response<Body>) -> Response<Body> {
    let status = response.status();
    if status == StatusCode::OK || is_grpc(response.headers()) {
        return response;
    }
    let code = match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502..=504 => Code::Unavailable,
        _ => Code::Unknown,
    };
    Status::new(code, format!("HTTP status {status} in place of gRPC")).into_http()
}

/// Whether a fault is that of a server whose certificate is not trusted.
fn is_about_trust(fault: TransportFault) -> bool {
    matches!(
        fault,
        TransportFault::CertificateUntrusted | TransportFault::CertificateName | TransportFault::CertificateExpired
    )
}

/// Whether a response is one of gRPC or gRPC-Web.
fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Whether a response to gRPC-Web is of the server, or of a proxy that speaks for a server that is away.
fn is_of_server(response: &Response<Body>) -> bool {
    let away = matches!(
        response.status(),
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    );
    away || is_grpc(response.headers())
}

/// Whether a status is one by which proxies and servers refuse gRPC as such: a proxy took the call by HTTP/2 and passed it on by
/// HTTP/1.1, over which there is no gRPC, or does not know its content type.
fn refuses_grpc(status: StatusCode) -> bool {
    // 464 is how some load balancers say that the protocol of the request does not fit the server.
    matches!(status.as_u16(), 400 | 405 | 415 | 426 | 464 | 501 | 505)
}
