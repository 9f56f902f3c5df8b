//! The way of spans from the program to the collector.

use std::time::Duration;

use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracerProvider},
};
use tonic::transport::{ClientTlsConfig, Endpoint};

use super::{TraceEndpoint, Tracer, args::NamesUser, exporter::Reporting};

/// Time limit of one export, retries included. It bounds what one lost batch holds up; spans that come meanwhile are queued, and lost
/// once that queue of limited length is full.
const EXPORT_MAX: Duration = Duration::from_secs(5);
/// Time limit of a connection to the collector.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// A tracer, and the provider that sends its spans.
#[derive(Debug)]
pub struct Pipeline {
    /// Sends the spans in batches, from a thread of its own.
    pub provider: SdkTracerProvider,
    /// Makes the spans.
    pub tracer: Tracer,
}

/// Why spans cannot be sent to a collector.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The address of the collector names a user.
    #[error(transparent)]
    User(#[from] NamesUser),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] tonic::transport::Error),
    /// The exporter cannot be made, such as for variables `OTEL_…` that are not valid.
    #[error("{0}")]
    Exporter(#[from] ExporterBuildError),
}

// === impl Pipeline ===

impl Pipeline {
    /// Makes a tracer that draws this part of all changes and calls, in a Tokio runtime. It connects with the first spans.
    pub fn start(endpoint: &TraceEndpoint, ratio: f64, service: &'static str) -> Result<Self, PipelineError> {
        let mut channel = Endpoint::from(endpoint.uri()?.clone())
            .connect_timeout(CONNECT_MAX)
            .timeout(EXPORT_MAX);
        if endpoint.is_https() {
            channel = channel.tls_config(ClientTlsConfig::new().with_native_roots())?;
        }
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_channel(channel.connect_lazy())
            .with_timeout(EXPORT_MAX)
            .build()?;
        let resource = Resource::builder().with_service_name(service).build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(Reporting::new(exporter))
            // What is not drawn makes no span, and only sampled contexts are continued.
            .with_sampler(Sampler::AlwaysOn)
            .with_resource(resource)
            .build();
        let tracer = Tracer::of(&provider, ratio);
        Ok(Self { provider, tracer })
    }
}
