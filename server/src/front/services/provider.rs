//! ProviderService: the name, the features and the limits of the provider.

use std::sync::Arc;

use bindery_proto::v1alpha2::{
    AuthenticationMethod, GetProviderRequest, GetProviderResponse, Limits, Provider, ServiceAccountAuthentication,
    authentication_method::Method, provider_service_server::ProviderService,
};
use tonic::{Request, Response, Status};

use crate::front::{
    Front,
    limits::{REQUEST_BYTES_MAX, WAIT_MAX},
    wire::{
        convert::{enums, meta},
        page,
    },
};

/// The features that this server supports, by name.
const FEATURES: [&str; 5] = [
    "contracts",
    "renewal",
    "validate-only",
    "watch-exports",
    "watch-requests",
];

#[derive(Debug)]
pub(crate) struct Service(pub(crate) Arc<Front>);

#[tonic::async_trait]
impl ProviderService for Service {
    async fn get_provider(&self, _: Request<GetProviderRequest>) -> Result<Response<GetProviderResponse>, Status> {
        let settings = &self.0.state.settings;
        let number = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let accounts = ServiceAccountAuthentication {
            audience: settings.grpc.address.clone(),
            issuers: Vec::new(),
        };
        let provider = Provider {
            pretty_name: settings.pretty_name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api_versions: vec![bindery_api::v1alpha2::VERSION.to_owned()],
            isolation: enums::isolation(settings.isolation),
            informer_scope: enums::informer_scope(settings.informer_scope),
            authentication_methods: vec![AuthenticationMethod {
                method: Some(Method::ServiceAccount(accounts)),
            }],
            features: FEATURES.map(ToOwned::to_owned).to_vec(),
            limits: Some(Limits {
                max_page_size: number(page::SIZE_MAX),
                max_message_bytes: number(REQUEST_BYTES_MAX),
                max_wait: Some(meta::duration(WAIT_MAX)),
                kubeconfig_lifetime: Some(meta::duration(settings.token_lifetime)),
            }),
        };
        Ok(Response::new(GetProviderResponse {
            provider: Some(provider),
        }))
    }
}
