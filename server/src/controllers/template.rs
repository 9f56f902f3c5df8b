//! Whether each template can be bound, and each collection is whole, as condition `Ready`.

use std::{sync::Arc, time::Duration};

use bindery_api::{
    Condition, Conditions as _,
    v1alpha2::{APIServiceExportTemplate, Collection},
};
use bindery_runtime::{cache::Cache, queue::Queue};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Resource};
use serde_json::json;

use super::{Context, Next, Reconcile, Running};
use crate::{
    rights::RightsError,
    state::State,
    template::{self, Refusal},
    writes::{self, WriteError},
};

mod plan;

/// Rights that were given are seen by the watch on the aggregated role; this is for what does not come through it.
const LACKING: Duration = Duration::from_secs(30);

/// Part of the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
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
        // A template that came or went makes a collection whole or not.
        let of = |collection: &Collection| {
            let mut names = collection.spec.templates.iter();
            names.any(|template| *template.name == *change.key.name)
        };
        let mut keys = vec![Key::Template(Arc::clone(&change.key.name))];
        if change.old.is_none() || change.new.is_none() {
            keys.extend(all(&collections, of).map(Key::Collection));
        }
        keys
    });
    running.watch(&caches.collections, &queue, |change| {
        Some(Key::Collection(Arc::clone(&change.key.name)))
    });
    let templates = caches.templates.clone();
    running.watch(&caches.definitions, &queue, move |change| {
        let definition = super::subject(change).cloned();
        let offers =
            |template: &APIServiceExportTemplate| definition.as_deref().is_some_and(|one| offers(template, one));
        all(&templates, offers).map(Key::Template).collect::<Vec<_>>()
    });
    for (resource, claimable) in caches.claimable.iter() {
        let (templates, resource) = (caches.templates.clone(), resource.clone());
        running.watch(claimable, &queue, move |_| {
            let claims = |template: &APIServiceExportTemplate| {
                let mut claims = template.spec.permission_claims.iter();
                claims.any(|claim| claim.group_resource == resource)
            };
            all(&templates, claims).map(Key::Template).collect::<Vec<_>>()
        });
    }
    let (templates, rights) = (caches.templates.clone(), context.state.rights.clone());
    running.watch(&caches.aggregated_role, &queue, move |_| {
        rights.forget();
        all(&templates, |_| true).map(Key::Template).collect::<Vec<_>>()
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
    type Key = Key;
    const NAME: &'static str = "template";
    const WORKERS: usize = 2;

    async fn reconcile(&self, key: &Key) -> Result<Next, WriteError> {
        match key {
            Key::Template(name) => self.template(name).await,
            Key::Collection(name) => self.collection(name).await,
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
        self.write::<APIServiceExportTemplate>(&template, conditions, plan::template(&verdict))
            .await?;
        Ok(if lacking { Next::After(LACKING) } else { Next::Change })
    }

    async fn collection(&self, name: &str) -> Result<Next, WriteError> {
        let Some(collection) = self.state.caches.collections.get("", name) else {
            return Ok(Next::Change);
        };
        let exists = |template: &str| self.state.caches.templates.get("", template).is_some();
        let condition = plan::collection(&collection, exists);
        let conditions = collection.conditions().to_vec();
        self.write::<Collection>(&collection, conditions, condition).await?;
        Ok(Next::Change)
    }

    async fn write<K>(&self, object: &K, mut conditions: Vec<Condition>, ready: Condition) -> Result<(), WriteError>
    where
        K: writes::Object + Resource<Scope = kube::core::ClusterResourceScope>,
    {
        if !conditions.set_condition(ready, Timestamp::now()) {
            return Ok(());
        }
        let api: Api<K> = Api::all(self.state.clients.write.clone());
        let name = object.meta().name.as_deref().unwrap_or_default();
        let patch = json!({ "metadata": writes::seen(object), "status": { "conditions": conditions } });
        writes::merge_status(&api, name, &patch).await?;
        Ok(())
    }
}

/// The whole verdict on a template: what it says, and whether the server may hand it out.
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
