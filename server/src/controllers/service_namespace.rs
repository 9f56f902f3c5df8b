//! APIServiceNamespace → a provider namespace with the rights of every export in it, and its end when it is empty.

use std::{collections::BTreeMap, time::Duration};

use bindery_api::{
    Conditions as _, annotations,
    conditions::READY,
    v1alpha2::{APIServiceExport, APIServiceNamespace, BindableResourcesRequest, Phase},
};
use bindery_runtime::{
    cache::{Cache, ObjectKey},
    queue::Queue,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{Role, RoleBinding},
};
use kube::{Api, Resource, ResourceExt as _};
use serde_json::json;

use super::{Context, Next, Reconcile, Running, request, subject};
use crate::{
    contract, remaining, template,
    writes::{self, WriteError},
};

mod plan;
mod rights;

use plan::{Observed, Op, Step};

/// Objects that drain are in no cache of ours.
const DRAINING: Duration = Duration::from_secs(2);
/// What stands in the way is in no cache of ours either.
const IN_THE_WAY: Duration = Duration::from_mins(1);

struct ServiceNamespaces {
    context: Context,
}

pub(super) fn start(context: &Context, running: &mut Running) {
    let queue = Queue::new();
    let caches = &context.state.caches;
    running.watch(&caches.service_namespaces, &queue, |change| Some(change.key.clone()));
    running.watch(&caches.namespaces, &queue, |change| made_for(subject(change)?));
    let mapped = caches.service_namespaces.clone();
    running.watch(&caches.exports, &queue, move |change| {
        // Conditions are of no interest here, and change often.
        let same = matches!((change.old, change.new), (Some(old), Some(new)) if counts_the_same(old, new));
        let mapped = if same {
            Vec::new()
        } else {
            mapped.list_in(&change.key.namespace)
        };
        mapped.iter().map(|mapped| ObjectKey::of(&**mapped)).collect::<Vec<_>>()
    });
    let namespaces = caches.namespaces.clone();
    running.watch(&context.made.roles, &queue, move |change| {
        of_role(&namespaces, change.key)
    });
    let namespaces = caches.namespaces.clone();
    running.watch(&context.made.role_bindings, &queue, move |change| {
        of_role(&namespaces, change.key)
    });
    // A request that is decided, or gone, holds no rights any more.
    let (state, mapped) = (context.state.clone(), caches.service_namespaces.clone());
    running.watch(&caches.requests, &queue, move |change| {
        let asked = change.old.filter(|old| request::phase(old) == Phase::Pending);
        let contracts = asked.map_or_else(Vec::new, |asked| {
            let identity = &*asked.spec.cluster_identity.identity;
            let is_its = |namespace: &Namespace| {
                contract::is_contract(namespace) && contract::identity(namespace) == Some(identity)
            };
            state.caches.namespaces.list(is_its)
        });
        keys(&mapped, |mapped| {
            let of = mapped.metadata.namespace.as_deref();
            contracts.iter().any(|contract| contract.metadata.name.as_deref() == of)
        })
    });
    let mapped = caches.service_namespaces.clone();
    running.watch(&caches.aggregated_role, &queue, move |_| {
        keys(&mapped, |mapped| {
            let ready = mapped.condition(READY);
            ready.is_some_and(|ready| ready.reason == template::SERVER_LACKS_RIGHTS)
        })
    });
    let service_namespaces = ServiceNamespaces {
        context: context.clone(),
    };
    running.work(service_namespaces, &queue);
}

fn keys(mapped: &Cache<APIServiceNamespace>, admit: impl Fn(&APIServiceNamespace) -> bool) -> Vec<ObjectKey> {
    let mapped = mapped.list(admit);
    mapped.iter().map(|mapped| ObjectKey::of(&**mapped)).collect()
}

/// The APIServiceNamespace that a provider namespace was made for.
fn made_for(namespace: &Namespace) -> Option<ObjectKey> {
    let key = namespace.annotations().get(annotations::API_SERVICE_NAMESPACE)?;
    let (contract, name) = key.split_once('/')?;
    (contract::of(namespace) == Some(contract)).then(|| ObjectKey::new(contract, name))
}

