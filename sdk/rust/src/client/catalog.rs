//! Methods of ProviderService and CatalogService: the provider, who the caller is to it, and the templates that it offers.

use bindery_proto::v1alpha2::{
    Caller, Collection, GetCallerRequest, GetCollectionRequest, GetProviderRequest, GetTemplateRequest,
    ListCollectionsRequest, ListTemplatesRequest, Provider, Template, TemplateSchema,
};

use super::Client;
use crate::error::Error;
use crate::method::all as methods;
use crate::page::ListStream;

/// A template with the APIs that it installs on a consumer.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateDetails {
    /// The template as its list returns it.
    pub template: Template,
    /// The APIs that it installs.
    pub schemas: Vec<TemplateSchema>,
}

impl Client {
    /// Returns the provider and how to log in. The call needs no token.
    pub async fn get_provider(&self) -> Result<Provider, Error> {
        let response = self.call(methods::GET_PROVIDER, GetProviderRequest {}).await?;
        response.provider.ok_or_else(|| self.missing("provider"))
    }

    /// Returns who the caller is to the provider: its user, its groups, and how long its token is valid.
    pub async fn get_caller(&self) -> Result<Caller, Error> {
        let response = self.call(methods::GET_CALLER, GetCallerRequest {}).await?;
        response.caller.ok_or_else(|| self.missing("caller"))
    }

    /// Lists all templates that the caller may bind, from `page_token` on.
    pub fn list_templates(&self, request: ListTemplatesRequest) -> ListStream<Template> {
        self.list(methods::LIST_TEMPLATES, request, |page| {
            (page.templates, page.next_page_token)
        })
    }

    /// Returns one template with the APIs that it installs.
    pub async fn get_template(&self, name: &str) -> Result<TemplateDetails, Error> {
        let request = GetTemplateRequest { name: name.to_owned() };
        let response = self.call(methods::GET_TEMPLATE, request).await?;
        let template = response.template.ok_or_else(|| self.missing("template"))?;
        Ok(TemplateDetails {
            template,
            schemas: response.schemas,
        })
    }

    /// Lists all collections that hold a template which the caller may bind, from `page_token` on.
    pub fn list_collections(&self, request: ListCollectionsRequest) -> ListStream<Collection> {
        self.list(methods::LIST_COLLECTIONS, request, |page| {
            (page.collections, page.next_page_token)
        })
    }

    /// Returns one collection.
    pub async fn get_collection(&self, name: &str) -> Result<Collection, Error> {
        let request = GetCollectionRequest { name: name.to_owned() };
        let response = self.call(methods::GET_COLLECTION, request).await?;
        response.collection.ok_or_else(|| self.missing("collection"))
    }

    /// Makes the error for a response without its main field.
    pub(crate) fn missing(&self, what: &str) -> Error {
        Error::protocol(self.address(), format!("a response has no {what}"))
    }
}
