//! APIServiceNamespace → a provider namespace with the rights of every export in it, and its end when it is empty.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bindery_api::{
    labels, names,
    v1alpha2::{APIServiceExport, APIServiceNamespace},
};
use bindery_runtime::{backoff::Backoff, cache::ObjectKey, queue::Queue};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{Role, RoleBinding},
};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::json;

use super::{Context, Next, Reconcile, Running, awaited, subject};
use crate::{
    contract,
    rbac::claims,
    remaining,
    writes::{self, WriteError},
};

mod claimed;
mod end;
mod limit;
mod plan;
mod rights;
mod shared;
mod sharing;
mod triggers;

use plan::{Observed, Op, Step};

/// Objects that drain are in no cache of ours. Looking for them anew is for who drains for long ever more seldom.
const DRAINING: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_mins(1));
/// What keeps a namespace that nobody maps any more is in no cache of ours.
const KEPT: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_mins(10));
/// What stands in the way is in no cache of ours either.
const IN_THE_WAY: Duration = Duration::from_mins(1);
/// How long it may take until a right that was given counts.
const SETTLING: SignedDuration = SignedDuration::from_secs(10);

struct ServiceNamespaces {
    context: Context,
}

pub(super) fn start(context: &Context, running: &mut Running) {
    let queue = Queue::new();
    triggers::watch(context, running, &queue);
    let service_namespaces = ServiceNamespaces {
        context: context.clone(),
    };
    running.work(service_namespaces, &queue);
    sharing::start(context, running);
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
            None => self.left_behind(key),
        };
        let exports = caches.exports.list_in(contract);
        let schemas = caches.bound_schemas.list_in(contract);
        let scopes = schemas.iter().map(AsRef::as_ref).collect();
        let awaited = state
            .contract(contract)
            .map_or_else(Vec::new, |contract| self.context.awaited.of(&contract));
        let made = &self.context.made;
        let provider = namespace
            .as_ref()
            .map_or_else(String::new, |namespace| namespace.name_any());
        let (roles, bindings) = (made.roles.list_in(&provider), made.role_bindings.list_in(&provider));
        let sight = made.sight.get(&provider, claims::SERVER_ROLE);
        let (mut shared_roles, mut shared_bindings) = (made.roles.list_in(name), made.role_bindings.list_in(name));
        if caches.namespaces.get("", name).is_some() {
            // A contract's own, which none shares: what is there is not for claims.
            (shared_roles, shared_bindings) = (Vec::new(), Vec::new());
        }
        let shared = made.shared.get("", name);
        let shared_sight = made.sight.get(name, claims::SERVER_ROLE);
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
            scopes: &scopes,
            awaited: &awaited,
            roles: &roles,
            bindings: &bindings,
            sight: sight.as_deref(),
            left: None,
            shared: shared::Seen {
                namespace: shared.as_deref(),
                roles: &shared_roles,
                bindings: &shared_bindings,
                sight: shared_sight.as_deref(),
                proved: &self.proved(contract, &exports),
                reserved: shared::reserved(name, &state.settings, |name| state.contract(name).is_some()),
            },
            beyond: object.as_deref().and_then(|object| self.beyond(contract, object)),
            server: &state.identity.subject(),
            now: Timestamp::now(),
        };
        let mut step = plan::plan(&seen);
        let left;
        if let (Step::Count, Some(namespace)) = (&step, &namespace) {
            left = match self.count(&seen, namespace).await {
                Ok(left) => left,
                Err(error) => return self.explain(&seen, error).await,
            };
            seen.left = Some(&left);
            step = plan::plan(&seen);
        }
        match step {
            Step::Apply(ops) => self.apply_all(&seen, ops).await,
            Step::Drain(ops) => {
                // Where it goes on, it is worth looking soon.
                let goes_on = !ops.is_empty();
                self.apply_all(&seen, ops).await?;
                Ok(if goes_on {
                    Next::After(DRAINING.first)
                } else {
                    Next::Seldom(DRAINING)
                })
            }
            Step::Leave(ops) => {
                self.apply_all(&seen, ops).await?;
                Ok(Next::Seldom(KEPT))
            }
            Step::Count => Ok(Next::Change),
        }
    }
}

impl ServiceNamespaces {
    /// The provider namespace of an APIServiceNamespace that has gone: nearly always the one of the name that it would get.
    fn left_behind(&self, key: &ObjectKey) -> Option<Arc<Namespace>> {
        let namespaces = &self.context.state.caches.namespaces;
        let is_its = |namespace: &Namespace| triggers::made_for(namespace).as_ref() == Some(key);
        let first = namespaces.get("", &names::provider_namespace(&key.namespace, &key.name));
        let first = first.filter(|namespace| is_its(namespace));
        first.or_else(|| namespaces.list(is_its).pop())
    }

    /// Names of the exports that may write in the cluster's scope, which none may before the admission policy was proved.
    fn proved(&self, contract: &str, exports: &[Arc<APIServiceExport>]) -> Vec<String> {
        let made = &self.context.made;
        let is_proved = |export: &String| {
            let name = names::resources_cluster_role(contract, export);
            let (role, binding) = (
                made.cluster_roles.get("", &name),
                made.cluster_role_bindings.get("", &name),
            );
            rights::is_proved(role.as_deref(), binding.as_deref(), contract)
        };
        let names = exports.iter().map(|export| export.name_any());
        names.filter(is_proved).collect()
    }