fn of_role(namespaces: &Cache<Namespace>, role: &ObjectKey) -> Option<ObjectKey> {
    made_for(&*namespaces.get("", &role.namespace)?)
}

fn counts_the_same(old: &APIServiceExport, new: &APIServiceExport) -> bool {
    old.metadata.uid == new.metadata.uid
        && old.metadata.deletion_timestamp.is_some() == new.metadata.deletion_timestamp.is_some()
}

/// The exports of a contract that a request is about to make, or to make anew.
fn awaited(context: &Context, contract: &str) -> Vec<String> {
    let Some(namespace) = context.state.contract(contract) else {
        return Vec::new();
    };
    let requests = context
        .state
        .caches
        .requests
        .list(|asked| is_awaited(asked, &namespace));
    requests
        .iter()
        .map(|asked| request::request_name(asked).to_owned())
        .collect()
}

fn is_awaited(asked: &BindableResourcesRequest, contract: &Namespace) -> bool {
    request::phase(asked) == Phase::Pending
        && asked.metadata.deletion_timestamp.is_none()
        && contract::identity(contract) == Some(&*asked.spec.cluster_identity.identity)
}

impl Reconcile for ServiceNamespaces {
    type Key = ObjectKey;
    const NAME: &'static str = "service-namespace";
    const WORKERS: usize = 8;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, WriteError> {
        let state = &self.context.state;
        let caches = &state.caches;
        let (contract, name) = (&*key.namespace, &*key.name);
        let object = caches.service_namespaces.get_key(key);
        let namespace = match &object {
            Some(object) => caches.namespaces.get("", &plan::provider_namespace(contract, object)),
            None => caches
                .namespaces
                .list(|namespace| made_for(namespace).as_ref() == Some(key))
                .pop(),
        };
        let exports = caches.exports.list_in(contract);
        let awaited = awaited(&self.context, contract);
        let (roles, bindings) = match &namespace {
            Some(namespace) => (
                self.context.made.roles.list_in(&namespace.name_any()),
                self.context.made.role_bindings.list_in(&namespace.name_any()),
            ),
            None => Default::default(),
        };
        let contract_stays = state
            .contract(contract)
            .is_some_and(|contract| !contract::is_terminating(&contract));
        let mut seen = Observed {
            contract,
            name,
            object: object.as_deref(),
            namespace: namespace.as_deref(),
            contract_stays,
            exports: &exports,
            awaited: &awaited,
            roles: &roles,
            bindings: &bindings,
            remaining: None,
            now: Timestamp::now(),
        };
        let mut step = plan::plan(&seen);
        let remaining;
        if let (Step::Count, Some(namespace)) = (&step, &namespace) {
            remaining = match remaining::in_namespace(state, contract, &namespace.name_any()).await {
                Ok(remaining) => remaining,
                Err(error) => return self.explain(&seen, error).await,
            };
            seen.remaining = Some(&remaining);
            step = plan::plan(&seen);
        }
        match step {
            Step::Apply(ops) => self.apply_all(&seen, ops).await,
            Step::Drain(ops) => {
                self.apply_all(&seen, ops).await?;
                Ok(Next::After(DRAINING))
            }
            Step::Count => Ok(Next::Change),
        }
    }
}

impl ServiceNamespaces {
    /// Takes the steps in their order. Where the server may not give an export its rights, the others get theirs.
    async fn apply_all(&self, seen: &Observed<'_>, ops: Vec<Op>) -> Result<Next, WriteError> {
        let mut refused = BTreeMap::new();
        for op in ops {
            let role = op.role();
            if role.as_ref().is_some_and(|role| refused.contains_key(role)) {
                continue;
            }
            if matches!(op, Op::Say(_)) && !refused.is_empty() {
                break;
            }
            match (self.apply(seen, op).await, role) {
                (Ok(()), _) => {}
                (Err(error), Some(role)) if error.is_forbidden() => {
                    refused.insert(role, error);
                }
                (Err(WriteError::Foreign { name, .. }), _) => {
                    if let Some(op) = plan::foreign(seen, &name) {
                        self.apply(seen, op).await?;
                    }
                    return Ok(Next::After(IN_THE_WAY));
                }
                (Err(error), _) => return Err(error),
            }
        }
        let Some((_, error)) = refused.pop_first() else {
            return Ok(Next::Change);
        };
        self.explain(seen, error).await
    }

