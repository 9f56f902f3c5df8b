//! The gRPC front door: TLS, the gate that every call passes, and one file per service.
//!
//! Handlers read the caches and write requests; the controllers do the work. So every replica answers every call, and a
//! call that is repeated after a failure finds what the first one began.

use std::{io, sync::Arc};

use bindery_proto::v1alpha2::{
    binding_service_server::BindingServiceServer, catalog_service_server::CatalogServiceServer,
    credential_service_server::CredentialServiceServer, export_service_server::ExportServiceServer,
    provider_service_server::ProviderServiceServer,
};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::{credentials::Issuer, state::State};

pub mod access;
pub mod auth;
mod binding;
mod catalog;
mod connection;
pub mod convert;
mod credential;
mod error;
mod export;
mod feeds;
mod gate;
mod health;
pub mod limits;
mod listener;
mod metrics;
pub mod page;
mod provider;
mod request_id;
mod schemas;
mod selector;
mod stream;
pub mod tls;
mod validate;
mod wait;

pub use error::{Failure, Outcome};
pub use listener::{ListenError, Listener};
pub use metrics::Metrics;

use access::{ContractAccess, TemplateAccess};
use auth::{Authenticators, TokenReviewer};
use feeds::Feeds;
use gate::{Gate, GateLayer};
use limits::{ANSWER_BYTES_MAX, HEADER_BYTES_MAX, REQUEST_BYTES_MAX};
use schemas::SchemaRefs;
use stream::Streams;

/// What the services work with.
#[derive(Debug)]
struct Front {
    state: State,
    templates: TemplateAccess,
    contracts: ContractAccess,
    issuer: Issuer,
    schemas: SchemaRefs,
    streams: Streams,
    feeds: Feeds,
}

/// Why the front door does not open, or closed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No connection can be accepted.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The certificate cannot be served.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// The listener has no address.
    #[error("the listener has no address: {0}")]
    Address(#[from] io::Error),
    /// The descriptors of reflection are broken.
    #[error("cannot set up reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// Serving failed.
    #[error("cannot serve gRPC: {0}")]
    Serve(#[from] tonic::transport::Error),
}

/// Serves until cancelled, then ends streams and waits for the calls that are being answered.
pub async fn serve(
    state: State,
    listener: Listener,
    metrics: Metrics,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let address = listener.address()?;
    let connections = listener.connections(stop.clone())?;
    let (gate, routes) = services(&state, &metrics, &stop)?;
    tracing::info!(%address, external = state.settings.grpc.address, "gRPC port open");
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(std::time::Duration::from_secs(30)))
        .http2_keepalive_timeout(Some(std::time::Duration::from_secs(20)))
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .initial_stream_window_size(64 * 1024)
        .initial_connection_window_size(256 * 1024)
        .max_concurrent_streams(256)
        .layer(gate)
        .serve_with_incoming_shutdown(routes, connections, stop.cancelled_owned())
        .await?;
    Ok(())
}

fn services(
    state: &State,
    metrics: &Metrics,
    stop: &CancellationToken,
) -> Result<(GateLayer, Routes), tonic_reflection::server::Error> {
    let reviewer = TokenReviewer::new(state.clients.write.clone(), state.settings.grpc.audiences());
    let authenticators = Authenticators::new(vec![Arc::new(reviewer)]);
    let front = Arc::new(Front {
        templates: TemplateAccess::new(state.clients.write.clone()),
        contracts: ContractAccess::new(state.clone()),
        issuer: Issuer::new(state.clone()),
        schemas: SchemaRefs::default(),
        streams: Streams::new(authenticators.clone(), metrics.clone(), stop.clone()),
        feeds: Feeds::start(state),
        state: state.clone(),
    });
    let gate = Gate::new(Arc::new(state.clone()), authenticators, metrics.clone(), stop.clone());
    let (reflection, reflection_alpha) = health::reflection()?;
    macro_rules! limited {
        ($server:ident, $service:expr) => {
            $server::new($service)
                .max_decoding_message_size(REQUEST_BYTES_MAX)
                .max_encoding_message_size(ANSWER_BYTES_MAX)
        };
    }
    let routes = Routes::new(limited!(ProviderServiceServer, provider::Service(Arc::clone(&front))))
        .add_service(limited!(CatalogServiceServer, catalog::Service(Arc::clone(&front))))
        .add_service(limited!(BindingServiceServer, binding::Service(Arc::clone(&front))))
        .add_service(limited!(ExportServiceServer, export::Service(Arc::clone(&front))))
        .add_service(limited!(CredentialServiceServer, credential::Service(front)))
        .add_service(health::service(state.clone(), stop.clone()))
        .add_service(reflection)
        .add_service(reflection_alpha);
    Ok((GateLayer(Arc::new(gate)), routes))
}
