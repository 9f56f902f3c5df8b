//! Maps each APIServiceNamespace to a provider namespace with the rights of every export in it, and deletes that when it is
//! empty.

use std::{sync::Arc, time::Duration};

use bindery_api::{
    names,
    v1alpha2::{APIServiceExport, APIServiceNamespace},
};
use bindery_runtime::{backoff::Backoff, cache::ObjectKey, queue::Queue};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};

use super::{Context, Next, Reconcile, Running, pending_requests, subject};
use crate::{
    contract,
    leftovers::{self, GrantRecord, recorded},
    limits::{LimitName, LimitReached},
    policy::WatchedPolicy,
    rbac::{claims, view},
    writes::WriteError,
};

mod apply;
mod claimed;
mod end;
mod observed;
mod plan;
mod rights;
mod shared;
mod sharing;
mod status;
mod triggers;
mod valuable;

use end::NamespaceStep;
use observed::{NamespaceLeftovers, Observed, SharedSeen};

/// How often to look again at a namespace whose objects drain: no cache holds them.
const DRAINING: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_mins(1));
/// How often to look again at a namespace that objects keep which nobody removes: no cache holds them.
const KEPT: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_mins(10));

struct ServiceNamespaces {
    context: Context,
}

/// Starts the controller; returns its queue, for those who see that an object is gone which kept a provider namespace.
pub(super) fn start(context: &Context, running: &mut Running) -> Queue<ObjectKey> {
    let queue = Queue::fair(ServiceNamespaces::WORKERS, super::contract_of);
    triggers::watch(context, running, &queue);
    let service_namespaces = ServiceNamespaces {
        context: context.clone(),
    };
    running.work(service_namespaces, &queue);
    sharing::start(context, running);
    queue
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
        let pending_exports = state
            .contract(contract)
            .map_or_else(Vec::new, |contract| self.context.pending_requests.exports(&contract));
        let made = &self.context.made;
        let provider = namespace
            .as_ref()
            .map_or_else(String::new, |namespace| namespace.name_any());
        let (roles, bindings) = (made.roles.list_in(&provider), made.role_bindings.list_in(&provider));
        let server_binding = made.server_bindings.get(&provider, claims::SERVER_ROLE);
        let view_binding = made.server_bindings.get(&provider, view::VIEW_BINDING);
        let (mut shared_roles, mut shared_bindings) = (made.roles.list_in(name), made.role_bindings.list_in(name));
        if caches.namespaces.get("", name).is_some() {
            // A namespace of a contract is never shared, so that its roles serve no claims of this one.
            (shared_roles, shared_bindings) = (Vec::new(), Vec::new());
        }
        let shared = made.shared.get("", name);
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
            pending_exports: &pending_exports,
            roles: &roles,
            bindings: &bindings,
            server_binding: server_binding.as_deref(),
            view_binding: view_binding.as_deref(),
            left: None,
            shared: SharedSeen {
                namespace: shared.as_deref(),
                roles: &shared_roles,
                bindings: &shared_bindings,
                proved: &self.proved(contract, &exports),
                withheld: state.policies.standing(WatchedPolicy::Binder).withholds(),
                reserved: shared::reserved(name, &state.settings, |name| state.contract(name).is_some()),
            },
            beyond: object.as_deref().and_then(|object| self.beyond(contract, object)),
            server: &state.identity.subject(),
            now: Timestamp::now(),
        };
        let mut step = plan::plan(&seen);
        let left;
        if let (NamespaceStep::Count, Some(namespace)) = (&step, &namespace) {
            left = match self.count(&seen, namespace).await {
                Ok(left) => left,
                Err(error) => return self.explain(&seen, error).await,
            };
            seen.left = Some(&left);
            step = plan::plan(&seen);
        }
        if seen.beyond.is_some() && !matches!(&step, NamespaceStep::Apply(writes) if writes.is_empty()) {
            state.refusals.count(LimitName::Namespaces);
        }
        match step {
            NamespaceStep::Apply(writes) => self.apply_all(&seen, writes).await,
            NamespaceStep::Drain(writes) => {
                // While the number of objects changes, it is worth looking soon.
                let goes_on = !writes.is_empty();
                self.apply_all(&seen, writes).await?;
                Ok(if goes_on {
                    Next::After(DRAINING.first)
                } else {
                    Next::Seldom(DRAINING)
                })
            }
            NamespaceStep::Leave(writes) => {
                self.apply_all(&seen, writes).await?;
                Ok(Next::Seldom(KEPT))
            }
            NamespaceStep::Blind(writes) => {
                self.apply_all(&seen, writes).await?;
                Ok(Next::Seldom(DRAINING))
            }
            NamespaceStep::Count => Ok(Next::Change),
            NamespaceStep::Delete(write) => {
                let client = &state.clients.write;
                let mapped: Api<APIServiceNamespace> = Api::namespaced(client.clone(), contract);
                // One that the cache does not show yet keeps its namespace.
                if object.is_some() || mapped.get_opt(name).await?.is_none() {
                    write.apply(client).await?;
                }
                Ok(Next::Change)
            }
        }
    }
}

impl ServiceNamespaces {
    /// The provider namespace of an APIServiceNamespace that is gone. First looks under the name that would be assigned, where
    /// it nearly always is.
    fn left_behind(&self, key: &ObjectKey) -> Option<Arc<Namespace>> {
        let namespaces = &self.context.state.caches.namespaces;
        let is_its = |namespace: &Namespace| contract::made_for(namespace).as_ref() == Some(key);
        let first = namespaces.get("", &names::provider_namespace(&key.namespace, &key.name));
        let first = first.filter(|namespace| is_its(namespace));
        first.or_else(|| namespaces.list(is_its).pop())
    }

    /// Names of the exports for which the admission policy was proved: those whose consumer has cluster-wide rights to write.
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

    /// The limit that the contract has reached; `None` if this namespace is within it.
    fn beyond(&self, contract: &str, object: &APIServiceNamespace) -> Option<LimitReached> {
        let state = &self.context.state;
        let limits = state.settings.limits.of(&state.caches, contract);
        let is_admitted = state.counts.admits_namespace(object, contract, limits.namespaces);
        (!is_admitted).then(|| limits.reached(LimitName::Namespaces, Some(contract)))
    }

    /// Counts what is left in a provider namespace, or, if that is being deleted, lists what waits for finalizers in it. Looks for
    /// valuable objects where that decides.
    async fn count(&self, seen: &Observed<'_>, namespace: &Namespace) -> Result<NamespaceLeftovers, WriteError> {
        let (state, name) = (&self.context.state, namespace.name_any());
        if contract::is_terminating(namespace) {
            return Ok(NamespaceLeftovers {
                leftovers: leftovers::held_in_namespace(state, seen.contract, namespace).await?,
                ..NamespaceLeftovers::default()
            });
        }
        let leftovers = leftovers::in_namespace(state, seen.contract, &name).await?;
        let claimed = claimed::list(state, &name, &recorded(namespace, GrantRecord::Claims)).await?;
        let mut left = end::count(seen, leftovers, claimed);
        if end::needs_look(&left, namespace) {
            left.valuables = Some(valuable::look(state, &name, Some(seen.contract)).await?);
        }
        Ok(left)
    }
}
