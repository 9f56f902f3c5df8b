//! Calls as bytes, so that every method is called in the same way.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bindery_e2e::{Provider, call::Raw};
use bindery_proto::v1alpha2::{
    ErrorReason, WatchBindableResourcesRequestsResponse, WatchContractsResponse, WatchExportsResponse,
    watch_bindable_resources_requests_response::Event as RequestEvent,
    watch_contracts_response::Event as ContractEvent, watch_exports_response::Event as ExportEvent,
};
use bytes::Bytes;
use prost::Message as _;
use tokio::time::timeout;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    transport::{Certificate, Channel, ClientTlsConfig},
};
use tonic_types::StatusExt as _;

/// Longest wait for an answer, or for the end of a snapshot.
const PATIENCE: Duration = Duration::from_mins(2);

/// A connection to the server.
#[derive(Clone)]
pub(crate) struct Wire(Channel);

/// What a call came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Code,
    pub(crate) reason: Option<ErrorReason>,
    /// All that the caller was told, as text.
    pub(crate) told: String,
}

// === impl Wire ===

impl Wire {
    pub(crate) async fn connect(provider: &Provider) -> Result<Self> {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(provider.plane.ca_pem()));
        let endpoint = Channel::from_shared(provider.address())?.tls_config(tls)?;
        Ok(Self(endpoint.connect().await?))
    }

    /// Calls a method. Of a stream the snapshot is read.
    pub(crate) async fn call(&self, path: &'static str, body: &Bytes, token: Option<&str>) -> Result<Outcome> {
        let answered = timeout(PATIENCE, self.answers(path, body, token)).await;
        let mut told = Vec::new();
        let status = match answered.with_context(|| format!("{path}: no answer"))? {
            Ok(messages) => {
                told.extend(messages.iter().flatten().copied());
                Status::ok("")
            }
            Err(status) => status,
        };
        told.extend_from_slice(status.message().as_bytes());
        told.extend_from_slice(status.details());
        let details = status.get_error_details();
        let reason = details
            .error_info()
            .and_then(|info| ErrorReason::from_reason_str(&info.reason));
        Ok(Outcome {
            code: status.code(),
            reason,
            told: String::from_utf8_lossy(&told).into_owned(),
        })
    }

    /// An answer is a stream of one message; so that one way of calling does for all.
    pub(crate) async fn answers(
        &self,
        path: &'static str,
        body: &Bytes,
        token: Option<&str>,
    ) -> Result<Vec<Bytes>, Status> {
        let mut grpc = Grpc::new(self.0.clone());
        grpc.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
        let mut request = Request::new(futures::stream::iter([body.clone()]));
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse();
            let value = value.map_err(|_| Status::unknown("a token that is no header"))?;
            request.metadata_mut().insert("authorization", value);
        }
        let path = http::uri::PathAndQuery::from_static(path);
        let mut stream = grpc.streaming(request, path.clone(), Raw).await?.into_inner();
        let mut messages = Vec::new();
        while let Some(message) = stream.message().await? {
            let is_last = ends_snapshot(path.path(), &message);
            messages.push(message);
            if is_last {
                break;
            }
        }
        Ok(messages)
    }
}

fn ends_snapshot(path: &str, message: &Bytes) -> bool {
    let message = message.clone();
    if path.ends_with("/WatchExports") {
        let event = WatchExportsResponse::decode(message)
            .ok()
            .and_then(|message| message.event);
        matches!(event, Some(ExportEvent::SnapshotComplete(_)))
    } else if path.ends_with("/WatchBindableResourcesRequests") {
        let event = WatchBindableResourcesRequestsResponse::decode(message)
            .ok()
            .and_then(|message| message.event);
        matches!(event, Some(RequestEvent::SnapshotComplete(_)))
    } else if path.ends_with("/WatchContracts") {
        let event = WatchContractsResponse::decode(message)
            .ok()
            .and_then(|message| message.event);
        matches!(event, Some(ContractEvent::SnapshotComplete(_)))
    } else {
        false
    }
}