    /// Says which rights the server lacks. If it lacks none, they came a moment ago, and trying again helps.
    async fn explain(&self, seen: &Observed<'_>, error: WriteError) -> Result<Next, WriteError> {
        if !error.is_forbidden() {
            return Err(error);
        }
        let mut lacking = Vec::new();
        for export in seen.exports {
            if let Some(refusal) = self.context.state.rights.lacking(export).await? {
                lacking.push(format!("export {}: {refusal}", export.name_any()));
            }
        }
        if seen.exports.is_empty() {
            // What is left cannot be counted, and no export says any more what that is.
            lacking.push(format!("the server lacks a right: {error}"));
        }
        if lacking.is_empty() {
            return Err(error);
        }
        if let Some(op) = plan::lacking(seen, lacking.join("\n")) {
            self.apply(seen, op).await?;
        }
        Ok(Next::After(IN_THE_WAY))
    }

    async fn apply(&self, seen: &Observed<'_>, op: Op) -> Result<(), WriteError> {
        let client = || self.context.state.clients.write.clone();
        let contract = seen.contract;
        let mapped: Api<APIServiceNamespace> = Api::namespaced(client(), contract);
        match op {
            Op::Patch(patch) => {
                writes::merge(&mapped, seen.name, &patch).await?;
            }
            Op::Say(patch) => {
                writes::merge_status(&mapped, seen.name, &patch).await?;
            }
            Op::CreateNamespace(namespace) => {
                let wanted = made_for(&namespace);
                writes::create(&Api::all(client()), &*namespace, |existing| {
                    made_for(existing) == wanted
                })
                .await?;
            }
            Op::PatchNamespace { name, patch } => {
                writes::merge::<Namespace>(&Api::all(client()), &name, &patch).await?;
            }
            Op::DeleteNamespace { name, uid } => {
                if seen.object.is_none() && mapped.get_opt(seen.name).await?.is_some() {
                    // The cache is behind: what it misses is there.
                    return Ok(());
                }
                writes::delete::<Namespace>(&Api::all(client()), &name, uid.as_deref()).await?;
            }
            Op::CreateRole(role) => {
                let is_ours = |existing: &Role| contract::of(existing) == Some(contract);
                let api = Api::namespaced(client(), &role.namespace().unwrap_or_default());
                writes::create(&api, &*role, is_ours).await?;
            }
            Op::PatchRole {
                namespace,
                name,
                rules,
                metadata,
            } => {
                let api: Api<Role> = Api::namespaced(client(), &namespace);
                writes::merge(&api, &name, &json!({ "metadata": metadata, "rules": rules })).await?;
            }
            Op::CreateBinding(binding) => {
                let is_ours = |existing: &RoleBinding| contract::of(existing) == Some(contract);
                let api = Api::namespaced(client(), &binding.namespace().unwrap_or_default());
                writes::create(&api, &*binding, is_ours).await?;
            }
            Op::DeleteRole { namespace, name, uid } => {
                let api: Api<Role> = Api::namespaced(client(), &namespace);
                writes::delete(&api, &name, uid.as_deref()).await?;
            }
            Op::DeleteBinding { namespace, name, uid } => {
                let api: Api<RoleBinding> = Api::namespaced(client(), &namespace);
                writes::delete(&api, &name, uid.as_deref()).await?;
            }
        }
        Ok(())
    }
}

// === impl Op ===

impl Op {
    /// The role that a step gives or takes, together with its binding of the same name.
    fn role(&self) -> Option<String> {
        match self {
            Self::CreateRole(role) => Some(role.name_any()),
            Self::CreateBinding(binding) => Some(binding.name_any()),
            Self::PatchRole { name, .. } | Self::DeleteRole { name, .. } | Self::DeleteBinding { name, .. } => {
                Some(name.clone())
            }
            Self::Patch(_)
            | Self::Say(_)
            | Self::CreateNamespace(_)
            | Self::PatchNamespace { .. }
            | Self::DeleteNamespace { .. } => None,
        }
    }
}

/// The namespace that an object lives in.
fn namespace_of<K: Resource>(object: &K) -> String {
    object.meta().namespace.clone().unwrap_or_default()
}
