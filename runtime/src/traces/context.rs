//! The context of a trace, as it goes over the wire.

use std::fmt;

use opentelemetry::{
    Context,
    propagation::{Extractor, TextMapPropagator as _},
    trace::{SpanContext, TraceContextExt as _, TraceFlags, TraceState},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;

/// Name of the header with a trace context, by W3C Trace Context.
const TRACEPARENT: &str = "traceparent";

/// A span of a trace that is sampled, which spans elsewhere may have as their parent. Its text is that of the header `traceparent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext(SpanContext);

/// What a caller says of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It is sampled, and goes on below this span.
    Sampled(TraceContext),
    /// It is not sampled.
    NotSampled,
}

// === impl TraceContext ===

impl TraceContext {
    /// Reads the value of a header or annotation `traceparent`; `None` if it is not valid, or says that the trace is not sampled.
    pub fn parse(text: &str) -> Option<Self> {
        match Self::decided(text)? {
            Decision::Sampled(context) => Some(context),
            Decision::NotSampled => None,
        }
    }

    /// What the value of a header says; `None` if it is not valid.
    pub(super) fn decided(text: &str) -> Option<Decision> {
        let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &Traceparent(text));
        let span = context.span();
        let span = span.span_context();
        span.is_valid()
            .then(|| Self::of(span).map_or(Decision::NotSampled, Decision::Sampled))
    }

    /// The context of a span; `None` if the span is not sampled.
    pub(super) fn of(span: &SpanContext) -> Option<Self> {
        // Without what else the context of a span has, so that one which was sent equals one that was received.
        let (trace, id) = (span.trace_id(), span.span_id());
        let context = || SpanContext::new(trace, id, TraceFlags::SAMPLED, true, TraceState::default());
        (span.is_valid() && span.is_sampled()).then(|| Self(context()))
    }

    /// The context whose current span this is, for a child of it.
    pub(super) fn parent(&self) -> Context {
        Context::new().with_remote_span_context(self.0.clone())
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only sampled spans have a context.
        write!(f, "00-{}-{}-01", self.0.trace_id(), self.0.span_id())
    }
}

/// A carrier of one header.
struct Traceparent<'a>(&'a str);

impl Extractor for Traceparent<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == TRACEPARENT).then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, is_continued: bool) {
        let read = TraceContext::parse(text).map(|context| context.to_string());
        assert_eq!(read, is_continued.then(|| text.to_owned()));
    }

    #[test]
    fn only_a_valid_context_of_a_sampled_trace_is_continued() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        check(&format!("00-{trace}-{span}-01"), true);
        check(&format!("00-{trace}-{span}-00"), false);
        // The second flag says that the identifier is random.
        check(&format!("00-{trace}-{span}-02"), false);
        check(&format!("00-{}-{span}-01", "0".repeat(32)), false);
        check(&format!("00-{trace}-{}-01", "0".repeat(16)), false);
        check(&format!("00-{trace}-{span}"), false);
        check(&format!("ff-{trace}-{span}-01"), false);
        check("", false);
        check("a secret", false);
    }
}