    /// The limit of the contract's namespaces, where this one is beyond it.
    fn beyond(&self, contract: &str, object: &APIServiceNamespace) -> Option<usize> {
        let state = &self.context.state;
        if object.status.as_ref().is_some_and(|status| status.namespace.is_some()) {
            return None;
        }
        let all = state.caches.service_namespaces.list_in(contract);
        let is_admitted = limit::admits(object, &all, triggers::room(state, contract, &all));
        (!is_admitted).then_some(state.settings.max_namespaces_per_contract)
    }

    async fn count(&self, seen: &Observed<'_>, namespace: &Namespace) -> Result<plan::Left, WriteError> {
        let (state, name) = (&self.context.state, namespace.name_any());
        let remaining = remaining::in_namespace(state, seen.contract, &name).await?;
        let claimed = claimed::list(state, &name, &claimed::recorded(namespace)).await?;
        let shared = match seen.shared.namespace {
            Some(shared) if shared::is_used_by(shared, seen.contract) => {
                claimed::list(state, seen.name, &claimed::recorded(shared)).await?
            }
            _ => Vec::new(),
        };
        Ok(end::left(seen, remaining, claimed, shared))
    }

    /// Takes the steps in their order. Where the server may not give an export its rights, the others get theirs.
    async fn apply_all(&self, seen: &Observed<'_>, ops: Vec<Op>) -> Result<Next, WriteError> {
        let mut refused = BTreeMap::new();
        let mut foreign = None;
        for op in ops {
            let role = op.role();
            let is_shared = op.namespace() == Some(seen.name);
            if role.as_ref().is_some_and(|role| refused.contains_key(role)) || is_shared && foreign.is_some() {
                continue;
            }
            if matches!(op, Op::Say(_)) && (!refused.is_empty() || foreign.is_some()) {
                break;
            }
            match (self.apply(seen, op).await, role) {
                (Ok(()), _) => {}
                (Err(error), Some(role)) if error.is_forbidden() => {
                    refused.insert(role, error);
                }
                (Err(WriteError::Foreign { name, .. }), _) if is_shared => foreign = Some(name),
                (Err(WriteError::Foreign { name, .. }), _) => {
                    if let Some(op) = plan::foreign(seen, &name) {
                        self.apply(seen, op).await?;
                    }
                    return Ok(Next::After(IN_THE_WAY));
                }
                (Err(error), _) => return Err(error),
            }
        }
        if let Some((_, error)) = refused.pop_first() {
            return self.explain(seen, error).await;
        }
        let Some(foreign) = foreign else {
            return Ok(Next::Change);
        };
        for op in plan::foreign_shared(seen, &foreign) {
            self.apply(seen, op).await?;
        }
        Ok(Next::After(IN_THE_WAY))
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
        if seen.sight.is_some_and(|sight| is_fresh(sight, seen.now)) {
            // It may not be in effect yet.
            return Err(error);
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
                let wanted = triggers::made_for(&namespace);
                writes::create(&Api::all(client()), &*namespace, |existing| match &wanted {
                    Some(_) => triggers::made_for(existing) == wanted,
                    None => shared::is_shared(existing),
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
            Op::CreateBinding(binding) => create_binding(client(), &binding).await?,
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

    /// The namespace that a step is about, or is taken in.
    fn namespace(&self) -> Option<&str> {
        match self {
            Self::CreateNamespace(namespace) => namespace.metadata.name.as_deref(),
            Self::PatchNamespace { name, .. } | Self::DeleteNamespace { name, .. } => Some(name),
            Self::CreateRole(role) => role.metadata.namespace.as_deref(),
            Self::CreateBinding(binding) => binding.metadata.namespace.as_deref(),
            Self::PatchRole { namespace, .. }
            | Self::DeleteRole { namespace, .. }
            | Self::DeleteBinding { namespace, .. } => Some(namespace),
            Self::Patch(_) | Self::Say(_) => None,
        }
    }
}

/// Makes a binding, of a contract's or of the server's own.
async fn create_binding(client: Client, binding: &RoleBinding) -> Result<(), WriteError> {
    let marks = |binding: &RoleBinding| {
        let labels = binding.labels();
        let mark = |key: &str| labels.get(key).cloned();
        [mark(labels::CONTRACT), mark(labels::COMPONENT)]
    };
    let api = Api::namespaced(client, &binding.namespace().unwrap_or_default());
    writes::create(&api, binding, |existing| marks(existing) == marks(binding)).await?;
    Ok(())
}

/// Whether a binding was made so short a time ago that the API server may not know it everywhere.
fn is_fresh(binding: &RoleBinding, now: Timestamp) -> bool {
    let made = binding.metadata.creation_timestamp.as_ref();
    made.is_some_and(|made| now.duration_since(made.0) < SETTLING)
}

/// The namespace that an object lives in.
fn namespace_of<K: Resource>(object: &K) -> String {
    object.meta().namespace.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[track_caller]
    fn check_fresh(age: i64, expect: bool) {
        let now = Timestamp::UNIX_EPOCH;
        let mut binding = RoleBinding::default();
        binding.metadata.creation_timestamp = Some(Time(now - SignedDuration::from_secs(age)));
        assert_eq!(is_fresh(&binding, now), expect, "{age}");
    }

    #[test]
    fn a_right_is_given_time_to_count() {
        check_fresh(0, true);
        check_fresh(9, true);
        check_fresh(10, false);
        // Clocks differ.
        check_fresh(-3, true);
        assert!(!is_fresh(&RoleBinding::default(), Timestamp::UNIX_EPOCH));
    }
}
