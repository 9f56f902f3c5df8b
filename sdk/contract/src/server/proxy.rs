//! A proxy before a scripted server, which passes gRPC-Web on as gRPC.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::Result;
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;
use tonic_web::GrpcWebLayer;
use tower::{Layer as _, ServiceExt as _};

use super::{Shared, connection};
use crate::script::Proxy;

/// Bytes that wait between the proxy and the server.
const BUFFER: usize = 1 << 16;
/// What a proxy answers if it does not pass a call on.
const PAGE: &str = "<html>not here</html>";

/// Serves a connection of HTTP/1.1 or HTTP/2 until it or that to the server ends.
pub(super) async fn run(
    shared: &Arc<Shared>,
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    number: usize,
    proxy: Proxy,
) -> Result<()> {
    let (near, far) = tokio::io::duplex(BUFFER);
    let serve = connection::serve(shared, far, number);
    let pass = async {
        let (server, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(near)).await?;
        let service = service_fn(move |request| answer(server.clone(), proxy, request));
        let builder = auto::Builder::new(TokioExecutor::new());
        tokio::select! {
            ended = connection => ended?,
            // A client may break off.
            _ = builder.serve_connection(TokioIo::new(io), service) => {}
        }
        anyhow::Ok(())
    };
    tokio::select! {
        ended = serve => ended,
        ended = pass => ended,
    }
}

async fn answer(
    server: SendRequest<Body>,
    proxy: Proxy,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let page = match proxy {
        Proxy::Page(status) => Some(status),
        Proxy::Refuses(status) if !is_web(&request) => Some(status),
        Proxy::Web | Proxy::Refuses(_) => None,
    };
    if let Some(status) = page {
        // As proxies do, which read a request before they look for the server.
        let _ = request.into_body().collect().await;
        return Ok(page_of(status));
    }
    let send = tower::service_fn(move |request: Request<Body>| {
        let mut server = server.clone();
        async move { server.send_request(by_http2(request)).await }
    });
    let passed = GrpcWebLayer::new().layer(send).oneshot(request).await;
    // Such as a server that resets the stream before it answers.
    Ok(passed.unwrap_or_else(|_| page_of(502)))
}

fn is_web<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc-web"))
}

fn page_of(status: u16) -> Response<Body> {
    let mut response = Response::new(Body::new(PAGE.to_owned()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    let html = HeaderValue::from_static("text/html");
    response.headers_mut().insert(header::CONTENT_TYPE, html);
    response
}

/// The request as one of HTTP/2, whose address has a host.
fn by_http2(mut request: Request<Body>) -> Request<Body> {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(http::uri::Scheme::HTTP);
    parts.authority = Some(http::uri::Authority::from_static("127.0.0.1"));
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(header::HOST);
    request
}
