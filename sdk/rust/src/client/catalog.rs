//! Methods of ProviderService and CatalogService: the provider, who the caller is to it, and the templates that it offers.

use bindery_proto::v1alpha2::{
    Caller, Collection, GetCallerRequest, GetCollectionRequest, GetProviderRequest, GetTemplateRequest,
    ListCollectionsRequest, ListTemplatesRequest, Provider, Template, TemplateSchema,
};

use super::Client;
use crate::error::Error;
use crate::{method::all as methods, page};

/// A template with the APIs that it installs on a consumer.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateDetails {
    /// The template.
    pub template: Template,
    /// The APIs that it installs.
    pub schemas: Vec<TemplateSchema>,
}

impl Client {
    /// Returns the provider and how to log in. The call needs no token.
    pub async fn get_provider(&self) -> Result<Provider, Error> {
        let answer = self.call(methods::GET_PROVIDER, GetProviderRequest {}).await?;
        answer.provider.ok_or_else(|| self.missing("provider"))
    }

    /// Returns who the caller is to the provider: its user, its groups, and how long its token is valid.
    pub async fn get_caller(&self) -> Result<Caller, Error> {
        let answer = self.call(methods::GET_CALLER, GetCallerRequest {}).await?;
        answer.caller.ok_or_else(|| self.missing("caller"))
    }

    /// Returns all templates that the caller may bind, from `page_token` on.
    pub async fn list_templates(&self, request: ListTemplatesRequest) -> Result<Vec<Template>, Error> {
        let page = async |page_token| {
            let request = ListTemplatesRequest {
                page_token,
                ..request.clone()
            };
            let answer = self.call(methods::LIST_TEMPLATES, request).await?;
            Ok((answer.templates, answer.next_page_token))
        };
        page::all(self.address(), request.page_token.clone(), page).await
    }

    /// Returns one template with the APIs that it installs.
    pub async fn get_template(&self, name: &str) -> Result<TemplateDetails, Error> {
        let request = GetTemplateRequest { name: name.to_owned() };
        let answer = self.call(methods::GET_TEMPLATE, request).await?;
        let template = answer.template.ok_or_else(|| self.missing("template"))?;
        Ok(TemplateDetails {
            template,
            schemas: answer.schemas,
        })
    }

    /// Returns all collections that hold a template which the caller may bind, from `page_token` on.
    pub async fn list_collections(&self, request: ListCollectionsRequest) -> Result<Vec<Collection>, Error> {
        let page = async |page_token| {
            let request = ListCollectionsRequest {
                page_token,
                ..request.clone()
            };
            let answer = self.call(methods::LIST_COLLECTIONS, request).await?;
            Ok((answer.collections, answer.next_page_token))
        };
        page::all(self.address(), request.page_token.clone(), page).await
    }

    /// Returns one collection.
    pub async fn get_collection(&self, name: &str) -> Result<Collection, Error> {
        let request = GetCollectionRequest { name: name.to_owned() };
        let answer = self.call(methods::GET_COLLECTION, request).await?;
        answer.collection.ok_or_else(|| self.missing("collection"))
    }

    /// Makes the error for a response without its main field.
    pub(crate) fn missing(&self, what: &str) -> Error {
        Error::protocol(self.address(), format!("an answer has no {what}"))
    }
}
