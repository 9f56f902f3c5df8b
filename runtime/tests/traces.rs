//! What a collector gets: the shape of traces, and nothing of the export itself.

#![cfg(feature = "traces")]
#![expect(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bindery_runtime::traces::{self, Attribute, Pipeline, SpanKind, TARGET, TraceContext, TraceEndpoint};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    trace::v1::Span,
};
use parking_lot::Mutex;
use tokio::{net::TcpListener, task::spawn_blocking};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};
use tracing::Instrument as _;
use tracing_subscriber::{layer::SubscriberExt as _, registry::Registry};

/// A collector that keeps what it gets.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.lock().push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Serves a collector on loopback.
    async fn start() -> (Self, TraceEndpoint) {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = Server::builder()
            .add_service(TraceServiceServer::new(collector.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        (collector, endpoint.parse().unwrap())
    }

    fn spans(&self) -> Vec<Span> {
        let requests = self.0.lock();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        let scopes = resources.flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }

    #[track_caller]
    fn span(&self, name: &str) -> Span {
        let found = self.spans().into_iter().find(|span| span.name == name);
        assert!(found.is_some(), "no span {name} among {:?}", self.names());
        found.unwrap()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.spans().into_iter().map(|span| span.name).collect();
        names.sort();
        names
    }
}

async fn flush(pipeline: &Pipeline) {
    let provider = pipeline.provider.clone();
    spawn_blocking(move || provider.force_flush()).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_have_their_parents_and_the_export_is_not_traced() {
    let (collector, endpoint) = Collector::start().await;
    let pipeline = Pipeline::start(&endpoint, 1.0, "test").unwrap();
    // All spans and events of all libraries are recorded, those of the export among them.
    let subscriber = Registry::default().with(traces::exported(&pipeline.tracer));
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let tracer = &pipeline.tracer;
    let now = SystemTime::now();
    let attributes = vec![Attribute::new("bindery.object", "billy")];
    let change = tracer.start("change", SpanKind::Consumer, None, now, attributes);
    let context = change.context().unwrap();
    let mut write = tracer.start("write", SpanKind::Client, Some(&context), now, Vec::new());
    write.set("bindery.code", "409");
    write.fail();
    drop(write);
    drop(change);

    // Over the wire, as a header or an annotation, and on to a span of `tracing`.
    let received = TraceContext::parse(&context.to_string()).unwrap();
    assert_eq!(received, context);
    let call = tracing::info_span!(target: TARGET, parent: None, "call", otel.kind = "server", bindery.code = tracing::field::Empty);
    received.adopt(&call);
    let of_call = TraceContext::of_span(&call).unwrap();
    let answered = call.clone();
    async {
        let _other = tracing::info_span!("of the log").entered();
        tracing::error!(target: TARGET, "no line of the log is exported as a span");
        tracing::error!("planted-secret");
    }
    .instrument(call)
    .await;
    answered.record("bindery.code", "OK");
    drop(answered);
    let reconcile = tracing::info_span!(target: TARGET, parent: None, "reconcile");
    of_call.adopt(&reconcile);
    drop(reconcile);

    for _ in 0..3 {
        flush(&pipeline).await;
    }
    assert_eq!(collector.names(), ["call", "change", "reconcile", "write"]);
    let (change, write) = (collector.span("change"), collector.span("write"));
    assert!(change.parent_span_id.is_empty());
    assert_eq!(write.parent_span_id, change.span_id);
    assert_eq!(collector.span("call").parent_span_id, change.span_id);
    assert_eq!(
        collector.span("reconcile").parent_span_id,
        collector.span("call").span_id
    );
    for span in collector.spans() {
        assert_eq!(span.trace_id, change.trace_id, "{}", span.name);
    }
    assert_eq!(write.status.unwrap().code, 2, "it is an error");
    let call = collector.span("call");
    assert_eq!(call.kind, 2, "it is a server's");
    assert!(
        call.attributes.iter().any(|attribute| attribute.key == "bindery.code"),
        "{call:?}"
    );
    let sent = format!("{:?}", collector.0.lock());
    assert!(!sent.contains("planted-secret"), "{sent}");
    assert!(sent.contains("billy"), "{sent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_holds_nothing_up() {
    // Nothing listens there once the listener is dropped.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint: TraceEndpoint = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let pipeline = Pipeline::start(&endpoint, 1.0, "test").unwrap();
    let start = Instant::now();
    for _ in 0..100_000 {
        let now = SystemTime::now();
        drop(
            pipeline
                .tracer
                .start("change", SpanKind::Consumer, None, now, Vec::new()),
        );
    }
    // It is far more than the queue holds.
    assert!(start.elapsed() < Duration::from_mins(1), "{:?}", start.elapsed());
    let provider = pipeline.provider.clone();
    let start = Instant::now();
    let flushed = spawn_blocking(move || provider.shutdown_with_timeout(Duration::from_secs(3))).await;
    assert!(flushed.unwrap().is_err());
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[tokio::test]
async fn what_is_not_drawn_makes_no_span_unless_its_caller_decided() {
    let endpoint: TraceEndpoint = "http://127.0.0.1:9".parse().unwrap();
    let sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let not_sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    let random = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02";
    for (ratio, header, expect) in [
        (0.0, None, None),
        (0.0, Some(sampled), Some(true)),
        (0.0, Some(not_sampled), None),
        (0.0, Some("garbage"), None),
        (1.0, None, Some(false)),
        (1.0, Some(sampled), Some(true)),
        (1.0, Some(not_sampled), None),
        // The second flag says that the identifier is random.
        (1.0, Some(random), None),
        (1.0, Some("garbage"), Some(false)),
        (1.0, Some("garbage-00"), Some(false)),
    ] {
        let tracer = Pipeline::start(&endpoint, ratio, "test").unwrap().tracer;
        let got = tracer.admits(header).map(|parent| parent.is_some());
        assert_eq!(got, expect, "{ratio} {header:?}");
    }
}
