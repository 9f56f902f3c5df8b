//! One contract on the provider's API server, read with the credential of a binding. Nothing is written there.

use std::{sync::Arc, time::Duration};

use bindery_api::{
    names,
    v1alpha2::{APIServiceExport, APIServiceNamespace, BoundSchema, GroupResource},
};
use bindery_runtime::{
    client::{Clients, SharedToken},
    errors,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::kubeconfig::Credential;

/// The most objects in one page of a list.
pub(crate) const PAGE: u32 = 500;
/// Idle connections that are kept open.
const IDLE_MAX: usize = 2;
/// The longest wait for an answer. After it, the command goes on and reports the rest as unknown.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A contract, read with the newest credential of a binding. Errors are texts, because they become part of a report.
pub(crate) struct Contract {
    client: Client,
    /// URL of the provider's API server.
    pub(crate) server: String,
    /// The contract namespace.
    pub(crate) name: Arc<str>,
}

impl Contract {
    /// Opens the contract of a credential, without a request. An error says why that is not possible.
    pub(crate) fn open(credential: Credential) -> Result<Self, String> {
        let access = credential.access;
        let clients = match &access.token {
            None => Clients::new(&access.config, IDLE_MAX),
            Some(token) => {
                SharedToken::new(token).and_then(|token| Clients::with_token(&access.config, IDLE_MAX, &token))
            }
        };
        Ok(Self {
            client: clients.map_err(|error| error.to_string())?.write,
            server: access.server(),
            name: access.namespace,
        })
    }

    /// Reads an export of the contract; none if it does not exist.
    pub(crate) async fn export(&self, name: &str) -> Result<Option<APIServiceExport>, String> {
        self.read(Api::namespaced(self.client.clone(), &self.name), name).await
    }

    /// Reads the APIServiceNamespace of a consumer's namespace; none if it does not exist.
    pub(crate) async fn place(&self, namespace: &str) -> Result<Option<APIServiceNamespace>, String> {
        self.read(Api::namespaced(self.client.clone(), &self.name), namespace)
            .await
    }

    /// Lists the APIServiceNamespaces of the contract.
    pub(crate) async fn places(&self) -> Result<Vec<APIServiceNamespace>, String> {
        self.list(
            &Api::namespaced(self.client.clone(), &self.name),
            "APIServiceNamespaces",
        )
        .await
    }

    /// Reads the BoundSchema of an exported resource; none if it does not exist.
    pub(crate) async fn schema(&self, resource: &GroupResource) -> Result<Option<BoundSchema>, String> {
        self.read(
            Api::namespaced(self.client.clone(), &self.name),
            &names::bound_schema(resource),
        )
        .await
    }

    /// Lists the objects of a resource in a provider namespace; an empty namespace is the whole cluster.
    pub(crate) async fn objects(&self, resource: &ApiResource, namespace: &str) -> Result<Vec<DynamicObject>, String> {
        let api = match namespace {
            "" => Api::all_with(self.client.clone(), resource),
            _ => Api::namespaced_with(self.client.clone(), namespace, resource),
        };
        self.list(&api, &resource.plural).await
    }

    /// Reads an object of any kind; none if it does not exist. An empty namespace is that of cluster-scoped objects.
    pub(crate) async fn object(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<DynamicObject>, String> {
        let api = match namespace {
            "" => Api::all_with(self.client.clone(), resource),
            _ => Api::namespaced_with(self.client.clone(), namespace, resource),
        };
        self.read(api, name).await
    }

    async fn list<K>(&self, api: &Api<K>, what: &str) -> Result<Vec<K>, String>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let mut params = ListParams::default().limit(PAGE);
        let mut all = Vec::new();
        loop {
            let page = match timeout(ANSWER_MAX, api.list(&params)).await {
                Ok(Ok(page)) => page,
                Ok(Err(error)) => return Err(format!("cannot list {what}: {}", errors::explain(&error))),
                Err(_) => return Err(silent()),
            };
            all.extend(page.items);
            match page.metadata.continue_ {
                Some(token) if !token.is_empty() => params = params.continue_token(&token),
                _ => return Ok(all),
            }
        }
    }

    async fn read<K>(&self, api: Api<K>, name: &str) -> Result<Option<K>, String>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        match timeout(ANSWER_MAX, api.get(name)).await {
            Ok(Ok(object)) => Ok(Some(object)),
            Ok(Err(error)) if errors::is_object_gone(&error, name) => Ok(None),
            Ok(Err(error)) => Err(errors::explain(&error)),
            Err(_) => Err(silent()),
        }
    }
}

fn silent() -> String {
    format!("the provider did not answer within {} s", ANSWER_MAX.as_secs())
}

impl std::fmt::Debug for Contract {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contract")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
