//! The gRPC services, one file each.

use std::sync::Arc;

use bindery_proto::v1alpha2::{
    binding_service_server::BindingServiceServer, catalog_service_server::CatalogServiceServer,
    contract_service_server::ContractServiceServer, credential_service_server::CredentialServiceServer,
    export_service_server::ExportServiceServer, provider_service_server::ProviderServiceServer,
};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::front::{
    Front,
    limits::{ANSWER_BYTES_MAX, OPEN_REQUEST_BYTES_MAX, REQUEST_BYTES_MAX},
};

mod binding;
mod catalog;
mod contract;
mod credential;
mod export;
mod health;
mod provider;
pub(crate) mod schema_refs;
mod wait;

/// All services by their paths. Health is among them, and reflection if the settings say so.
pub(crate) fn routes(front: Front, stop: &CancellationToken) -> Result<Routes, tonic_reflection::server::Error> {
    let front = Arc::new(front);
    macro_rules! limited {
        ($server:ident, $service:expr) => {
            $server::new($service)
                .max_decoding_message_size(REQUEST_BYTES_MAX)
                .max_encoding_message_size(ANSWER_BYTES_MAX)
        };
    }
    let shows_itself = front.state.settings.grpc.reflection;
    let provider = limited!(ProviderServiceServer, provider::Service(Arc::clone(&front)));
    let mut routes = Routes::new(provider.max_decoding_message_size(OPEN_REQUEST_BYTES_MAX))
        .add_service(limited!(CatalogServiceServer, catalog::Service(Arc::clone(&front))))
        .add_service(limited!(BindingServiceServer, binding::Service(Arc::clone(&front))))
        .add_service(limited!(ExportServiceServer, export::Service(Arc::clone(&front))))
        .add_service(limited!(
            CredentialServiceServer,
            credential::Service(Arc::clone(&front))
        ))
        .add_service(limited!(ContractServiceServer, contract::Service(Arc::clone(&front))))
        .add_service(
            health::service(front.state.clone(), stop.clone()).max_decoding_message_size(OPEN_REQUEST_BYTES_MAX),
        );
    if shows_itself {
        let (reflection, reflection_alpha) = health::reflection()?;
        routes = routes
            .add_service(reflection.max_decoding_message_size(OPEN_REQUEST_BYTES_MAX))
            .add_service(reflection_alpha.max_decoding_message_size(OPEN_REQUEST_BYTES_MAX));
    }
    Ok(routes)
}
