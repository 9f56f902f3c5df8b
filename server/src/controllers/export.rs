//! APIServiceExport: its schemas and rights while it is there, and their removal before it goes.

use std::{sync::Arc, time::Duration};

use bindery_api::{
    Conditions as _, annotations, labels,
    v1alpha2::{APIServiceExport, APIServiceExportRequest, BoundSchema, Phase},
};
use bindery_runtime::{
    backoff::Backoff,
    cache::{Cache, ObjectKey},
    queue::Queue,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Resource, ResourceExt as _};
use serde_json::json;

use super::{Context, Next, Reconcile, Running, awaited, export_request, request, subject};
use crate::{
    contract, rbac, template,
    writes::{self, WriteError},
};

mod claims;
mod deletion;
mod leftover;
mod mapped;
mod observe;
mod plan;
mod removal;
mod rights;
mod schemas;
mod sources;

use plan::Op;
pub(super) use plan::PROVIDER_IN_SYNC;

/// What stands in the way is in no cache of ours, and so are the server's own rights.
const IN_THE_WAY: Duration = Duration::from_mins(1);
/// Neither is the admission policy, which may be about to take effect, and for whose proof a token is made each time.
const UNPROVED: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(20));

struct Exports {
    context: Context,
}

pub(super) fn start(context: &Context, running: &mut Running) {
    let queue = Queue::new();
    let caches = &context.state.caches;
    let exports = caches.exports.clone();
    running.watch(&caches.exports, &queue, move |change| match change.new {
        Some(_) => vec![change.key.clone()],
        // It may have kept schemas from following that others have too, and left something behind itself.
        None => with(change.key.clone(), of_contract(&exports, &change.key.namespace)),
    });
    let exports = caches.exports.clone();
    running.watch(&caches.export_requests, &queue, move |change| {
        let policy = |request: &Arc<APIServiceExportRequest>| request.spec.schema_update_policy;
        let is_pending = |request: &Arc<APIServiceExportRequest>| export_request::phase(request) == Phase::Pending;
        let ends = change.old.is_some_and(is_pending) && !change.new.is_some_and(is_pending);
        if !ends && change.old.map(policy) == change.new.map(policy) {
            return Vec::new();
        }
        with(change.key.clone(), of_contract(&exports, &change.key.namespace))
    });
    let state = context.state.clone();
    running.watch(&caches.requests, &queue, move |change| {
        let mut keys = Vec::new();
        if let Some(asked) = awaited::ended(change) {
            // What it was to make may never come, and what it made may need less than was there.
            for contract in awaited::contracts(&state, asked) {
                let contract = contract.name_any();
                let own = ObjectKey::new(contract.as_str(), request::request_name(asked));
                keys.extend(with(own, of_contract(&state.caches.exports, &contract)));
            }
        }
        keys
    });
    let exports = caches.exports.clone();
    running.watch(&caches.namespaces, &queue, move |change| {
        let contract = awaited::served(change);
        contract.map_or_else(Vec::new, |contract| of_contract(&exports, &contract.name_any()))
    });
    let exports = caches.exports.clone();
    running.watch(&caches.bound_schemas, &queue, move |change| {
        let Some(schema) = subject(change) else {
            return Vec::new();
        };
        let mut exports = exports.list_in(&change.key.namespace);
        exports.retain(|export| plan::offers(export, &schema.spec.group, &schema.spec.names.plural));
        exports.iter().map(|export| ObjectKey::of(&**export)).collect()
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
    running.watch(&context.made.roles, &queue, |change| of_role(subject(change)?.as_ref()));
    running.watch(&context.made.role_bindings, &queue, |change| {
        of_role(subject(change)?.as_ref())
    });
    running.watch(&caches.service_namespaces, &queue, {
        let exports = caches.exports.clone();
        move |change| match change.new {
            // One that goes may be the last that lacked rights.
            Some(mapped) if mapped.metadata.deletion_timestamp.is_none() => Vec::new(),
            _ => of_contract(&exports, &change.key.namespace),
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

fn of_contract(exports: &Cache<APIServiceExport>, contract: &str) -> Vec<ObjectKey> {
    let exports = exports.list_in(contract);
    exports.iter().map(|export| ObjectKey::of(&**export)).collect()
}

/// A key, and others that may hold it too: the queue knows each once.
fn with(key: ObjectKey, mut others: Vec<ObjectKey>) -> Vec<ObjectKey> {
    others.push(key);
    others
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
        if state.contract(&key.namespace).is_none() {
            return Ok(Next::Change);
        }
        let Some(export) = state.caches.exports.get_key(key) else {
            return self.clear(key).await;
        };
        if export.metadata.deletion_timestamp.is_some() {
            return self.delete(&export).await;
        }
        let has_rights = self.has_rights(&export);
        let lacking = if has_rights {
            None
        } else {
            state.rights.lacking(&export).await?
        };
        let lacks = lacking.is_some();
        let (ops, policy) = self.decide(&export, lacking, has_rights).await?;
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
        Ok(match policy {
            Some(Err(_)) => Next::Seldom(UNPROVED),
            _ if lacks => Next::After(IN_THE_WAY),
            _ => self.sweep(&key.namespace).await?,
        })
    }
}

impl Exports {
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
            Op::CreateRole(role) => {
                let is_ours = |existing: &Role| contract::of(existing) == Some(contract.as_str());
                writes::create(&Api::namespaced(client(), &contract), &*role, is_ours).await?;
            }
            Op::PatchRole { name, patch } => {
                writes::merge::<Role>(&Api::namespaced(client(), &contract), &name, &patch).await?;
            }
            Op::DeleteRole { name, uid } => {
                writes::delete::<Role>(&Api::namespaced(client(), &contract), &name, uid.as_deref()).await?;
            }
            Op::CreateRoleBinding(binding) => {
                let is_ours = |existing: &RoleBinding| contract::of(existing) == Some(contract.as_str());
                writes::create(&Api::namespaced(client(), &contract), &*binding, is_ours).await?;
            }
            Op::DeleteRoleBinding { name, uid } => {
                writes::delete::<RoleBinding>(&Api::namespaced(client(), &contract), &name, uid.as_deref()).await?;
            }
            Op::DeleteClusterRole { name, uid } => {
                writes::delete::<ClusterRole>(&Api::all(client()), &name, uid.as_deref()).await?;
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
}

/// Whether a role or binding was made for an export.
fn is_for<K: Resource>(object: &K, contract: &str, export: &str) -> bool {
    is_labelled(object, contract, &rbac::export_label(export))
}

/// As [`is_for`], with the label's value.
fn is_labelled<K: Resource>(object: &K, contract: &str, label: &str) -> bool {
    let labels = object.meta().labels.as_ref();
    contract::of(object) == Some(contract)
        && labels.and_then(|labels| labels.get(labels::EXPORT)).map(String::as_str) == Some(label)
}
