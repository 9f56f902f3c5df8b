//! How the provider serves a resource of a contract, by the resource's CRD.

use std::sync::Arc;

use bindery_api::{
    crd, names,
    v1alpha2::{GroupResource, Scope},
    versions,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
};

use crate::{state::State, writes::WriteError};

/// A resource as the provider serves it, by scope.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ServedResource {
    Cluster(ApiResource),
    Namespaced(ApiResource),
}

/// The API of a resource in a namespace; `None` if there is no CRD for it. One that is no longer offered still counts.
pub(crate) async fn api(
    state: &State,
    resource: &GroupResource,
    namespace: &str,
) -> Result<Option<Api<DynamicObject>>, WriteError> {
    let served = ServedResource::find(state, resource).await?;
    Ok(served.map(|served| served.api(state, namespace)))
}

/// The API of a resource in all namespaces; `None` if there is no CRD for it.
pub(crate) async fn everywhere(
    state: &State,
    resource: &GroupResource,
) -> Result<Option<Api<DynamicObject>>, WriteError> {
    let served = ServedResource::find(state, resource).await?;
    Ok(
        served.map(|(ServedResource::Cluster(kind) | ServedResource::Namespaced(kind))| {
            Api::all_with(state.clients.write.clone(), &kind)
        }),
    )
}

// === impl ServedResource ===

impl ServedResource {
    /// A resource by its CRD; `None` if there is none. One that is no longer offered still counts.
    pub(super) async fn find(state: &State, resource: &GroupResource) -> Result<Option<Self>, WriteError> {
        if names::owner_of_group(&resource.group).is_some() {
            return Ok(None);
        }
        let name = names::custom_resource_definition(&resource.resource, &resource.group);
        let mut definition = state.caches.definitions.get("", &name);
        if definition.is_none() {
            let definitions: Api<CustomResourceDefinition> = Api::all(state.clients.write.clone());
            definition = definitions.get_opt(&name).await?.map(Arc::new);
        }
        Ok(definition.and_then(|definition| Self::of(&definition)))
    }

    pub(super) fn of(definition: &CustomResourceDefinition) -> Option<Self> {
        let spec = &definition.spec;
        let version = versions::preferred(spec.versions.iter().map(crd::listed))?;
        let kind = ApiResource {
            group: spec.group.clone(),
            version: version.to_owned(),
            api_version: format!("{}/{version}", spec.group),
            kind: spec.names.kind.clone(),
            plural: spec.names.plural.clone(),
        };
        Some(match Scope::from_name(&spec.scope)? {
            Scope::Cluster => Self::Cluster(kind),
            Scope::Namespaced => Self::Namespaced(kind),
        })
    }

    pub(super) fn is_cluster_scoped(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    pub(super) fn api(&self, state: &State, namespace: &str) -> Api<DynamicObject> {
        let client = state.clients.write.clone();
        match self {
            Self::Cluster(kind) => Api::all_with(client, kind),
            Self::Namespaced(kind) => Api::namespaced_with(client, namespace, kind),
        }
    }
}
