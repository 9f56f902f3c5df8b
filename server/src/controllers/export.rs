//! APIServiceExport: its schemas and rights while it is there, and their removal before it goes.

use std::time::Duration;

use bindery_api::{
    Conditions as _, annotations, names,
    v1alpha2::{
        APIServiceExport, APIServiceExportRequest, APIServiceNamespace, BindableResourcesRequest, BoundSchema, Phase,
    },
};
use bindery_runtime::{
    cache::{Cache, ObjectKey},
    queue::Queue,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Resource, ResourceExt as _,
    core::{ClusterResourceScope, NamespaceResourceScope},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Context, Next, Reconcile, Running, request, subject};
use crate::{
    contract, owner, rbac, remaining,
    state::State,
    template::{self, Refusal},
    writes::{self, WriteError},
};

mod deletion;
mod plan;

use deletion::Deletion;
pub(super) use plan::PROVIDER_IN_SYNC;
use plan::{Observed, Op};

/// What stands in the way is in no cache of ours, and so are the server's own rights.
const IN_THE_WAY: Duration = Duration::from_mins(1);

struct Exports {
    context: Context,
}

pub(super) fn start(context: &Context, running: &mut Running) {
    let queue = Queue::new();
    let caches = &context.state.caches;
    running.watch(&caches.exports, &queue, |change| change.new.map(|_| change.key.clone()));
    let exports = caches.exports.clone();
    running.watch(&caches.bound_schemas, &queue, move |change| {
        let schema = subject(change).cloned();
        let offers = |export: &APIServiceExport| {
            export.metadata.namespace.as_deref() == Some(&*change.key.namespace)
                && schema
                    .as_deref()
                    .is_some_and(|schema| plan::offers(export, &schema.spec.group, &schema.spec.names.plural))
        };
        keys(&exports, offers)
    });
    let exports = caches.exports.clone();
    running.watch(&caches.definitions, &queue, move |change| {
        let definition = subject(change).cloned();
        keys(&exports, |export| {
            definition
                .as_deref()
                .is_some_and(|definition: &CustomResourceDefinition| {
                    plan::offers(export, &definition.spec.group, &definition.spec.names.plural)
                })
        })
    });
    let exports = caches.exports.clone();
    running.watch(&caches.templates, &queue, move |change| {
        keys(&exports, |export| {
            let from = export.annotations().get(annotations::TEMPLATE);
            from.is_some_and(|from| **from == *change.key.name)
        })
    });
    running.watch(&context.made.cluster_roles, &queue, |change| {
        of_role(subject(change)?.as_ref())
    });
    running.watch(&context.made.cluster_role_bindings, &queue, |change| {
        of_role(subject(change)?.as_ref())
    });
    running.watch(&context.made.role_bindings, &queue, |change| {
        of_role(subject(change)?.as_ref())
    });
    running.watch(&caches.service_namespaces, &queue, {
        let exports = caches.exports.clone();
        move |change| match change.new {
            // One that goes may be the last that lacked rights.
            Some(mapped) if mapped.metadata.deletion_timestamp.is_none() => Vec::new(),
            _ => keys(&exports, |export| {
                export.metadata.namespace.as_deref() == Some(&*change.key.namespace)
            }),
        }
    });
    let exports = caches.exports.clone();
    running.watch(&caches.aggregated_role, &queue, move |_| {
        keys(&exports, |export| {
            let condition = export.condition(PROVIDER_IN_SYNC);
            condition.is_some_and(|condition| condition.reason == template::SERVER_LACKS_RIGHTS)
        })
    });
    let exports = Exports {
        context: context.clone(),
    };
    running.work(exports, &queue);
}

fn keys(exports: &Cache<APIServiceExport>, admit: impl Fn(&APIServiceExport) -> bool) -> Vec<ObjectKey> {
    exports
        .list(admit)
        .iter()
        .map(|export| ObjectKey::of(&**export))
        .collect()
}

/// The export that a role was made for.
fn of_role<K: Resource>(role: &K) -> Option<ObjectKey> {
    let export = role.meta().annotations.as_ref()?.get(annotations::EXPORT)?;
    Some(ObjectKey::new(contract::of(role)?, export.as_str()))
}

