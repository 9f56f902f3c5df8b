//! What streams are told: changes of the caches, sorted to those who may watch them.

use std::{collections::HashSet, fmt, sync::Arc};

use bindery_api::v1alpha2::{APIServiceExport, BindableResourcesRequest, BoundSchema};
use bindery_runtime::cache::{Change, Subscription};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Resource, ResourceExt as _};

use super::stream::hub::{Gone, Hub, Landmark, Note, Version};
use crate::{controllers::request, state::State};

/// Begins the name of a note that is about a schema; no export's name can have it.
pub(super) const SCHEMA: &str = "schema/";

/// Sources of the hub of exports, and of that of requests.
const EXPORTS: usize = 0;
const SCHEMAS: usize = 1;
const REQUESTS: usize = 0;
/// The hub of requests has no second source. What nothing comes from is always caught up.
const NOTHING: usize = 1;

/// The hubs, kept fed. Clones are the same ones.
#[derive(Clone)]
pub(super) struct Feeds {
    /// By contract.
    pub(super) exports: Arc<Hub>,
    /// By principal.
    pub(super) requests: Arc<Hub>,
    _subscriptions: Arc<Vec<Subscription>>,
}

impl Feeds {
    pub(super) fn start(state: &State) -> Self {
        let (exports, requests) = (Hub::new(), Hub::new());
        requests.never_from(NOTHING);
        let (caches, home) = (&state.caches, state.settings.namespace.clone());
        let subscriptions = vec![
            caches.exports.subscribe(feed(&exports, note_export)),
            caches.bound_schemas.subscribe(feed(&exports, note_schema)),
            caches.requests.subscribe(feed(
                &requests,
                move |hub: &Hub, change: &Change<'_, BindableResourcesRequest>| note_request(hub, change, &home),
            )),
            // Owners and revocations: who watches may have to stop.
            caches
                .namespaces
                .subscribe(feed(&exports, |hub, change: &Change<'_, Namespace>| {
                    hub.wake(&change.key.name);
                })),
            caches
                .cluster_bindings
                .subscribe(feed(&exports, |hub, change| hub.wake(&change.key.namespace))),
        ];
        Self {
            exports,
            requests,
            _subscriptions: Arc::new(subscriptions),
        }
    }
}

impl fmt::Debug for Feeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Feeds")
    }
}

fn feed<K, N: Fn(&Hub, &Change<'_, K>)>(hub: &Arc<Hub>, note: N) -> impl Fn(&Change<'_, K>) + use<K, N> {
    let hub = Arc::clone(hub);
    move |change| note(&hub, change)
}

fn version<'a, K: Resource + Landmark>(change: &Change<'a, K>) -> Option<Version<'a>> {
    let object = change.new?.as_ref();
    let number = object.meta().resource_version.as_deref()?.parse().ok()?;
    Some(Version { number, object })
}

/// The object that is gone, under the name that clients know.
fn gone<K: Resource>(change: &Change<'_, K>, name: impl FnOnce(&K) -> String) -> Option<Gone> {
    let old = change.old.filter(|_| change.new.is_none())?;
    Some(Gone {
        name: name(old),
        uid: old.uid().unwrap_or_default(),
    })
}

fn note_export(hub: &Hub, change: &Change<'_, APIServiceExport>) {
    hub.note(&Note {
        scope: &change.key.namespace,
        name: &change.key.name,
        gone: gone(change, kube::ResourceExt::name_any),
        source: EXPORTS,
        version: version(change),
        lane: change.lane,
    });
}

/// A schema changes the exports that hold it, if its spec changed.
fn note_schema(hub: &Hub, change: &Change<'_, BoundSchema>) {
    let same = matches!((change.old, change.new), (Some(old), Some(new))
        if old.metadata.uid == new.metadata.uid && old.spec == new.spec);
    if same {
        hub.pass(SCHEMAS, version(change), change.lane);
        return;
    }
    hub.note(&Note {
        scope: &change.key.namespace,
        name: &format!("{SCHEMA}{}", change.key.name),
        gone: None,
        source: SCHEMAS,
        version: version(change),
        lane: change.lane,
    });
}

fn note_request(hub: &Hub, change: &Change<'_, BindableResourcesRequest>, home: &str) {
    let made_by = |object: Option<&Arc<BindableResourcesRequest>>| {
        object
            .filter(|object| request::is_grpc(object, home))
            .map(|object| request::principal(object, home).to_json())
    };
    // Of an object that was made anew, both makers are concerned.
    let scopes: HashSet<_> = [made_by(change.old), made_by(change.new)]
        .into_iter()
        .flatten()
        .collect();
    if scopes.is_empty() {
        hub.pass(REQUESTS, version(change), change.lane);
    }
    for scope in scopes {
        hub.note(&Note {
            scope: &scope,
            name: &change.key.name,
            gone: gone(change, |asked| request::request_name(asked).to_owned()),
            source: REQUESTS,
            version: version(change),
            lane: change.lane,
        });
    }
}
