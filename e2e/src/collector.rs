//! A collector of traces, to which programs send by OTLP over gRPC.

use std::sync::Arc;

use anyhow::Result;
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    trace::v1::Span,
};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};

/// A collector that keeps what it gets.
#[derive(Clone, Debug, Default)]
pub struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

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
    /// Serves a collector on loopback, and returns its URL.
    pub async fn start() -> Result<(Self, String)> {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let server = Server::builder()
            .add_service(TraceServiceServer::new(collector.clone()))
            .serve_with_incoming(TcpIncoming::from(listener));
        tokio::spawn(server);
        Ok((collector, url))
    }

    /// All requests so far.
    pub fn kept(&self) -> Vec<ExportTraceServiceRequest> {
        self.0.lock().clone()
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<Span> {
        let kept = self.kept().into_iter();
        kept.flat_map(|request| request.resource_spans)
            .flat_map(|resource| resource.scope_spans)
            .flat_map(|scope| scope.spans)
            .collect()
    }
}
