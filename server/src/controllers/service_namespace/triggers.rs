//! Queues the APIServiceNamespaces that a change concerns.

use std::sync::Arc;

use bindery_api::{
    Conditions as _,
    conditions::READY,
    v1alpha2::{APIServiceExport, APIServiceNamespace, BoundSchema},
};
use bindery_runtime::{
    cache::{Cache, ObjectKey},
    queue::Queue,
};
use k8s_openapi::api::{core::v1::Namespace, rbac::v1::ClusterRole};
use kube::{Resource, api::ObjectMeta};

use super::{Context, Running, pending_requests, plan::TOO_MANY_NAMESPACES, shared, subject};
use crate::{contract, state::State, template};

/// Subscribes to everything that an APIServiceNamespace depends on.
pub(super) fn watch(context: &Context, running: &mut Running, queue: &Queue<ObjectKey>) {
    let caches = &context.state.caches;
    running.watch(&caches.service_namespaces, queue, |change| {
        let is_count = matches!((change.old, change.new), (Some(old), Some(new)) if is_count(old, new));
        (!is_count).then(|| change.key.clone())
    });
    running.watch(&caches.namespaces, queue, |change| contract::made_for(subject(change)?));
    let state = context.state.clone();
    running.watch(&caches.exports, queue, move |change| {
        // Conditions change often, and nothing here depends on them.
        let same = matches!((change.old, change.new), (Some(old), Some(new)) if counts_the_same(old, new));
        of_contract(&state, (!same).then_some(&*change.key.namespace))
    });
    let state = context.state.clone();
    running.watch(&caches.bound_schemas, queue, move |change| {
        // The scopes of its schemas decide where an export needs rights.
        let scope = |schema: &Arc<BoundSchema>| schema.spec.scope;
        let same = change.old.map(scope) == change.new.map(scope);
        of_contract(&state, (!same).then_some(&*change.key.namespace))
    });
    // One that goes lets another one be mapped, where the contract is at its limit.
    let state = context.state.clone();
    running.watch(&caches.service_namespaces, queue, move |change| match change.new {
        Some(_) => Vec::new(),
        None => newly_admitted(&state, &change.key.namespace),
    });
    let state = context.state.clone();
    running.watch(&caches.namespaces, queue, move |change| {
        let contract = change.old.and_then(|namespace| contract::of(&**namespace));
        let limits = |namespace: &Arc<Namespace>| state.settings.limits.of_contract(namespace);
        match (contract, change.new) {
            (Some(contract), None) => newly_admitted(&state, contract),
            // An admin may have raised the limits of the contract.
            (Some(contract), Some(new)) if change.old.map(limits) != Some(limits(new)) => {
                newly_admitted(&state, contract)
            }
            _ => Vec::new(),
        }
    });
    let namespaces = caches.namespaces.clone();
    running.watch(&context.made.roles, queue, move |change| {
        of_role(&namespaces, subject(change)?.as_ref())
    });
    let namespaces = caches.namespaces.clone();
    running.watch(&context.made.role_bindings, queue, move |change| {
        of_role(&namespaces, subject(change)?.as_ref())
    });
    // A consumer with cluster-wide rights to write may also write claimed objects in shared namespaces.
    let state = context.state.clone();
    running.watch(&context.made.cluster_role_bindings, queue, move |change| {
        let binding = subject(change).filter(|_| change.old.is_some() != change.new.is_some());
        of_contract(&state, binding.and_then(|binding| contract::of(&**binding)))
    });
    let state = context.state.clone();
    running.watch(&context.made.cluster_roles, queue, move |change| {
        let rules = |role: &Arc<ClusterRole>| role.rules.clone();
        let role = subject(change).filter(|_| change.old.map(rules) != change.new.map(rules));
        of_contract(&state, role.and_then(|role| contract::of(&**role)))
    });
    let namespaces = caches.namespaces.clone();
    running.watch(&context.made.server_bindings, queue, move |change| {
        contract::made_for(&*namespaces.get("", &change.key.namespace)?)
    });
    let mapped = caches.service_namespaces.clone();
    running.watch(&context.made.shared, queue, move |change| {
        of_shared(&mapped, &change.key.name, subject(change).map(AsRef::as_ref))
    });
    // A request that is decided or deleted keeps no rights of its export's predecessor.
    let state = context.state.clone();
    running.watch(&caches.requests, queue, move |change| {
        let contracts =
            pending_requests::ended(change).map_or_else(Vec::new, |ended| pending_requests::contracts(&state, ended));
        let contracts = contracts.iter();
        contracts
            .flat_map(|contract| of_contract(&state, contract.metadata.name.as_deref()))
            .collect::<Vec<_>>()
    });
    let state = context.state.clone();
    running.watch(&caches.namespaces, queue, move |change| {
        of_contract(
            &state,
            pending_requests::fulfilled(change).and_then(|it| it.metadata.name.as_deref()),
        )
    });
    let mapped = caches.service_namespaces.clone();
    running.follow_policies(context, queue, move || keys(&mapped, |_| true));
    let mapped = caches.service_namespaces.clone();
    running.watch(&caches.aggregated_role, queue, move |_| {
        keys(&mapped, |mapped| {
            let ready = mapped.condition(READY);
            ready.is_some_and(|ready| ready.reason == template::SERVER_LACKS_RIGHTS)
        })
    });
}

