//! CatalogService: what the caller may bind, and nothing else.

use std::sync::Arc;

use bindery_api::v1alpha2 as api;
use bindery_proto::v1alpha2::{
    Collection, ErrorReason, GetCollectionRequest, GetCollectionResponse, GetTemplateRequest, GetTemplateResponse,
    ListCollectionsRequest, ListCollectionsResponse, ListTemplatesRequest, ListTemplatesResponse,
    catalog_service_server::CatalogService,
};
use kube::ResourceExt as _;
use tonic::{Request, Response, Status};

use super::{
    Front,
    auth::Caller,
    convert::{collection, template},
    error::{Failure, Outcome},
    gate::Call,
    page::Page,
    selector::LabelSelector,
    validate::{Validate as _, object_name},
};
use crate::template::schema;

#[derive(Debug)]
pub(super) struct Service(pub(super) Arc<Front>);

#[tonic::async_trait]
impl CatalogService for Service {
    async fn list_templates(
        &self,
        request: Request<ListTemplatesRequest>,
    ) -> Result<Response<ListTemplatesResponse>, Status> {
        let call = Call::of(&request)?;
        Ok(Response::new(
            self.0.list_templates(call.caller()?, request.get_ref()).await?,
        ))
    }

    async fn get_template(
        &self,
        request: Request<GetTemplateRequest>,
    ) -> Result<Response<GetTemplateResponse>, Status> {
        let call = Call::of(&request)?;
        Ok(Response::new(
            self.0.get_template(call.caller()?, &request.get_ref().name).await?,
        ))
    }

    async fn list_collections(
        &self,
        request: Request<ListCollectionsRequest>,
    ) -> Result<Response<ListCollectionsResponse>, Status> {
        let call = Call::of(&request)?;
        Ok(Response::new(
            self.0.list_collections(call.caller()?, request.get_ref()).await?,
        ))
    }

    async fn get_collection(
        &self,
        request: Request<GetCollectionRequest>,
    ) -> Result<Response<GetCollectionResponse>, Status> {
        let call = Call::of(&request)?;
        Ok(Response::new(
            self.0.get_collection(call.caller()?, &request.get_ref().name).await?,
        ))
    }
}

impl Front {
    async fn list_templates(&self, caller: &Caller, message: &ListTemplatesRequest) -> Outcome<ListTemplatesResponse> {
        message.validate()?;
        let arguments = ["templates", &message.label_selector, &message.collection];
        let page = Page::read(message.page_size, &message.page_token, &arguments)?;
        let selector = selector(&message.label_selector)?;
        let members = match message.collection.as_str() {
            "" => None,
            name => Some(
                self.state
                    .caches
                    .collections
                    .get("", name)
                    .map_or_else(Vec::new, |collection| members(&collection)),
            ),
        };
        let is_member = |name: &str| {
            members
                .as_ref()
                .is_none_or(|members| members.iter().any(|member| member == name))
        };
        let found = self.state.caches.templates.list(|template| {
            template.metadata.name.as_deref().is_some_and(is_member) && selector.matches(template.labels())
        });
        let filled = page
            .fill(by_name(found), |found| async move {
                let shown = self.templates.may_bind(caller, &found.name_any()).await?;
                Ok(shown.then(|| template::template(&found)))
            })
            .await?;
        Ok(ListTemplatesResponse {
            templates: filled.entries,
            next_page_token: filled.next_page_token,
        })
    }

    async fn get_template(&self, caller: &Caller, name: &str) -> Outcome<GetTemplateResponse> {
        object_name("name", name)?;
        self.templates.require_bind(caller, name).await?;
        let found = self.template(name)?;
        let settings = &self.state.settings;
        let resources = found.spec.resources.iter();
        let (definitions, scope) = (&self.state.caches.definitions, Some(found.spec.scope));
        let schemas = resources
            .filter_map(|resource| schema(resource, definitions, settings.informer_scope, scope).ok())
            .map(|schema| template::schema(&schema))
            .collect();
        Ok(GetTemplateResponse {
            template: Some(template::template(&found)),
            schemas,
        })
    }

    /// A template that the caller may bind.
    pub(super) fn template(&self, name: &str) -> Outcome<Arc<api::APIServiceExportTemplate>> {
        self.state.caches.templates.get("", name).ok_or_else(|| {
            Failure::new(ErrorReason::TemplateNotFound, format!("template {name} does not exist"))
                .with("template", name)
        })
    }

    async fn list_collections(
        &self,
        caller: &Caller,
        message: &ListCollectionsRequest,
    ) -> Outcome<ListCollectionsResponse> {
        message.validate()?;
        let page = Page::read(
            message.page_size,
            &message.page_token,
            &["collections", &message.label_selector],
        )?;
        let selector = selector(&message.label_selector)?;
        let found = self
            .state
            .caches
            .collections
            .list(|collection| selector.matches(collection.labels()));
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

    async fn get_collection(&self, caller: &Caller, name: &str) -> Outcome<GetCollectionResponse> {
        object_name("name", name)?;
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

    /// A collection with those of its templates that exist and that the caller may bind; nothing if there are none.
    async fn visible(&self, caller: &Caller, found: &api::Collection) -> Outcome<Option<Collection>> {
        let mut templates = Vec::new();
        for name in members(found) {
            if self.state.caches.templates.get("", &name).is_some() && self.templates.may_bind(caller, &name).await? {
                templates.push(api::NameRef::new(name));
            }
        }
        Ok((!templates.is_empty()).then(|| collection::collection(found, &templates)))
    }
}

fn members(collection: &api::Collection) -> Vec<String> {
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

/// A selector that was validated.
pub(super) fn selector(text: &str) -> Outcome<LabelSelector> {
    LabelSelector::parse(text).map_err(Failure::internal)
}
