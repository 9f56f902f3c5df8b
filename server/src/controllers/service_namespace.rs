//! APIServiceNamespace → a provider namespace with the rights of every export in it, and its end when it is empty.

use std::time::Duration;

use bindery_api::{
    annotations,
    v1alpha2::{APIServiceExport, APIServiceNamespace},
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

use super::{Context, Next, Reconcile, Running, subject};
use crate::{
    contract, remaining,
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
    let service_namespaces = ServiceNamespaces {
        context: context.clone(),
    };
    running.work(service_namespaces, &queue);
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
            roles: &roles,
            bindings: &bindings,
            remaining: None,
            now: Timestamp::now(),
        };
        let mut step = plan::plan(&seen);
        let remaining;
        if let (Step::Count, Some(namespace)) = (&step, &namespace) {
            remaining = remaining::in_namespace(state, contract, &namespace.name_any()).await?;
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
    async fn apply_all(&self, seen: &Observed<'_>, ops: Vec<Op>) -> Result<Next, WriteError> {
        for op in ops {
            match self.apply(seen, op).await {
                Ok(()) => {}
                Err(WriteError::Foreign { name, .. }) => {
                    if let Some(op) = plan::foreign(seen, &name) {
                        self.apply(seen, op).await?;
                    }
                    return Ok(Next::After(IN_THE_WAY));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Next::Change)
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
            Op::MarkReleased { name, patch } => {
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

/// The namespace that an object lives in.
fn namespace_of<K: Resource>(object: &K) -> String {
    object.meta().namespace.clone().unwrap_or_default()
}
