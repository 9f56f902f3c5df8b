//! The health of each service, and reflection. Both take calls without a token, for probes and for people.

use bindery_proto::v1alpha2::{
    binding_service_server, catalog_service_server, credential_service_server, export_service_server,
    provider_service_server,
};
use tokio_util::sync::CancellationToken;
use tonic_health::{
    ServingStatus,
    pb::health_server::{Health, HealthServer},
    server::{HealthReporter, health_reporter},
};
use tonic_reflection::server::{
    Builder, Error,
    v1::{ServerReflection, ServerReflectionServer},
    v1alpha,
};

use crate::state::State;

/// The names of the services. The empty name stands for the server as a whole.
const SERVICES: [&str; 6] = [
    "",
    provider_service_server::SERVICE_NAME,
    catalog_service_server::SERVICE_NAME,
    binding_service_server::SERVICE_NAME,
    export_service_server::SERVICE_NAME,
    credential_service_server::SERVICE_NAME,
];

/// The health service, which reports `SERVING` from when the caches are synced until the shutdown.
pub(crate) fn service(state: State, stop: CancellationToken) -> HealthServer<impl Health> {
    let (reporter, service) = health_reporter();
    tokio::spawn(async move {
        report(&reporter, ServingStatus::NotServing).await;
        if stop.run_until_cancelled(state.synced()).await.is_some() {
            report(&reporter, ServingStatus::Serving).await;
        }
        stop.cancelled().await;
        report(&reporter, ServingStatus::NotServing).await;
    });
    service
}

async fn report(reporter: &HealthReporter, status: ServingStatus) {
    for service in SERVICES {
        reporter.set_service_status(service, status).await;
    }
}

/// The reflection service in its current version, and in the one that older tools use.
pub(crate) fn reflection() -> Result<
    (
        ServerReflectionServer<impl ServerReflection>,
        v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection>,
    ),
    Error,
> {
    let builder = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(bindery_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // Without these, tools cannot print the details of an error.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    Ok((builder().build_v1()?, builder().build_v1alpha()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptors_are_whole() {
        assert!(reflection().is_ok());
    }
}
