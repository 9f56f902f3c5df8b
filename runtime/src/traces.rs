//! Traces of single changes and calls, which are sent to an OpenTelemetry collector by OTLP over gRPC. They are off unless the flags name
//! a collector.
//!
//! What is traced is drawn once, where a change or a call begins ([`Tracer::draws`]); what follows from it continues its
//! [`TraceContext`]. Without a draw no span is made, so that what is not traced costs the draw alone, and with traces off the look at
//! [`tracer`].
//!
//! A span names an object and says what was done with it. No span holds content of an object, a token, or a line of the log.

mod args;
mod context;
mod exporter;
mod pipeline;
mod span;

use std::{sync::OnceLock, time::Duration};

use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::task::spawn_blocking;
use tracing_subscriber::{
    EnvFilter, Layer as _, filter::Targets, layer::SubscriberExt as _, registry::Registry, util::SubscriberInitExt as _,
};

use crate::telemetry::{self, LogArgs, LogFormat};

pub use self::{
    args::{EndpointError, NamesUser, TraceArgs, TraceEndpoint},
    context::TraceContext,
    pipeline::{Pipeline, PipelineError},
    span::{Attribute, OpenSpan, SpanKind, Tracer},
};

/// The target of `tracing` spans that are exported. The log shows no span of this target, and no other span is exported: neither those of
/// the libraries that send the export itself, nor those that live as long as a stream.
pub const TARGET: &str = "bindery_trace";

/// How long the end of a program waits for the last spans to be sent.
const FLUSH_MAX: Duration = Duration::from_secs(3);

static TRACER: OnceLock<Tracer> = OnceLock::new();

/// The tracer of the process; `None` while traces are off.
pub fn tracer() -> Option<&'static Tracer> {
    TRACER.get()
}

/// The export of traces by a process, to be flushed at its end.
#[must_use = "spans that are not sent yet are lost unless it is flushed"]
#[derive(Debug, Default)]
pub struct Traces(Option<SdkTracerProvider>);

/// Why logging or tracing did not start.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The filter of the log is not valid.
    #[error("--log is not a valid filter: {0}")]
    Log(#[from] tracing_subscriber::filter::ParseError),
    /// The collector of traces cannot be used.
    #[error("--trace-endpoint: {0}")]
    Traces(#[from] PipelineError),
}

/// Starts logging to standard error, and traces if the flags name a collector. `service` is the name of the program in traces. Call it once
/// per process, in a Tokio runtime. It does not connect: a collector that cannot be reached is reported in the log, again and again.
pub fn init(log: &LogArgs, args: &TraceArgs, service: &'static str) -> Result<Traces, InitError> {
    let Some(endpoint) = &args.trace_endpoint else {
        telemetry::init(log)?;
        return Ok(Traces::default());
    };
    let filter = EnvFilter::try_new(format!("{},{TARGET}=off", telemetry::directives(log)))?;
    let Pipeline { provider, tracer } = Pipeline::start(endpoint, args.trace_sample, service)?;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match log.log_format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    Registry::default()
        .with(lines.with_filter(filter))
        .with(exported(&tracer))
        .init();
    // Only a second call finds one.
    let _ = TRACER.set(tracer);
    Ok(Traces(Some(provider)))
}

/// Returns the layer that exports the spans of [`TARGET`].
pub fn exported<S>(tracer: &Tracer) -> impl tracing_subscriber::Layer<S> + use<S>
where
    S: tracing::Subscriber + for<'span> tracing_subscriber::registry::LookupSpan<'span> + Send + Sync,
{
    tracing_opentelemetry::layer()
        .with_tracer(tracer.sdk().clone())
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_level(false)
        .with_target(false)
        // Spans of TARGET have this level. A lower one would have each line of libraries at that level looked at, in the whole process.
        .with_filter(Targets::new().with_target(TARGET, tracing::Level::INFO))
}

// === impl Traces ===

impl Traces {
    /// Sends the spans that were not sent yet, for three seconds at most, and ends the export.
    pub async fn flush(self) {
        let Some(provider) = self.0 else {
            return;
        };
        // The exporter reports its own failures.
        let _ = spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_MAX)).await;
    }
}
