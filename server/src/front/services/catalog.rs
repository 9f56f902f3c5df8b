//! CatalogService: the templates and collections that the caller may bind.

use std::sync::Arc;

use bindery_api::{names::TemplateName, v1alpha2 as api};
use bindery_proto::v1alpha2::{
    Collection, ErrorReason, GetCollectionRequest, GetCollectionResponse, GetTemplateRequest, GetTemplateResponse,
    ListCollectionsRequest, ListCollectionsResponse, ListTemplatesRequest, ListTemplatesResponse,
    catalog_service_server::CatalogService,
};
use kube::ResourceExt as _;
use tonic::{Request, Response, Status};

use crate::front::{
    Failure, Front, Outcome,
    auth::Caller,
    transport::interceptor::Call,
    wire::{
        convert::{collection, template},
        page::Page,
        validate::{GetCollection, GetTemplate, ListCollections, ListTemplates},
    },
};
use crate::template::schema;

#[derive(Debug)]
pub(crate) struct Service(pub(crate) Arc<Front>);

#[tonic::async_trait]
impl CatalogService for Service {
    async fn list_templates(
        &self,
        request: Request<ListTemplatesRequest>,
    ) -> Result<Response<ListTemplatesResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.list_templates(call.caller()?, message).await?))
    }

    async fn get_template(
        &self,
        request: Request<GetTemplateRequest>,
    ) -> Result<Response<GetTemplateResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.get_template(call.caller()?, message).await?))
    }

    async fn list_collections(
        &self,
        request: Request<ListCollectionsRequest>,
    ) -> Result<Response<ListCollectionsResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.list_collections(call.caller()?, message).await?))
    }

    async fn get_collection(
        &self,
        request: Request<GetCollectionRequest>,
    ) -> Result<Response<GetCollectionResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.get_collection(call.caller()?, message).await?))
    }
}

impl Front {
    async fn list_templates(&self, caller: &Caller, message: ListTemplates) -> Outcome<ListTemplatesResponse> {
        let collection = message.collection.as_deref();
        let arguments = ["templates", message.selector.as_str(), collection.unwrap_or_default()];
        let page = Page::read(&message.page, &arguments)?;
        let members = collection.map(|name| {
            let collection = self.state.caches.collections.get("", name);
            collection.map_or_else(Vec::new, |collection| template_names(&collection))
        });
        let is_member = |name: &String| members.as_ref().is_none_or(|members| members.contains(name));
        let found = self.state.caches.templates.list(|template| {
            template.metadata.name.as_ref().is_some_and(is_member) && message.selector.matches(template.labels())
        });
        let filled = page
            .fill(by_name(found), |found| async move {
                let grant = self.templates.grant(caller, &found.name_any()).await?;
                Ok(grant.map(|grant| template::template(&found, &grant)))
            })
            .await?;
        Ok(ListTemplatesResponse {
            templates: filled.entries,
            next_page_token: filled.next_page_token,
        })
    }

    async fn get_template(&self, caller: &Caller, message: GetTemplate) -> Outcome<GetTemplateResponse> {
        let grant = self.templates.require_bind(caller, &message.name).await?;
        let found = self.template(&message.name)?;
        let settings = &self.state.settings;
        let resources = found.spec.resources.iter();
        let (definitions, scope) = (&self.state.caches.definitions, Some(found.spec.scope));
        let schemas = resources
            .filter_map(|resource| schema(resource, definitions, settings.informer_scope, scope).ok())
            .map(|schema| template::schema(&schema))
            .collect();
        Ok(GetTemplateResponse {
            template: Some(template::template(&found, &grant)),
            schemas,
        })
    }

    /// The template of that name.
    pub(crate) fn template(&self, name: &TemplateName) -> Outcome<Arc<api::APIServiceExportTemplate>> {
        self.state.caches.templates.get("", name).ok_or_else(|| {
            Failure::new(ErrorReason::TemplateNotFound, format!("template {name} does not exist"))
                .with("template", &**name)
        })
    }

    async fn list_collections(&self, caller: &Caller, message: ListCollections) -> Outcome<ListCollectionsResponse> {
        let page = Page::read(&message.page, &["collections", message.selector.as_str()])?;
        let found = self
            .state
            .caches
            .collections
            .list(|collection| message.selector.matches(collection.labels()));
        let filled = page
            .fill(
                by_name(found),
                |found| async move { self.visible(caller, &found).await },
            )
            .await?;
        Ok(ListCollectionsResponse {
            collections: filled.entries,
            next_page_token: filled.next_page_token,
        })
    }

    async fn get_collection(&self, caller: &Caller, message: GetCollection) -> Outcome<GetCollectionResponse> {
        let name = &*message.name;
        let visible = match self.state.caches.collections.get("", name) {
            Some(found) => self.visible(caller, &found).await?,
            None => None,
        };
        let collection = visible.ok_or_else(|| {
            let message = format!("collection {name} does not exist, or you may bind none of its templates");
            Failure::new(ErrorReason::CollectionNotFound, message).with("collection", name)
        })?;
        Ok(GetCollectionResponse {
            collection: Some(collection),
        })
    }

    /// The collection with those of its templates that exist and that the caller may bind; none if there is no such template.
    async fn visible(&self, caller: &Caller, found: &api::Collection) -> Outcome<Option<Collection>> {
        let mut templates = Vec::new();
        for name in template_names(found) {
            if self.state.caches.templates.get("", &name).is_some() && self.templates.may_bind(caller, &name).await? {
                templates.push(api::NameRef::new(name));
            }
        }
        Ok((!templates.is_empty()).then(|| collection::collection(found, &templates)))
    }
}

/// The names of the templates of a collection, whether they exist or not.
fn template_names(collection: &api::Collection) -> Vec<String> {
    collection
        .spec
        .templates
        .iter()
        .map(|template| template.name.clone())
        .collect()
}

fn by_name<K: kube::Resource>(objects: Vec<Arc<K>>) -> Vec<(String, Arc<K>)> {
    let mut named: Vec<_> = objects.into_iter().map(|object| (object.name_any(), object)).collect();
    named.sort_by(|(one, _), (other, _)| one.cmp(other));
    named
}
