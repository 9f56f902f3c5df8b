//! The tower layers around the services. From outside to inside: a request id that is safe in a log, a trace of the call with
//! its metrics, an error as clients expect it, a caught panic, and the [`Interceptor`].

use std::{any::Any, convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, header::AUTHORIZATION};
use tonic::{Code, Status, body::Body};
use tower::{BoxError, Service, ServiceBuilder, service_fn};
use tower_http::{
    catch_panic::CatchPanicLayer,
    map_response_body::MapResponseBodyLayer,
    request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer},
    sensitive_headers::{SetSensitiveRequestHeadersLayer, SetSensitiveResponseHeadersLayer},
    set_header::SetResponseHeaderLayer,
    trace::TraceLayer,
};
use tracing::{Span, field};

use crate::front::{
    Failure,
    access::{self, Method},
    transport::{REQUEST_ID, interceptor::Interceptor, metrics::Metrics, traces},
    wire::error,
};

/// The body of a response that went through [`CatchPanicLayer`].
type CaughtBody = tower_http::body::UnsyncBoxBody<Bytes, BoxError>;

pub(super) const SERVER_VERSION: HeaderName = HeaderName::from_static("x-server-version");
/// Longest request id of a caller, in bytes.
const REQUEST_ID_LENGTH_MAX: usize = 64;

/// Wraps all services in the layers that every call passes.
pub(crate) fn layered<S>(
    services: S,
    interceptor: Interceptor,
    metrics: Metrics,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static,
{
    let interceptor = Arc::new(interceptor);
    let intercepted = service_fn(move |mut request: Request<Body>| {
        let (interceptor, services) = (Arc::clone(&interceptor), services.clone());
        async move {
            let traced = traces::begin(&mut request);
            let response = Box::pin(interceptor.call(services, request)).await;
            traces::answered(&traced, &response);
            Ok::<_, Infallible>(response)
        }
    });
    let trace = TraceLayer::new_for_grpc()
        .make_span_with(span)
        .on_request(())
        .on_response(move |response: &Response<CaughtBody>, latency: Duration, span: &Span| {
            record(&metrics, response, latency, span);
        })
        .on_body_chunk(())
        .on_eos(())
        .on_failure(());
    ServiceBuilder::new()
        .map_request(without_unfit_request_id)
        .layer(SetRequestIdLayer::new(REQUEST_ID, MakeRequestUuid))
        .layer(SetSensitiveRequestHeadersLayer::new([AUTHORIZATION]))
        .layer(MapResponseBodyLayer::new(Body::new))
        .layer(trace)
        // No two ids are alike: a sensitive header stays out of the table that HTTP/2 keeps for a connection.
        .layer(SetSensitiveResponseHeadersLayer::new([REQUEST_ID]))
        .layer(SetResponseHeaderLayer::overriding(
            SERVER_VERSION,
            HeaderValue::from_static(env!("CARGO_PKG_VERSION")),
        ))
        .map_response(with_complete_status)
        .layer(PropagateRequestIdLayer::new(REQUEST_ID))
        .layer(CatchPanicLayer::custom(panicked))
        .service(intercepted)
}

/// Removes a request id that the caller sent twice or that could forge lines of a log, so that the server makes one.
fn without_unfit_request_id(mut request: Request<Body>) -> Request<Body> {
    let mut sent = request.headers().get_all(REQUEST_ID).iter();
    let is_fit = matches!((sent.next(), sent.next()), (Some(id), None) if is_fit(id));
    if !is_fit {
        request.headers_mut().remove(REQUEST_ID);
    }
    request
}

fn is_fit(id: &HeaderValue) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=REQUEST_ID_LENGTH_MAX).contains(&id.len()) && id.as_bytes().iter().all(fits)
}

fn span(request: &Request<Body>) -> Span {
    let id = request.headers().get(REQUEST_ID);
    tracing::info_span!(
        "call",
        method = access::method(request.uri().path()).map_or("unknown", |method| method.path),
        request_id = id.and_then(|id| id.to_str().ok()),
        principal = field::Empty,
        code = field::Empty
    )
}

/// Logs and counts a call by the head of its response, which is all of an error and the beginning of a stream.
fn record(metrics: &Metrics, response: &Response<CaughtBody>, latency: Duration, span: &Span) {
    let status = Status::from_header_map(response.headers()).filter(|status| status.code() != Code::Ok);
    let code = status.as_ref().map_or(Code::Ok, Status::code);
    span.record("code", bindery_proto::code_name(code));
    if let Some(status) = &status {
        tracing::info!(why = status.message(), "refused");
    } else {
        tracing::debug!("answered");
    }
    // The interceptor names the method on each response; the response to a panic has none.
    let method = response.extensions().get::<&'static Method>();
    metrics.call(method.map_or("unknown", |method| method.path), code, latency);
}

/// Completes an error of our own services with the request id and, where tonic made it, with a reason. The services of gRPC
/// itself (`grpc.health`, `grpc.reflection`) answer with the statuses that their clients know.
fn with_complete_status(mut response: Response<CaughtBody>) -> Response<CaughtBody> {
    let method = response.extensions().get::<&'static Method>();
    if method.is_some_and(|method| method.path.starts_with("/grpc.")) {
        return response;
    }
    let status = Status::from_header_map(response.headers()).filter(|status| status.code() != Code::Ok);
    if let Some(status) = status {
        let id = response.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
        let complete = error::complete(&status, id.unwrap_or_default());
        // A status of ours holds nothing that no header can hold.
        let _ = complete.add_header(response.headers_mut());
    }
    response
}

fn panicked(_: Box<dyn Any + Send>) -> Response<Body> {
    Status::from(Failure::internal("a handler panicked")).into_http()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sent: &[&str], is_kept: bool) {
        let mut request = Request::new(Body::default());
        for id in sent {
            let id = HeaderValue::from_str(id).expect("a header");
            request.headers_mut().append(REQUEST_ID, id);
        }
        let kept = without_unfit_request_id(request).headers().contains_key(REQUEST_ID);
        assert_eq!(kept, is_kept, "{sent:?}");
    }

    #[test]
    fn only_a_request_id_that_is_safe_in_a_log_is_kept() {
        check(&["a.B_9-"], true);
        check(&[&"x".repeat(64)], true);
        check(&[&"x".repeat(65)], false);
        check(&[], false);
        check(&[""], false);
        check(&["a b"], false);
        check(&["a\tb"], false);
        check(&["one", "two"], false);
    }
}
