//! gRPC-Web: the same services for browsers, and for clients behind a proxy that speaks HTTP/1.1 only. A call is translated to
//! gRPC before the layers of every call, so that authentication, limits, audit and metrics are the same.

use std::{convert::Infallible, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use tonic::body::Body;
use tonic_web::GrpcWebLayer;
use tower::{Layer as _, Service, ServiceBuilder, ServiceExt as _, service_fn};
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::{
    front::{
        limits::HEADER_BYTES_MAX,
        transport::{REQUEST_ID, layers::SERVER_VERSION},
    },
    settings::GrpcEndpoint,
};

/// How long a browser may remember that an origin is allowed.
const PREFLIGHT_AGE: Duration = Duration::from_mins(10);
/// HTTP/2 counts this for each header beside its name and its value (RFC 9113, 6.5.2).
const HEADER_OVERHEAD: usize = 32;

/// Lets `services` also answer gRPC-Web, over HTTP/1.1 and HTTP/2, and below the path prefixes of the server's URLs.
pub(crate) fn with_grpc_web<S>(
    services: S,
    endpoint: &GrpcEndpoint,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static,
{
    let translated = GrpcWebLayer::new().layer(services);
    let prefixes = endpoint.prefixes();
    let admitted = service_fn(move |mut request: Request<Body>| {
        let refusal = refusal(request.version(), request.headers());
        if let Some(path) = unprefixed(request.uri(), &prefixes) {
            *request.uri_mut() = path;
        }
        let translated = translated.clone();
        async move {
            match refusal {
                Some((status, text)) => Ok(refused(status, text)),
                None => translated.oneshot(request).await,
            }
        }
    });
    ServiceBuilder::new()
        .option_layer(cors(&endpoint.allowed_origins))
        .service(admitted)
}

/// Allows calls from pages of these origins; none if there are none, so that preflight requests are refused.
fn cors(origins: &[HeaderValue]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    // Credentials are not allowed: a token stands in a header that the page sets, never in a cookie.
    let layer = CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins.iter().cloned()))
        .allow_methods([Method::POST])
        .allow_headers([
            header::AUTHORIZATION,
            header::CONTENT_TYPE,
            REQUEST_ID,
            HeaderName::from_static("grpc-timeout"),
            HeaderName::from_static("x-grpc-web"),
            HeaderName::from_static("x-user-agent"),
        ])
        .expose_headers([
            REQUEST_ID,
            SERVER_VERSION,
            HeaderName::from_static("grpc-status"),
            HeaderName::from_static("grpc-message"),
            HeaderName::from_static("grpc-status-details-bin"),
        ])
        .max_age(PREFLIGHT_AGE);
    Some(layer)
}

/// Why a request over HTTP/1.1 is refused, where HTTP/2 or gRPC itself would refuse it.
fn refusal(version: Version, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
    if version >= Version::HTTP_2 {
        return None;
    }
    let sizes = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + HEADER_OVERHEAD);
    if sizes.sum::<usize>() > HEADER_BYTES_MAX as usize {
        let text = "the headers of the request are too large";
        return Some((StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text));
    }
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    if !content_type.starts_with(b"application/grpc-web") {
        // A proxy that passes gRPC on over HTTP/1.1 loses the trailers. Clients take the status as advice to use gRPC-Web.
        let text = "over HTTP/1.1 this server answers gRPC-Web only, content type application/grpc-web+proto; gRPC needs HTTP/2";
        return Some((StatusCode::BAD_REQUEST, text));
    }
    None
}

fn refused(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::new(format!("{text}\n")));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// The path of a method without the prefix that a proxy left on it; none if it has no prefix.
fn unprefixed(uri: &Uri, prefixes: &[String]) -> Option<Uri> {
    let mut prefixes = prefixes.iter();
    let path = prefixes.find_map(|prefix| {
        uri.path()
            .strip_prefix(prefix.as_str())
            .filter(|path| path.starts_with('/'))
    })?;
    path.parse().ok()
}

#[cfg(test)]
mod tests;
