//! How the provider serves a resource, and where its objects are looked for.

use std::{fmt::Debug, sync::Arc};

use bindery_api::{crd, names, v1alpha2::GroupResource, versions};
use bindery_runtime::errors;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
    core::PartialObjectMeta,
};
use serde::de::DeserializeOwned;

use crate::{state::State, writes::WriteError};

const PAGE: u32 = 500;

/// Where to look.
pub(super) struct Area {
    /// For objects of namespaced resources.
    pub(super) namespaces: Vec<String>,
    /// Whether for objects of cluster-scoped resources too.
    pub(super) cluster: bool,
}

/// How the provider serves a resource.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Served {
    Cluster(ApiResource),
    Namespaced(ApiResource),
}

/// The metadata of all objects, page by page. What is not served has none.
pub(crate) async fn metadata<K>(api: &Api<K>, params: ListParams) -> Result<Vec<PartialObjectMeta<K>>, WriteError>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = params.limit(PAGE);
    let mut items = Vec::new();
    loop {
        let page = match api.list_metadata(&params).await {
            Ok(page) => page,
            Err(error) if errors::is_not_found(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        items.extend(page.items);
        match page.metadata.continue_ {
            Some(next) if !next.is_empty() => params = params.continue_token(&next),
            _ => return Ok(items),
        }
    }
}

/// Access to a resource by the CRD that serves it; `None` if there is none. One that is no longer offered still counts.
pub(crate) async fn api(
    state: &State,
    resource: &GroupResource,
    namespace: &str,
) -> Result<Option<Api<DynamicObject>>, WriteError> {
    let served = served(state, resource).await?;
    Ok(served.map(|served| served.api(state, namespace)))
}

/// How a resource is served, by its CRD; `None` if there is none. One that is no longer offered still counts.
pub(super) async fn served(state: &State, resource: &GroupResource) -> Result<Option<Served>, WriteError> {
    if names::owner_of_group(&resource.group).is_some() {
        return Ok(None);
    }
    let name = names::custom_resource_definition(&resource.resource, &resource.group);
    let mut definition = state.caches.definitions.get("", &name);
    if definition.is_none() {
        let definitions: Api<CustomResourceDefinition> = Api::all(state.clients.write.clone());
        definition = definitions.get_opt(&name).await?.map(Arc::new);
    }
    Ok(definition.and_then(|definition| Served::of(&definition)))
}

// === impl Served ===

impl Served {
    fn of(definition: &CustomResourceDefinition) -> Option<Self> {
        let spec = &definition.spec;
        let version = versions::preferred(spec.versions.iter().map(crd::listed))?;
        let kind = ApiResource {
            group: spec.group.clone(),
            version: version.to_owned(),
            api_version: format!("{}/{version}", spec.group),
            kind: spec.names.kind.clone(),
            plural: spec.names.plural.clone(),
        };
        Some(match spec.scope.as_str() {
            "Cluster" => Self::Cluster(kind),
            _ => Self::Namespaced(kind),
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

// === impl Area ===

impl Area {
    /// The namespaces to list a resource in: an empty one stands for the cluster's scope, which is listed once.
    pub(super) fn of(&self, served: &Served) -> &[String] {
        const CLUSTER: &[String] = &[String::new()];
        match served {
            Served::Cluster(_) if self.cluster => CLUSTER,
            Served::Cluster(_) => &[],
            Served::Namespaced(_) => &self.namespaces,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::tests::definition;

    #[track_caller]
    fn check_area(scope: &str, cluster: bool, expect: &[&str]) {
        let area = Area {
            namespaces: vec!["kube-bind-a-ranch".to_owned(), "kube-bind-a-town".to_owned()],
            cluster,
        };
        let served = Served::of(&definition("wildwest.dev", "sheriffs", scope)).unwrap();
        assert_eq!(area.of(&served), expect);
    }

    /// Or a cluster-scoped object would be counted for every namespace, and hold each of them up.
    #[test]
    fn cluster_scoped_objects_are_counted_once_and_in_no_namespace() {
        let both = ["kube-bind-a-ranch", "kube-bind-a-town"];
        check_area("Namespaced", true, &both);
        check_area("Namespaced", false, &both);
        check_area("Cluster", true, &[""]);
        check_area("Cluster", false, &[]);
    }
}
