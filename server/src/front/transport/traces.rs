//! Traces of calls: one span per call, from its arrival to the head of its response. That is all of a unary call, and of a stream the
//! opening alone.

use bindery_runtime::traces::{self, TARGET, TraceContext};
use http::{Request, Response};
use tonic::{Code, Status, body::Body};
use tracing::{Span, field};

use crate::front::access::{self, Method};

/// Begins the span of a call and attaches its context to the request, for objects that the call makes. Returns a span that does nothing if
/// traces are off, if the call is not drawn, or if the server has no such method. A caller that sends a valid `traceparent` has decided.
pub(super) fn begin(request: &mut Request<Body>) -> Span {
    let Some(tracer) = traces::tracer() else {
        return Span::none();
    };
    let Some(method) = access::method(request.uri().path()) else {
        return Span::none();
    };
    let sent = request.headers().get("traceparent");
    let Some(parent) = tracer.admits(sent.and_then(|sent| sent.to_str().ok())) else {
        return Span::none();
    };
    let span = of_call(method);
    if let Some(parent) = parent {
        parent.adopt(&span);
    }
    if let Some(context) = TraceContext::of_span(&span) {
        request.extensions_mut().insert(context);
    }
    span
}

fn of_call(method: &Method) -> Span {
    // A parent of `tracing` would be a span of the log.
    tracing::info_span!(
        target: TARGET,
        parent: None,
        "call",
        otel.name = method.path.trim_start_matches('/'),
        otel.kind = "server",
        otel.status_code = field::Empty,
        rpc.system = "grpc",
        rpc.method = method.path,
        bindery.code = field::Empty,
    )
}

/// Notes how a call was answered.
pub(super) fn answered(span: &Span, response: &Response<Body>) {
    if span.is_none() {
        return;
    }
    let status = Status::from_header_map(response.headers());
    let code = status.as_ref().map_or(Code::Ok, Status::code);
    span.record("bindery.code", bindery_proto::code_name(code));
    if code != Code::Ok {
        span.record("otel.status_code", "error");
    }
}