fn keys(mapped: &Cache<APIServiceNamespace>, admit: impl Fn(&APIServiceNamespace) -> bool) -> Vec<ObjectKey> {
    let mapped = mapped.list(admit);
    mapped.iter().map(|mapped| ObjectKey::of(&**mapped)).collect()
}

/// Those of a contract that have, or get, a provider namespace. The others depend on nothing else of their contract, so that a crowd of them
/// costs nothing when that changes.
fn of_contract(state: &State, contract: Option<&str>) -> Vec<ObjectKey> {
    let Some(contract) = contract else {
        return Vec::new();
    };
    let limits = state.settings.limits.of(&state.caches, contract);
    let served = state.counts.served_namespaces(contract, limits.namespaces);
    let key = |name: &Arc<str>| ObjectKey::new(contract, Arc::clone(name));
    served.iter().map(key).collect()
}

/// Whether it was refused because its contract has too many.
fn is_refused(mapped: &APIServiceNamespace) -> bool {
    let ready = mapped.condition(READY);
    ready.is_some_and(|ready| ready.reason == TOO_MANY_NAMESPACES)
}

/// The APIServiceNamespaces of a contract that were refused as too many and are within the limit now.
fn newly_admitted(state: &State, contract: &str) -> Vec<ObjectKey> {
    let limits = state.settings.limits.of(&state.caches, contract);
    let admitted = state
        .counts
        .admitted_namespaces(contract, limits.namespaces)
        .into_iter();
    let mapped = admitted.filter_map(|name| state.caches.service_namespaces.get(contract, &name));
    mapped
        .filter(|mapped| is_refused(mapped))
        .map(|mapped| ObjectKey::of(&*mapped))
        .collect()
}

/// Key of the APIServiceNamespace that a role or role binding belongs to, in a provider namespace or in a shared one.
fn of_role<K: Resource>(namespaces: &Cache<Namespace>, role: &K) -> Option<ObjectKey> {
    let within = role.meta().namespace.clone().unwrap_or_default();
    match namespaces.get("", &within) {
        Some(namespace) => contract::made_for(&namespace),
        None => Some(ObjectKey::new(contract::of(role)?, within)),
    }
}

/// Keys of the APIServiceNamespaces that use a shared namespace: those of its name, and those in its annotations.
fn of_shared(mapped: &Cache<APIServiceNamespace>, name: &str, namespace: Option<&Namespace>) -> Vec<ObjectKey> {
    let mut sharing = keys(mapped, |mapped| mapped.metadata.name.as_deref() == Some(name));
    let users = namespace.into_iter().flat_map(shared::users);
    sharing.extend(users.map(|contract| ObjectKey::new(contract, name)));
    sharing
}

/// Whether a change only reports how much is left in a namespace that ends. The server made it, and looks again by time.
fn is_count(old: &APIServiceNamespace, new: &APIServiceNamespace) -> bool {
    let metadata = |mapped: &APIServiceNamespace| ObjectMeta {
        resource_version: None,
        managed_fields: None,
        ..mapped.metadata.clone()
    };
    new.metadata.deletion_timestamp.is_some() && old.status != new.status && metadata(old) == metadata(new)
}

/// Whether an export is the same for the namespaces of its contract.
fn counts_the_same(old: &APIServiceExport, new: &APIServiceExport) -> bool {
    old.metadata.uid == new.metadata.uid
        && old.metadata.deletion_timestamp.is_some() == new.metadata.deletion_timestamp.is_some()
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::{APIServiceNamespaceSpec, APIServiceNamespaceStatus};
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::ResourceExt as _;

    use super::*;

    fn mapped(version: &str, deleting: bool, status: Option<&str>) -> APIServiceNamespace {
        let mut mapped = APIServiceNamespace::new("team1", APIServiceNamespaceSpec {});
        mapped.metadata.resource_version = Some(version.to_owned());
        mapped.metadata.deletion_timestamp = deleting.then_some(Time(Timestamp::UNIX_EPOCH));
        mapped.status = status.map(|namespace| APIServiceNamespaceStatus {
            namespace: Some(namespace.to_owned()),
            ..APIServiceNamespaceStatus::default()
        });
        mapped
    }

    #[test]
    fn saying_how_much_is_left_is_no_reason_to_count_again() {
        let before = mapped("1", true, None);
        assert!(is_count(&before, &mapped("2", true, Some("a"))));
        assert!(
            !is_count(&mapped("1", false, None), &mapped("2", true, None)),
            "it begins to end"
        );
        assert!(
            !is_count(&mapped("1", false, None), &mapped("2", false, Some("a"))),
            "it stays"
        );
        let mut marked = mapped("2", true, Some("a"));
        marked
            .annotations_mut()
            .insert("kube-bind.io/x".to_owned(), "y".to_owned());
        assert!(!is_count(&before, &marked));
    }
}
