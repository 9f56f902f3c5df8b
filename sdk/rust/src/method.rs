//! The methods of the API, each with its path and message types.

use std::fmt;
use std::marker::PhantomData;

use bindery_proto::idempotency;

/// A unary or streaming method with requests `Q` and responses `R`.
pub struct Method<Q, R> {
    path: &'static str,
    messages: PhantomData<fn(Q) -> R>,
}

impl<Q, R> Method<Q, R> {
    const fn new(path: &'static str) -> Self {
        Self {
            path,
            messages: PhantomData,
        }
    }

    /// Returns the path of the method, such as `/kubebind.v1alpha2.ExportService/GetExport`.
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Whether a call may be repeated when it is unknown whether the server executed it.
    pub fn is_idempotent(&self) -> bool {
        idempotency::is_idempotent(self.path)
    }

    /// Whether the method is called without a token. Callers who ask how to log in have none, or an expired one.
    pub(crate) fn is_open(&self) -> bool {
        self.path == all::GET_PROVIDER.path
    }
}

impl<Q, R> Clone for Method<Q, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q, R> Copy for Method<Q, R> {}

impl<Q, R> fmt::Debug for Method<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Method").field(&self.path).finish()
    }
}

/// Declares the methods, and for the test the pairs of path and message types.
macro_rules! methods {
    ($($constant:ident = $service:literal $method:literal ($request:ident) -> $response:ident;)+) => {
        /// One constant per method.
        pub(crate) mod all {
            use bindery_proto::v1alpha2::{$($request, $response,)+};

            use super::Method;

            $(
                #[doc = concat!("`", $service, ".", $method, "`")]
                pub const $constant: Method<$request, $response> =
                    Method::new(concat!("/kubebind.v1alpha2.", $service, "/", $method));
            )+
        }

        #[cfg(test)]
        const DECLARED: &[(&str, &str, &str)] = &[$(
            (concat!("/kubebind.v1alpha2.", $service, "/", $method), stringify!($request), stringify!($response)),
        )+];
    };
}

methods! {
    GET_PROVIDER = "ProviderService" "GetProvider" (GetProviderRequest) -> GetProviderResponse;
    GET_CALLER = "ProviderService" "GetCaller" (GetCallerRequest) -> GetCallerResponse;
    LIST_TEMPLATES = "CatalogService" "ListTemplates" (ListTemplatesRequest) -> ListTemplatesResponse;
    GET_TEMPLATE = "CatalogService" "GetTemplate" (GetTemplateRequest) -> GetTemplateResponse;
    LIST_COLLECTIONS = "CatalogService" "ListCollections" (ListCollectionsRequest) -> ListCollectionsResponse;
    GET_COLLECTION = "CatalogService" "GetCollection" (GetCollectionRequest) -> GetCollectionResponse;
    CREATE_BINDABLE_RESOURCES_REQUEST = "BindingService" "CreateBindableResourcesRequest"
        (CreateBindableResourcesRequestRequest) -> CreateBindableResourcesRequestResponse;
    GET_BINDABLE_RESOURCES_REQUEST = "BindingService" "GetBindableResourcesRequest"
        (GetBindableResourcesRequestRequest) -> GetBindableResourcesRequestResponse;
    LIST_BINDABLE_RESOURCES_REQUESTS = "BindingService" "ListBindableResourcesRequests"
        (ListBindableResourcesRequestsRequest) -> ListBindableResourcesRequestsResponse;
    WATCH_BINDABLE_RESOURCES_REQUESTS = "BindingService" "WatchBindableResourcesRequests"
        (WatchBindableResourcesRequestsRequest) -> WatchBindableResourcesRequestsResponse;
    DELETE_BINDABLE_RESOURCES_REQUEST = "BindingService" "DeleteBindableResourcesRequest"
        (DeleteBindableResourcesRequestRequest) -> DeleteBindableResourcesRequestResponse;
    LIST_EXPORTS = "ExportService" "ListExports" (ListExportsRequest) -> ListExportsResponse;
    GET_EXPORT = "ExportService" "GetExport" (GetExportRequest) -> GetExportResponse;
    WATCH_EXPORTS = "ExportService" "WatchExports" (WatchExportsRequest) -> WatchExportsResponse;
    GET_BOUND_SCHEMA = "ExportService" "GetBoundSchema" (GetBoundSchemaRequest) -> GetBoundSchemaResponse;
    DELETE_EXPORT = "ExportService" "DeleteExport" (DeleteExportRequest) -> DeleteExportResponse;
    RENEW_KUBECONFIG = "CredentialService" "RenewKubeconfig" (RenewKubeconfigRequest) -> RenewKubeconfigResponse;
    REVOKE_CREDENTIALS = "CredentialService" "RevokeCredentials" (RevokeCredentialsRequest) -> RevokeCredentialsResponse;
    LIST_CONTRACTS = "ContractService" "ListContracts" (ListContractsRequest) -> ListContractsResponse;
    GET_CONTRACT = "ContractService" "GetContract" (GetContractRequest) -> GetContractResponse;
    WATCH_CONTRACTS = "ContractService" "WatchContracts" (WatchContractsRequest) -> WatchContractsResponse;
    SHARE_CONTRACT = "ContractService" "ShareContract" (ShareContractRequest) -> ShareContractResponse;
    REVOKE_CONTRACT = "ContractService" "RevokeContract" (RevokeContractRequest) -> RevokeContractResponse;
    UNBIND_CONTRACT = "ContractService" "UnbindContract" (UnbindContractRequest) -> UnbindContractResponse;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_declared_with_its_own_messages() {
        let mut declared: Vec<_> = DECLARED.iter().map(|(path, ..)| *path).collect();
        declared.sort_unstable();
        assert!(declared.iter().copied().eq(idempotency::method_paths()), "{declared:?}");
        for (path, request, response) in DECLARED {
            let (_, name) = path.rsplit_once('/').expect("a path");
            assert_eq!(*request, format!("{name}Request"));
            assert_eq!(*response, format!("{name}Response"));
        }
    }

    #[test]
    fn only_get_provider_is_open() {
        assert!(all::GET_PROVIDER.is_open());
        assert!(!all::LIST_TEMPLATES.is_open());
        assert!(!all::RENEW_KUBECONFIG.is_idempotent());
    }
}
