//! Traces the calls to backends.

use std::time::SystemTime;

use bindery_runtime::traces::{Attribute, OpenSpan, SpanKind, TraceContext, Tracer};
use bindery_sdk::{CallTracer, Code, TracedCall};

/// Draws which calls to a backend are traced, and makes a span of each of these.
#[derive(Debug)]
pub(super) struct TracedCalls(&'static Tracer);

/// A call that is traced.
#[derive(Debug)]
struct CallSpan {
    span: OpenSpan,
    context: TraceContext,
}

// === impl TracedCalls ===

impl TracedCalls {
    pub(super) fn by(tracer: &'static Tracer) -> Self {
        Self(tracer)
    }
}

impl CallTracer for TracedCalls {
    fn begin(&self, method: &'static str) -> Option<Box<dyn TracedCall>> {
        if !self.0.draws() {
            return None;
        }
        let attributes = vec![
            Attribute::new("rpc.system", "grpc"),
            Attribute::new("rpc.method", method),
        ];
        let name = method.trim_start_matches('/');
        let span = self
            .0
            .start(name, SpanKind::Client, None, SystemTime::now(), attributes);
        let context = span.context()?;
        Some(Box::new(CallSpan { span, context }))
    }
}

// === impl CallSpan ===

impl TracedCall for CallSpan {
    fn traceparent(&self) -> String {
        self.context.to_string()
    }

    fn end(mut self: Box<Self>, code: Option<Code>) {
        let name = code.map_or("UNANSWERED", bindery_proto::code_name);
        self.span.set("bindery.code", name);
        if code != Some(Code::Ok) {
            self.span.fail();
        }
    }
}