impl Reconcile for Exports {
    type Key = ObjectKey;
    const NAME: &'static str = "export";

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, WriteError> {
        let state = &self.context.state;
        let Some(export) = state.caches.exports.get_key(key) else {
            return Ok(Next::Change);
        };
        if state.contract(&key.namespace).is_none() {
            return Ok(Next::Change);
        }
        if export.metadata.deletion_timestamp.is_some() {
            return self.delete(&export).await;
        }
        let lacking = if self.has_rights(&key.namespace, &key.name) {
            None
        } else {
            state.rights.lacking(&export).await?
        };
        let stuck = lacking.is_some();
        let ops = self.observe(&export, lacking, plan::plan);
        for op in ops {
            match self.apply(&export, op).await {
                Ok(()) => {}
                Err(error @ WriteError::Foreign { .. }) => {
                    self.refuse(&export, "ForeignObject", error.to_string()).await?;
                    return Ok(Next::After(IN_THE_WAY));
                }
                Err(error) => {
                    self.explain(&export, &error).await?;
                    return Err(error);
                }
            }
        }
        Ok(if stuck { Next::After(IN_THE_WAY) } else { Next::Change })
    }
}

impl Exports {
    fn observe<T>(
        &self,
        export: &APIServiceExport,
        lacking: Option<Refusal>,
        decide: impl FnOnce(&Observed<'_>) -> T,
    ) -> T {
        let state = &self.context.state;
        let made = &self.context.made;
        let (contract, name) = (export.namespace().unwrap_or_default(), export.name_any());
        let role = names::resources_cluster_role(&contract, &name);
        let schemas: Vec<_> = export
            .spec
            .resources
            .iter()
            .map(|resource| {
                let name = names::bound_schema(&resource.group_resource);
                state.caches.bound_schemas.get(&contract, &name)
            })
            .collect();
        let template = export
            .annotations()
            .get(annotations::TEMPLATE)
            .and_then(|name| state.caches.templates.get("", name));
        decide(&Observed {
            export,
            contract: state.contract(&contract),
            schemas: &schemas,
            sources: &export
                .spec
                .resources
                .iter()
                .map(|resource| template::schema(resource, &state.caches.definitions, export.spec.informer_scope))
                .collect::<Vec<_>>(),
            cluster_role: made
                .cluster_roles
                .get("", &role)
                .filter(|role| is_for(&**role, &contract, &name)),
            cluster_role_binding: made
                .cluster_role_bindings
                .get("", &role)
                .filter(|binding| is_for(&**binding, &contract, &name)),
            has_rights: self.has_rights(&contract, &name),
            lacking,
            template: template.map(|template| template::assess(&template, &state.caches.definitions, &state.settings)),
            now: Timestamp::now(),
        })
    }

    /// Whether the namespaces that are mapped already have the export's rights: who sees the export in sync may use them.
    fn has_rights(&self, contract: &str, export: &str) -> bool {
        let made = &self.context.made;
        let role = names::resources_role(export);
        let mapped = self.context.state.caches.service_namespaces.list_in(contract);
        let mapped = mapped
            .iter()
            .filter(|mapped| mapped.metadata.deletion_timestamp.is_none());
        let mut namespaces = mapped.filter_map(|mapped| mapped.status.as_ref()?.namespace.as_deref());
        namespaces.all(|namespace| {
            made.roles.get(namespace, &role).is_some() && made.role_bindings.get(namespace, &role).is_some()
        })
    }

    async fn apply(&self, export: &APIServiceExport, op: Op) -> Result<(), WriteError> {
        let client = || self.context.state.clients.write.clone();
        let contract = export.namespace().unwrap_or_default();
        match op {
            Op::PatchExport(patch) => {
                let api: Api<APIServiceExport> = Api::namespaced(client(), &contract);
                writes::merge(&api, &export.name_any(), &patch).await?;
            }
            Op::CreateSchema(schema) => {
                let api: Api<BoundSchema> = Api::namespaced(client(), &contract);
                // Only the server makes schemas; one that is there is looked at when the cache has seen it.
                writes::create(&api, &*schema, |_| true).await?;
            }
            Op::PatchSchema { name, patch } => {
                let api: Api<BoundSchema> = Api::namespaced(client(), &contract);
                writes::merge(&api, &name, &patch).await?;
            }
            Op::CreateClusterRole(role) => {
                let is_ours = |existing: &ClusterRole| contract::of(existing) == Some(contract.as_str());
                writes::create(&Api::all(client()), &*role, is_ours).await?;
            }
            Op::PatchClusterRole { name, patch } => {
                writes::merge::<ClusterRole>(&Api::all(client()), &name, &patch).await?;
            }
            Op::CreateClusterRoleBinding(binding) => {
                let is_ours = |existing: &ClusterRoleBinding| contract::of(existing) == Some(contract.as_str());
                writes::create(&Api::all(client()), &*binding, is_ours).await?;
            }
            Op::DeleteClusterRoleBinding { name, uid } => {
                writes::delete::<ClusterRoleBinding>(&Api::all(client()), &name, uid.as_deref()).await?;
            }
            Op::Say(conditions) => self.say(export, &conditions).await?,
        }
        Ok(())
    }

    /// Says so where a write was not made for want of a right.
    async fn explain(&self, export: &APIServiceExport, error: &WriteError) -> Result<(), WriteError> {
        if error.is_forbidden()
            && let Some(refusal) = self.context.state.rights.lacking(export).await?
        {
            self.refuse(export, refusal.reason(), refusal.to_string()).await?;
        }
        Ok(())
    }

    /// Says why the provider's side of an export cannot be seen to.
    async fn refuse(&self, export: &APIServiceExport, reason: &str, message: String) -> Result<(), WriteError> {
        match plan::refused(export, reason, message, Timestamp::now()) {
            Some(conditions) => self.say(export, &conditions).await,
            None => Ok(()),
        }
    }

    async fn say(&self, export: &APIServiceExport, conditions: &[bindery_api::Condition]) -> Result<(), WriteError> {
        let api: Api<APIServiceExport> = Api::namespaced(
            self.context.state.clients.write.clone(),
            &export.namespace().unwrap_or_default(),
        );
        let patch = json!({ "metadata": writes::seen(export), "status": { "conditions": conditions } });
        writes::merge_status(&api, &export.name_any(), &patch).await?;
        Ok(())
    }

    async fn delete(&self, export: &APIServiceExport) -> Result<Next, WriteError> {
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
        self.take_rights(export).await?;
        // After the rights, for what is still being written would not be counted.
        let remaining = remaining::remaining_objects(state, export).await?;
        remaining::release(state, &remaining).await?;
        self.take_rest(export).await
    }

    async fn take_rights(&self, export: &APIServiceExport) -> Result<(), WriteError> {
        let state = &self.context.state;
        let (contract, name) = (export.namespace().unwrap_or_default(), export.name_any());
        let made = &self.context.made;
        delete_made::<RoleBinding>(state, &made.role_bindings, &contract, &name).await?;
        delete_made::<Role>(state, &made.roles, &contract, &name).await?;
        // By name and not by cache, which may not have seen yet what was made a moment ago.
        let role = names::resources_cluster_role(&contract, &name);
        delete_named::<ClusterRoleBinding>(state, &role, &contract, &name).await?;
        delete_named::<ClusterRole>(state, &role, &contract, &name).await
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
            .list(|request| is_record_of(request, &contract, &name))
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
    for object in cache.list(|object| is_for(object, contract, export)) {
        let api: Api<K> = Api::namespaced(state.clients.write.clone(), &object.namespace().unwrap_or_default());
        writes::delete(&api, &object.name_any(), object.meta().uid.as_deref()).await?;
    }
    Ok(())
}

async fn delete_named<K>(state: &State, object: &str, contract: &str, export: &str) -> Result<(), WriteError>
where
    K: writes::Object + Resource<Scope = ClusterResourceScope>,
{
    let api: Api<K> = Api::all(state.clients.write.clone());
    match api.get_opt(object).await? {
        Some(found) if is_for(&found, contract, export) => {
            writes::delete(&api, object, found.meta().uid.as_deref()).await
        }
        _ => Ok(()),
    }
}

/// Whether a role or binding was made for an export.
fn is_for<K: Resource>(object: &K, contract: &str, export: &str) -> bool {
    let labels = object.meta().labels.as_ref();
    labels.is_some_and(|labels| {
        rbac::export_labels(contract, export)
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
    })
}

/// Whether a request is the record of the call that made an export. One that is pending waits to make it anew.
fn is_record_of(request: &BindableResourcesRequest, contract: &str, export: &str) -> bool {
    request
        .status
        .as_ref()
        .is_some_and(|status| status.phase != Phase::Pending && status.namespace.as_deref() == Some(contract))
        && request::is_grpc(request)
        && request::request_name(request) == export
}
