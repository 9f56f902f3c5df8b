//! The gRPC server: transport, authentication, access, and the services, which answer from the caches.
//!
//! Handlers read the caches and write requests; the controllers do the work. So every replica answers every call, and a
//! call that is repeated after a failure finds what the first one began.

use std::{io, sync::Arc};

use futures::Stream;
use tokio_util::sync::CancellationToken;

use crate::{credentials::Issuer, oidc::Issuers, state::State};

mod access;
mod audit;
mod auth;
#[cfg(fuzzing)]
#[path = "front/tests/fuzzing.rs"]
pub mod fuzzing;
mod limits;
mod services;
mod streams;
pub mod transport;
mod wire;

pub use transport::{
    connection::{Connection, Peer},
    listener::{ListenError, Listener},
    metrics::Metrics,
};
use wire::error::{Failure, Outcome};

use access::{ContractAccess, Reviews, TemplateAccess};
use audit::Auditor;
use auth::{Authenticator, Authenticators, IdTokenVerifier, TokenReviewer};
use services::schema_refs::SchemaRefs;
use streams::{Streams, changes::Hubs};
use transport::{interceptor::Interceptor, layers::layered, serve, web::with_grpc_web};

/// What all services share.
#[derive(Debug)]
struct Front {
    state: State,
    templates: TemplateAccess,
    contracts: ContractAccess,
    issuer: Issuer,
    issuers: Issuers,
    schemas: SchemaRefs,
    streams: Streams,
    hubs: Hubs,
}

/// Why the gRPC server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No connection can be accepted.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The listener has no address.
    #[error("the listener has no address: {0}")]
    Address(#[from] io::Error),
    /// The descriptors that reflection shows cannot be read.
    #[error("cannot set up reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Serves on a port until `stop` is cancelled, then ends the streams and waits for the calls that are under way.
pub async fn serve(
    state: State,
    issuers: Issuers,
    listener: Listener,
    metrics: Metrics,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let address = listener.address()?;
    let connections = listener.connections(stop.clone())?;
    tracing::info!(%address, external = state.settings.grpc.address, "gRPC port open");
    serve_connections(state, issuers, connections, metrics, stop).await
}

/// Serves on these connections until `stop` is cancelled, then ends the streams and waits for the calls that are under way.
pub async fn serve_connections(
    state: State,
    issuers: Issuers,
    connections: impl Stream<Item = Connection> + Send,
    metrics: Metrics,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let authenticators = authenticators(&state, &issuers);
    let reviews = Reviews::new(state.clients.write.clone());
    let front = Front {
        templates: TemplateAccess::new(reviews.clone()),
        contracts: ContractAccess::new(state.clone(), reviews),
        issuer: Issuer::new(state.clone()),
        issuers,
        schemas: SchemaRefs::default(),
        streams: Streams::new(
            authenticators.clone(),
            metrics.clone(),
            state.refusals.clone(),
            stop.clone(),
        ),
        hubs: Hubs::start(&state),
        state: state.clone(),
    };
    let routes = services::routes(front, &stop)?;
    let (endpoint, limits) = (state.settings.grpc.clone(), state.settings.connections);
    let auditor = Auditor::new(&state);
    let interceptor = Interceptor::new(Arc::new(state), authenticators, metrics.clone(), auditor, stop.clone());
    let services = with_grpc_web(layered(routes.prepare(), interceptor, metrics.clone()), &endpoint);
    serve::serve(services, connections, limits, metrics, stop).await;
    Ok(())
}

/// ID tokens are verified here, all other tokens by the provider's API server.
fn authenticators(state: &State, issuers: &Issuers) -> Authenticators {
    let own_issuer = issuers.own_issuer().map(ToOwned::to_owned);
    let reviewer = TokenReviewer::new(state.clients.write.clone(), state.settings.grpc.audiences(), own_issuer);
    let list: [Arc<dyn Authenticator>; 2] = [Arc::new(IdTokenVerifier::new(issuers.clone())), Arc::new(reviewer)];
    Authenticators::new(list.into())
}
