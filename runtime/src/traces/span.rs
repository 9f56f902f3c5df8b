//! Spans, and the tracer that makes them.

use std::time::SystemTime;

use opentelemetry::{
    Context, KeyValue,
    trace::{Span as _, SpanBuilder, Status, TraceContextExt as _, Tracer as _, TracerProvider as _},
};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::{TraceContext, context::Decision};

pub use opentelemetry::{KeyValue as Attribute, trace::SpanKind};

/// Makes spans, and draws what is traced.
#[derive(Clone, Debug)]
pub struct Tracer {
    sdk: SdkTracer,
    ratio: f64,
}

/// A span that ends when this is dropped.
#[derive(Debug)]
pub struct OpenSpan(Span);

// === impl Tracer ===

impl Tracer {
    /// A tracer whose spans go to a provider, and which draws this part of all changes and calls. The provider must sample every span that
    /// is made.
    pub fn of(provider: &SdkTracerProvider, ratio: f64) -> Self {
        Self {
            sdk: provider.tracer("bindery"),
            ratio,
        }
    }

    pub(super) fn sdk(&self) -> &SdkTracer {
        &self.sdk
    }

    /// Draws whether a change or a call that begins now is traced.
    pub fn draws(&self) -> bool {
        self.ratio >= 1.0 || (self.ratio > 0.0 && rand::random::<f64>() < self.ratio)
    }

    /// Whether to trace a call with this header `traceparent`, and the span that it is a child of. Where the header is valid, the caller
    /// has decided; else it is drawn.
    pub fn admits(&self, traceparent: Option<&str>) -> Option<Option<TraceContext>> {
        match traceparent.and_then(TraceContext::decided) {
            Some(Decision::Sampled(parent)) => Some(Some(parent)),
            Some(Decision::NotSampled) => None,
            None => self.draws().then_some(None),
        }
    }

    /// Starts a span that began at `since`: the first of a trace, or a child of `parent`.
    pub fn start(
        &self,
        name: &'static str,
        kind: SpanKind,
        parent: Option<&TraceContext>,
        since: SystemTime,
        attributes: Vec<KeyValue>,
    ) -> OpenSpan {
        let span = SpanBuilder::from_name(name)
            .with_kind(kind)
            .with_start_time(since)
            .with_attributes(attributes);
        let parent = parent.map_or_else(Context::new, TraceContext::parent);
        OpenSpan(self.sdk.build_with_context(span, &parent))
    }
}

// === impl OpenSpan ===

impl OpenSpan {
    /// The context by which other spans become its children; `None` once the export has ended.
    pub fn context(&self) -> Option<TraceContext> {
        TraceContext::of(self.0.span_context())
    }

    /// Adds an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Into<opentelemetry::Value>) {
        self.0.set_attribute(KeyValue::new(key, value));
    }

    /// Marks what the span is about as failed.
    pub fn fail(&mut self) {
        // Without a description: errors may repeat what somebody sent.
        self.0.set_status(Status::error(""));
    }

    /// Ends the span at a time in the past.
    pub fn end_at(mut self, time: SystemTime) {
        self.0.end_with_timestamp(time);
    }
}

// === impl TraceContext ===

impl TraceContext {
    /// Makes a span of `tracing`, of target [`TARGET`](super::TARGET) and not entered yet, a child of this one.
    pub fn adopt(&self, span: &tracing::Span) {
        // It fails only for a span that is not exported, or that was entered before.
        let _ = span.set_parent(self.parent());
    }

    /// The context of a span of `tracing`; `None` if the span is not exported.
    pub fn of_span(span: &tracing::Span) -> Option<Self> {
        Self::of(span.context().span().span_context())
    }
}
