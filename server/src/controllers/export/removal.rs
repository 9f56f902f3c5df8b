//! The end of an export: its rights go, what is left of its objects is let go, and then all that was made for it.

use bindery_api::{
    names,
    v1alpha2::{
        APIServiceExport, APIServiceExportRequest, APIServiceNamespace, BindableResourcesRequest, BoundSchema, Phase,
    },
};
use bindery_runtime::cache::Cache;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::{Api, Resource, ResourceExt as _, core::NamespaceResourceScope};
use serde::de::DeserializeOwned;

use super::{
    Exports,
    deletion::{self, Deletion},
    is_for, is_labelled,
};
use crate::{
    controllers::{Next, request},
    owner, rbac, remaining,
    state::State,
    writes::{self, WriteError},
};

/// Deletions that run at a time.
const CONCURRENT: usize = 8;

impl Exports {
    pub(super) async fn delete(&self, export: &APIServiceExport) -> Result<Next, WriteError> {
        let Some(Deletion { take_all, patch }) = deletion::plan(export) else {
            return Ok(Next::Change);
        };
        let state = &self.context.state;
        if take_all && let Err(error) = self.take_all(export).await {
            self.explain(export, &error).await?;
            return Err(error);
        }
        let api: Api<APIServiceExport> =
            Api::namespaced(state.clients.write.clone(), &export.namespace().unwrap_or_default());
        writes::merge(&api, &export.name_any(), &patch).await?;
        Ok(Next::Change)
    }

    async fn take_all(&self, export: &APIServiceExport) -> Result<(), WriteError> {
        let state = &self.context.state;
        let contract = export.namespace().unwrap_or_default();
        self.take_rights(&contract, &export.name_any()).await?;
        // After the rights, for what is still being written would not be counted.
        let remaining = remaining::remaining_objects(state, export).await?;
        remaining::release(state, &contract, &remaining).await?;
        remaining::withdraw(state, export).await?;
        self.take_rest(export).await
    }

    pub(super) async fn take_rights(&self, contract: &str, name: &str) -> Result<(), WriteError> {
        let state = &self.context.state;
        let made = &self.context.made;
        delete_made::<RoleBinding>(state, &made.role_bindings, contract, name).await?;
        delete_made::<Role>(state, &made.roles, contract, name).await?;
        // By name and not by cache, which may not have seen yet what was made a moment ago.
        let client = || state.clients.write.clone();
        let role = names::resources_role(name);
        delete_named::<RoleBinding>(Api::namespaced(client(), contract), &role, contract, name).await?;
        delete_named::<Role>(Api::namespaced(client(), contract), &role, contract, name).await?;
        for role in [
            names::claims_cluster_role(contract, name),
            names::resources_cluster_role(contract, name),
        ] {
            delete_named::<ClusterRoleBinding>(Api::all(client()), &role, contract, name).await?;
            delete_named::<ClusterRole>(Api::all(client()), &role, contract, name).await?;
        }
        Ok(())
    }

    /// Removes what else was made for an export. Schemas and mapped namespaces would go with it by their owner references
    /// too, but the garbage collector learns of new kinds only every half a minute.
    async fn take_rest(&self, export: &APIServiceExport) -> Result<(), WriteError> {
        let state = &self.context.state;
        let client = || state.clients.write.clone();
        let (contract, name) = (export.namespace().unwrap_or_default(), export.name_any());
        if let Some(request) = state.caches.export_requests.get(&contract, &name) {
            let api: Api<APIServiceExportRequest> = Api::namespaced(client(), &contract);
            writes::delete(&api, &name, request.metadata.uid.as_deref()).await?;
        }
        for schema in state.caches.bound_schemas.list_in(&contract) {
            if owner::is_alone(&*schema, export.metadata.uid.as_deref()) {
                let api: Api<BoundSchema> = Api::namespaced(client(), &contract);
                writes::delete_seen(&api, &*schema).await?;
            }
        }
        for namespace in state.caches.service_namespaces.list_in(&contract) {
            if owner::is_alone(&*namespace, export.metadata.uid.as_deref()) {
                let api: Api<APIServiceNamespace> = Api::namespaced(client(), &contract);
                writes::delete_seen(&api, &*namespace).await?;
            }
        }
        for request in state
            .caches
            .requests
            .list(|request| is_record_of(request, &state.settings.namespace, &contract, &name))
        {
            let api: Api<BindableResourcesRequest> = Api::namespaced(client(), &state.settings.namespace);
            writes::delete_seen(&api, &*request).await?;
        }
        Ok(())
    }
}

async fn delete_made<K>(state: &State, cache: &Cache<K>, contract: &str, export: &str) -> Result<(), WriteError>
where
    K: writes::Object + Resource<Scope = NamespaceResourceScope> + DeserializeOwned + Send + Sync + 'static,
{
    let label = rbac::export_label(export);
    let made = cache.list(|object| is_labelled(object, contract, &label)).into_iter();
    let deletions = made.map(|object| {
        let api: Api<K> = Api::namespaced(state.clients.write.clone(), &object.namespace().unwrap_or_default());
        async move { writes::delete(&api, &object.name_any(), object.meta().uid.as_deref()).await }
    });
    stream::iter(deletions).buffer_unordered(CONCURRENT).try_collect().await
}

async fn delete_named<K>(api: Api<K>, object: &str, contract: &str, export: &str) -> Result<(), WriteError>
where
    K: writes::Object,
{
    match api.get_opt(object).await? {
        Some(found) if is_for(&found, contract, export) => {
            writes::delete(&api, object, found.meta().uid.as_deref()).await
        }
        _ => Ok(()),
    }
}

/// Whether a request is the record of the call that made an export. One that is pending waits to make it anew.
fn is_record_of(request: &BindableResourcesRequest, home: &str, contract: &str, export: &str) -> bool {
    request
        .status
        .as_ref()
        .is_some_and(|status| status.phase != Phase::Pending && status.namespace.as_deref() == Some(contract))
        && request::is_grpc(request, home)
        && request::request_name(request) == export
}
