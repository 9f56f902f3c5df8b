//! Feeds the hubs of the streams with the changes of the caches.

use std::{collections::HashSet, fmt, sync::Arc};

use bindery_api::v1alpha2::{APIServiceExport, BindableResourcesRequest, BoundSchema};
use bindery_runtime::{
    cache::{Change, Subscription},
    queue::Priority,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Resource, ResourceExt};

use crate::{
    contract::{self, sharing},
    front::streams::hub::{Checksum, Hub, Progress, RemovedObject, Version},
    principal::Principal,
    request,
    state::{Caches, State},
};

/// Prefix of names in the hub of exports that are of schemas. No name of an export has a slash.
pub(crate) const SCHEMA_PREFIX: &str = "schema/";

/// Scope of all contracts in the hub of contracts. The other scopes there have a slash.
pub(crate) const ALL_CONTRACTS: &str = "all";

/// Kinds of the hub of exports.
const EXPORTS: usize = 0;
const SCHEMAS: usize = 1;
/// Kind of the hub of contracts.
const CONTRACTS: usize = 0;
/// Kinds of the hub of requests. It has no second kind.
const REQUESTS: usize = 0;
const UNUSED: usize = 1;

/// The hubs of all streams, which follow the caches. Clones are the same hubs.
#[derive(Clone)]
pub(crate) struct Hubs {
    /// Changes of exports and their schemas, by contract.
    pub(crate) exports: Arc<Hub>,
    /// Changes of requests, by principal.
    pub(crate) requests: Arc<Hub>,
    /// Changes of contracts, by owner and owner group, and of all.
    pub(crate) contracts: Arc<Hub>,
    _subscriptions: Arc<Vec<Subscription>>,
}

impl Hubs {
    pub(crate) fn start(state: &State) -> Self {
        let (exports, requests, contracts) = (Hub::new(), Hub::new(), Hub::new());
        requests.disable_kind(UNUSED);
        let (caches, own_namespace) = (&state.caches, state.settings.namespace.clone());
        let of_part = |namespace: &str, caches: &Caches, hub: &Hub| {
            let contract = caches.namespaces.get("", namespace);
            record_contract(hub, namespace, [contract.as_deref()], None);
        };
        let (of_bindings, of_exports) = (caches.clone(), caches.clone());
        let subscriptions = vec![
            caches
                .namespaces
                .subscribe(into(&contracts, |hub, change: &Change<'_, Namespace>| {
                    let states = [change.old, change.new].map(|state| state.map(AsRef::as_ref));
                    // Namespaces that were made for a contract have its label too.
                    if !states.iter().flatten().any(|state| contract::is_contract(state)) {
                        return;
                    }
                    record_contract(
                        hub,
                        &change.key.name,
                        states,
                        removed(change, ResourceExt::name_any).as_ref(),
                    );
                })),
            caches.cluster_bindings.subscribe(into(&contracts, move |hub, change| {
                of_part(&change.key.namespace, &of_bindings, hub);
            })),
            caches.exports.subscribe(into(&contracts, move |hub, change| {
                of_part(&change.key.namespace, &of_exports, hub);
            })),
            caches.exports.subscribe(into(&exports, record_export)),
            caches.bound_schemas.subscribe(into(&exports, record_schema)),
            caches.requests.subscribe(into(
                &requests,
                move |hub: &Hub, change: &Change<'_, BindableResourcesRequest>| {
                    record_request(hub, change, &own_namespace);
                },
            )),
            // A stream ends when its caller is no owner any more, or its credentials are revoked.
            caches
                .namespaces
                .subscribe(into(&exports, |hub, change: &Change<'_, Namespace>| {
                    hub.wake(&change.key.name);
                })),
            caches
                .cluster_bindings
                .subscribe(into(&exports, |hub, change| hub.wake(&change.key.namespace))),
        ];
        Self {
            exports,
            requests,
            contracts,
            _subscriptions: Arc::new(subscriptions),
        }
    }
}

