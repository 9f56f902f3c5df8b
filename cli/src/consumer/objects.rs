//! Objects of any kind of the consumer cluster, and the Events about them.

use bindery_api::{names, v1alpha2::GroupResource};
use bindery_runtime::errors;
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
    core::discovery::v2::APIGroupDiscoveryList,
};

use super::{
    Consumer, again,
    kinds::{self, kinds},
};
use crate::{errors::Failure, provider::contract::PAGE};

impl Consumer {
    /// The kinds that this cluster serves, from aggregated discovery.
    pub(crate) async fn kinds(&self) -> Result<[APIGroupDiscoveryList; 2], Failure> {
        let client = self.client();
        let (core, others) = tokio::try_join!(
            again(async || client.list_core_api_versions_aggregated().await),
            again(async || client.list_api_groups_aggregated().await),
        )
        .map_err(Failure::cluster("list the APIs that this cluster serves"))?;
        Ok([core, others])
    }

    /// Reads an object of any kind; none if it does not exist. An empty namespace is that of cluster-scoped objects.
    pub(crate) async fn object(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<DynamicObject>, Failure> {
        let api = self.objects(resource, namespace);
        let found = again(async || api.get_opt(name).await).await;
        found.map_err(Failure::cluster(format!("read {} {name}", resource.kind)))
    }

    /// Lists the objects of a resource in a namespace; an empty namespace is the whole cluster. Fails if there are more than
    /// `max`.
    pub(crate) async fn all(
        &self,
        resource: &ApiResource,
        namespace: &str,
        max: u32,
    ) -> Result<Vec<DynamicObject>, Failure> {
        let api = self.objects(resource, namespace);
        let params = ListParams::default().limit(max);
        let doing = format!("list {}", resource.plural);
        let listed = again(async || api.list(&params).await).await;
        let listed = listed.map_err(Failure::cluster(doing))?;
        match listed.metadata.continue_.as_deref() {
            None | Some("") => Ok(listed.items),
            Some(_) => Err(Failure::TooMany {
                resource: resource.plural.clone(),
                max,
            }),
        }
    }

    /// Lists the objects of a resource in all namespaces; none where the resource is not served.
    pub(crate) async fn everywhere(&self, resource: &ApiResource) -> Result<Vec<DynamicObject>, Failure> {
        let api = self.objects(resource, "");
        let mut params = ListParams::default().limit(PAGE);
        let mut all = Vec::new();
        loop {
            match again(async || api.list(&params).await).await {
                Ok(page) => {
                    all.extend(page.items);
                    match page.metadata.continue_ {
                        Some(token) if !token.is_empty() => params = params.continue_token(&token),
                        _ => return Ok(all),
                    }
                }
                Err(error) if errors::is_not_found(&error) => return Ok(all),
                Err(error) => return Err(Failure::cluster(format!("list {}", resource.plural))(error)),
            }
        }
    }

    /// Counts the objects of a resource that a CustomResourceDefinition defines, by one small request; none where it is not served.
    pub(crate) async fn count(&self, resource: &GroupResource) -> Result<u64, Failure> {
        let name = names::custom_resource_definition(&resource.resource, &resource.group);
        let Some(api) = self.definition(&name).await?.as_ref().and_then(kinds::served_resource) else {
            return Ok(0);
        };
        let api = self.objects(&api, "");
        match again(async || api.list_metadata(&ListParams::default().limit(1)).await).await {
            Ok(page) => {
                let rest = page.metadata.remaining_item_count.unwrap_or_default();
                Ok(u64::try_from(rest).unwrap_or_default() + u64::try_from(page.items.len()).unwrap_or_default())
            }
            Err(error) if errors::is_not_found(&error) => Ok(0),
            Err(error) => Err(Failure::cluster(format!("count {resource}"))(error)),
        }
    }

    /// Lists the objects of all kinds in a namespace, save Events.
    pub(crate) async fn in_namespace(&self, namespace: &str) -> Result<Vec<(ApiResource, DynamicObject)>, Failure> {
        let mut found = Vec::new();
        for kind in kinds(self.kinds().await?) {
            if !kind.namespaced || !kind.stored || kind.name == "Event" {
                continue;
            }
            let resource = kind.api();
            let api = self.objects(&resource, namespace);
            match again(async || api.list(&ListParams::default()).await).await {
                Ok(list) => found.extend(list.items.into_iter().map(|object| (resource.clone(), object))),
                // The kind is not served any more.
                Err(error) if errors::is_not_found(&error) => {}
                Err(error) => {
                    let doing = format!("list {} in namespace {namespace}", resource.plural);
                    return Err(Failure::cluster(doing)(error));
                }
            }
        }
        Ok(found)
    }

    /// The Events of a namespace that match a field selector.
    pub(crate) async fn events(&self, namespace: &str, fields: &str) -> Result<Vec<Event>, Failure> {
        let api = Api::<Event>::namespaced(self.client(), namespace);
        let params = ListParams::default().fields(fields);
        let events = again(async || api.list(&params).await).await;
        let events = events.map_err(Failure::cluster(format!("list Events in namespace {namespace}")))?;
        Ok(events.items)
    }

    pub(super) fn objects(&self, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        match namespace {
            "" => Api::all_with(self.client(), resource),
            _ => Api::namespaced_with(self.client(), namespace, resource),
        }
    }
}
