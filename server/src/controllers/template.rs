//! Reports by condition `Ready` whether each template can be bound, and whether the templates of each collection exist.

use std::{sync::Arc, time::Duration};

use bindery_api::{
    Condition, Conditions as _,
    v1alpha2::{APIServiceExportTemplate, Collection},
};
use bindery_runtime::{cache::Cache, queue::Queue};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use serde_json::json;

use super::{Context, Next, Reconcile, Running};
use crate::{
    rights::RightsError,
    state::State,
    template::{self, Refusal},
    writes::{self, Write, WriteError},
};

mod plan;

/// How soon to look again at a template for which the server lacks rights. Rights by the aggregated role are seen at once; this
/// is for rights that the server gets in another way.
const LACKING: Duration = Duration::from_secs(30);

/// An object of the catalog, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CatalogKey {
    Template(Arc<str>),
    Collection(Arc<str>),
}

struct Catalog {
    state: State,
}

pub(super) fn start(context: &Context, running: &mut Running) {
    let queue = Queue::new();
    let caches = &context.state.caches;
    let collections = caches.collections.clone();
    running.watch(&caches.templates, &queue, move |change| {
        // A template that is created or deleted changes the collections that name it.
        let of = |collection: &Collection| {
            let mut names = collection.spec.templates.iter();
            names.any(|template| *template.name == *change.key.name)
        };
        let mut keys = vec![CatalogKey::Template(Arc::clone(&change.key.name))];
        if change.old.is_none() || change.new.is_none() {
            keys.extend(all(&collections, of).map(CatalogKey::Collection));
        }
        keys
    });
    running.watch(&caches.collections, &queue, |change| {
        Some(CatalogKey::Collection(Arc::clone(&change.key.name)))
    });
    let templates = caches.templates.clone();
    running.watch(&caches.definitions, &queue, move |change| {
        let definition = super::subject(change).cloned();
        let offers =
            |template: &APIServiceExportTemplate| definition.as_deref().is_some_and(|one| offers(template, one));
        all(&templates, offers).map(CatalogKey::Template).collect::<Vec<_>>()
    });
    for (resource, claimable) in caches.claimable.iter() {
        let (templates, resource) = (caches.templates.clone(), resource.clone());
        running.watch(claimable, &queue, move |_| {
            let claims = |template: &APIServiceExportTemplate| {
                let mut claims = template.spec.permission_claims.iter();
                claims.any(|claim| claim.group_resource == resource)
            };
            all(&templates, claims).map(CatalogKey::Template).collect::<Vec<_>>()
        });
    }
    let (templates, rights) = (caches.templates.clone(), context.state.rights.clone());
    running.watch(&caches.aggregated_role, &queue, move |_| {
        rights.forget();
        all(&templates, |_| true).map(CatalogKey::Template).collect::<Vec<_>>()
    });
    let catalog = Catalog {
        state: context.state.clone(),
    };
    running.work(catalog, &queue);
}

/// Whether a template names a CRD.
pub(super) fn offers(template: &APIServiceExportTemplate, definition: &CustomResourceDefinition) -> bool {
    template.spec.resources.iter().any(|resource| {
        resource.group_resource.group == definition.spec.group
            && resource.group_resource.resource == definition.spec.names.plural
    })
}

fn all<K>(cache: &Cache<K>, admit: impl Fn(&K) -> bool) -> impl Iterator<Item = Arc<str>>
where
    K: Resource + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let found = cache.list(admit).into_iter();
    found.filter_map(|object| object.meta().name.as_deref().map(Arc::from))
}

impl Reconcile for Catalog {
    type Key = CatalogKey;
    const NAME: &'static str = "template";
    const WORKERS: usize = 2;

    async fn reconcile(&self, key: &CatalogKey) -> Result<Next, WriteError> {
        match key {
            CatalogKey::Template(name) => self.template(name).await,
            CatalogKey::Collection(name) => self.collection(name).await,
        }
    }
}

impl Catalog {
    async fn template(&self, name: &str) -> Result<Next, WriteError> {
        let Some(template) = self.state.caches.templates.get("", name) else {
            return Ok(Next::Change);
        };
        let verdict = assess(&self.state, &template).await?;
        let lacking = matches!(verdict, Err(Refusal::ServerLacksRights { .. }));
        let conditions = template.conditions().to_vec();
        self.write(&*template, conditions, plan::template(&verdict)).await?;
        Ok(if lacking { Next::After(LACKING) } else { Next::Change })
    }

    async fn collection(&self, name: &str) -> Result<Next, WriteError> {
        let Some(collection) = self.state.caches.collections.get("", name) else {
            return Ok(Next::Change);
        };
        let exists = |template: &str| self.state.caches.templates.get("", template).is_some();
        let condition = plan::collection(&collection, exists);
        let conditions = collection.conditions().to_vec();
        self.write(&*collection, conditions, condition).await?;
        Ok(Next::Change)
    }

    async fn write<K>(&self, object: &K, mut conditions: Vec<Condition>, ready: Condition) -> Result<(), WriteError>
    where
        K: writes::Object,
    {
        if conditions.set_condition(ready, Timestamp::now()) {
            let write = Write::status("its readiness changed", object, &json!({ "conditions": conditions }));
            write.apply(&self.state.clients.write).await?;
        }
        Ok(())
    }
}

/// Assesses a template, and whether the server holds the rights that its export needs.
pub(super) async fn assess(
    state: &State,
    template: &APIServiceExportTemplate,
) -> Result<Result<template::ExportPlan, Refusal>, WriteError> {
    let plan = match template::assess(template, &state.caches, &state.settings) {
        Ok(plan) => plan,
        Err(refusal) => return Ok(Err(refusal)),
    };
    match state.rights.check(&plan).await {
        Ok(()) => Ok(Ok(plan)),
        Err(RightsError::Lacking(refusal)) => Ok(Err(refusal)),
        Err(RightsError::Api(error)) => Err(WriteError::Unasked(error)),
    }
}