impl fmt::Debug for Hubs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hubs")
    }
}

fn into<K, R: Fn(&Hub, &Change<'_, K>)>(hub: &Arc<Hub>, record: R) -> impl Fn(&Change<'_, K>) + use<K, R> {
    let hub = Arc::clone(hub);
    move |change| record(&hub, change)
}

fn progress<'a, K: Resource + Checksum>(change: &Change<'a, K>, kind: usize) -> Progress<'a> {
    let version = change.new.and_then(|object| {
        let number = object.meta().resource_version.as_deref()?.parse().ok()?;
        Some(Version {
            number,
            object: object.as_ref(),
        })
    });
    Progress {
        kind,
        version,
        priority: change.priority,
    }
}

/// The object that a change removed, under the name that clients know.
fn removed<K: Resource>(change: &Change<'_, K>, name: impl FnOnce(&K) -> String) -> Option<RemovedObject> {
    let old = change.old.filter(|_| change.new.is_none())?;
    Some(RemovedObject {
        name: name(old),
        uid: old.uid().unwrap_or_default(),
    })
}

fn record_export(hub: &Hub, change: &Change<'_, APIServiceExport>) {
    let removed = removed(change, ResourceExt::name_any);
    let contract = [&*change.key.namespace];
    hub.record(contract, &change.key.name, removed.as_ref(), progress(change, EXPORTS));
}

/// Records a change of a schema, which concerns the exports that hold it if its spec changed.
fn record_schema(hub: &Hub, change: &Change<'_, BoundSchema>) {
    let is_same = matches!((change.old, change.new), (Some(old), Some(new))
        if old.metadata.uid == new.metadata.uid && old.spec == new.spec);
    let contract = (!is_same).then_some(&*change.key.namespace);
    let name = format!("{SCHEMA_PREFIX}{}", change.key.name);
    hub.record(contract, &name, None, progress(change, SCHEMAS));
}

fn record_request(hub: &Hub, change: &Change<'_, BindableResourcesRequest>, own_namespace: &str) {
    let principal = |object: Option<&Arc<BindableResourcesRequest>>| {
        object
            .filter(|object| object.is_grpc(own_namespace))
            .map(|object| request::principal(object, own_namespace).to_json())
    };
    // An object that was replaced under its name may have been another principal's.
    let principals: HashSet<_> = [principal(change.old), principal(change.new)]
        .into_iter()
        .flatten()
        .collect();
    let removed = removed(change, |request| request::request_name(request).to_owned());
    let scopes = principals.iter().map(String::as_str);
    hub.record(scopes, &change.key.name, removed.as_ref(), progress(change, REQUESTS));
}

/// The scope of the contracts of an owner as it is recorded in a contract.
pub(crate) fn scope_of_owner(owner: &Principal) -> String {
    format!("owner/{}", owner.to_json())
}

/// The scope of the contracts that a group owns.
pub(crate) fn scope_of_group(group: &str) -> String {
    format!("group/{group}")
}

/// Records a change of a contract for the owners that it had before or has now. A contract is made of objects of several kinds,
/// which replicas see in different orders: without a version, a stream that resumes on another replica begins with a snapshot.
fn record_contract<'a>(
    hub: &Hub,
    name: &str,
    states: impl IntoIterator<Item = Option<&'a Namespace>>,
    removed: Option<&RemovedObject>,
) {
    let mut scopes = HashSet::from([ALL_CONTRACTS.to_owned()]);
    for namespace in states
        .into_iter()
        .flatten()
        .filter(|state| contract::is_contract(state))
    {
        scopes.extend(contract::owners(namespace).iter().map(scope_of_owner));
        scopes.extend(
            sharing::owner_groups(namespace)
                .iter()
                .map(|group| scope_of_group(group)),
        );
    }
    let progress = Progress {
        kind: CONTRACTS,
        version: None,
        priority: Priority::Backlog,
    };
    hub.record(scopes.iter().map(String::as_str), name, removed, progress);
}
