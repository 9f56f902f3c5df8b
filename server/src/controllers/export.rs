//! Keeps the schemas and rights of each APIServiceExport, and removes them before the export goes.

use std::{sync::Arc, time::Duration};

use bindery_api::{
    Condition, Conditions as _, annotations, labels, names,
    v1alpha2::{APIServiceExport, APIServiceExportRequest, Phase},
};
use bindery_runtime::{
    backoff::Backoff,
    cache::{Cache, ObjectKey},
    queue::Queue,
};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Resource, ResourceExt as _};

use super::{Context, Next, Reconcile, Running, pending_requests, subject, traces::Traced};
use crate::{
    contract, rbac, request, template,
    writes::{self, Write, WriteError},
};

mod claims;
mod deletion;
mod leftover;
mod mapped;
mod observe;
mod observed;
mod plan;
mod removal;
mod rights;
mod schemas;
mod sources;

pub(crate) use plan::PROVIDER_IN_SYNC;
pub(crate) use rights::POLICY_IN_FORCE;

/// How soon to look again at what is in the way, or at rights that the server lacks: no cache shows them.
const IN_THE_WAY: Duration = Duration::from_mins(1);
/// How often to prove the admission policy again, which may be about to take effect. Each proof takes a token.
const UNPROVED: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(20));

struct Exports {
    context: Context,
}

pub(super) fn start(context: &Context, running: &mut Running) {
    let queue = Queue::fair(Exports::WORKERS, super::contract_of);
    let caches = &context.state.caches;
    let exports = caches.exports.clone();
    running.watch(&caches.exports, &queue, move |change| match change.new {
        Some(_) => vec![change.key.clone()],
        // Its policy may have kept schemas that it shared, and it may have left something behind.
        None => with(change.key.clone(), of_contract(&exports, &change.key.namespace)),
    });
    let exports = caches.exports.clone();
    running.watch(&caches.export_requests, &queue, move |change| {
        let policy = |request: &Arc<APIServiceExportRequest>| request.spec.schema_update_policy;
        let is_pending = |request: &Arc<APIServiceExportRequest>| request.phase() == Phase::Pending;
        let ends = change.old.is_some_and(is_pending) && !change.new.is_some_and(is_pending);
        if !ends && change.old.map(policy) == change.new.map(policy) {
            return Vec::new();
        }
        with(change.key.clone(), of_contract(&exports, &change.key.namespace))
    });
    let state = context.state.clone();
    running.watch(&caches.requests, &queue, move |change| {
        let mut keys = Vec::new();
        if let Some(ended) = pending_requests::ended(change) {
            // Its export may never be created, or needs less than its predecessor.
            for contract in pending_requests::contracts(&state, ended) {
                let contract = contract.name_any();
                let own = ObjectKey::new(contract.as_str(), request::request_name(ended));
                keys.extend(with(own, of_contract(&state.caches.exports, &contract)));
            }
        }
        keys
    });
    let exports = caches.exports.clone();
    running.watch(&caches.namespaces, &queue, move |change| {
        let contract = pending_requests::fulfilled(change);
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
            // A namespace that goes may be the last in which the export lacked rights.
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
    let exports = caches.exports.clone();
    running.follow_policies(context, &queue, move || keys(&exports, |_| true));
    let exports = Exports {
        context: context.clone(),
    };
    running.work(exports, &queue);
}

fn of_contract(exports: &Cache<APIServiceExport>, contract: &str) -> Vec<ObjectKey> {
    let exports = exports.list_in(contract);
    exports.iter().map(|export| ObjectKey::of(&**export)).collect()
}

/// Keys with one more. It may be among them already, since a queue holds each key once.
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

/// Key of the export that a role or role binding was made for.
fn of_role<K: Resource>(role: &K) -> Option<ObjectKey> {
    let export = role.meta().annotations.as_ref()?.get(annotations::EXPORT)?;
    Some(ObjectKey::new(contract::of(role)?, export.as_str()))
}

impl Reconcile for Exports {
    type Key = ObjectKey;
    const NAME: &'static str = "export";

    fn traced(&self, key: &ObjectKey) -> Option<Traced> {
        let export = self.context.state.caches.exports.get_key(key)?;
        let is_ready = export.condition(PROVIDER_IN_SYNC).is_some_and(Condition::is_true);
        let is_under_way = !is_ready && export.metadata.deletion_timestamp.is_none();
        is_under_way.then(|| Traced::of(&*export, Timestamp::now())).flatten()
    }

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
        let decision = self.decide(&export, lacking, has_rights).await?;
        let says = decision.writes.iter().any(Write::is_status);
        for write in decision.writes {
            match write.apply(&state.clients.write).await {
                Ok(_) => {}
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
        if let Some(turned) = decision.turned.filter(|_| says)
            && let Some(binding) = state
                .caches
                .cluster_bindings
                .get(&key.namespace, names::CLUSTER_BINDING)
        {
            state.recorder.turned(&binding.object_ref(&()), [&turned]);
        }
        Ok(match decision.policy {
            Some(Err(_)) => Next::Seldom(UNPROVED),
            _ if lacks => Next::After(IN_THE_WAY),
            _ => self.sweep(&key.namespace).await?,
        })
    }
}

impl Exports {
    /// Reports which rights the server lacks, where a write failed for want of them.
    async fn explain(&self, export: &APIServiceExport, error: &WriteError) -> Result<(), WriteError> {
        if error.is_forbidden()
            && let Some(refusal) = self.context.state.rights.lacking(export).await?
        {
            self.refuse(export, refusal.reason(), refusal.to_string()).await?;
        }
        Ok(())
    }

    /// Reports why an export cannot be served.
    async fn refuse(&self, export: &APIServiceExport, reason: &str, message: String) -> Result<(), WriteError> {
        let write = plan::refused(export, reason, message, Timestamp::now());
        writes::apply_all(&self.context.state.clients.write, write).await
    }
}

/// Whether a role or binding was made for an export.
fn is_for<K: Resource>(object: &K, contract: &str, export: &str) -> bool {
    is_labelled(object, contract, &rbac::export_label(export))
}

/// Whether a role or binding was made for the export with this value of label `kube-bind.io/export`.
fn is_labelled<K: Resource>(object: &K, contract: &str, label: &str) -> bool {
    let labels = object.meta().labels.as_ref();
    contract::of(object) == Some(contract)
        && labels.and_then(|labels| labels.get(labels::EXPORT)).map(String::as_str) == Some(label)
}
