//! Leftovers: the synced objects of a contract that are left on the provider. The API server is asked for them and not a
//! cache, since other objects are deleted on the strength of the answer.

use std::{collections::BTreeSet, fmt};

use bindery_api::{
    annotations, finalizers, names, retention,
    v1alpha2::{APIServiceExport, GroupResource, Isolation},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{ResourceExt as _, api::ObjectMeta};

use crate::{contract, state::State, writes::WriteError};

mod list;
mod record;
mod release;
mod resource;

pub(crate) use list::metadata;
use list::{SearchArea, list};
pub use record::{GrantRecord, recorded};
pub use release::{release, withdraw};
pub(crate) use resource::{api, everywhere};

/// How many requests for objects run at a time.
const CONCURRENT: usize = 8;

/// The synced objects that are left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// The objects, in the order of resource, namespace and name.
    pub objects: Vec<SyncedObject>,
}

/// A synced object on the provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SyncedObject {
    /// Resource of the object.
    pub resource: GroupResource,
    /// Namespace of the object; empty for a cluster-scoped one.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Whether the object keeps nothing from being deleted: it was released, or it is retained after its source was deleted, or the
    /// provider created it and no consumer has adopted it.
    pub released: bool,
    /// UID of the object.
    pub uid: Option<String>,
    /// Resource version that the object was seen at.
    pub version: Option<String>,
    /// The finalizers for which an object that is being deleted waits, but for those that the garbage collector removes; none for an object
    /// that is not being deleted.
    pub waits_for: Vec<String>,
}

/// The objects of an export: those of its resources that belong to the contract, except for resources that another export of
/// the contract offers too. Released objects are among them, and those that the provider created for adoption.
pub async fn of_export(state: &State, export: &APIServiceExport) -> Result<Leftovers, WriteError> {
    let contract = export.namespace().unwrap_or_default();
    let resources = own_resources(state, export);
    // Cluster-scoped objects of the consumer may live in the contract namespace.
    let with_contract_namespace = export.spec.isolation == Isolation::Namespaced;
    of_contract(state, &contract, &resources, with_contract_namespace).await
}

/// The objects of these resources that belong to a contract, wherever they are.
pub async fn of_resources(
    state: &State,
    contract: &str,
    resources: &BTreeSet<GroupResource>,
) -> Result<Leftovers, WriteError> {
    of_contract(state, contract, resources, true).await
}

async fn of_contract(
    state: &State,
    contract: &str,
    resources: &BTreeSet<GroupResource>,
    with_contract_namespace: bool,
) -> Result<Leftovers, WriteError> {
    let namespaces = state.caches.namespaces.list(|namespace| {
        contract::of(namespace) == Some(contract) && (with_contract_namespace || !contract::is_contract(namespace))
    });
    let mut namespaces: Vec<_> = namespaces.iter().map(|namespace| namespace.name_any()).collect();
    namespaces.extend(unseen_namespaces(state, contract));
    let area = SearchArea {
        namespaces,
        cluster: true,
    };
    list(state, contract, resources, &area).await
}

/// The provider namespaces of a contract that were made so shortly before that the cache of namespaces need not show them yet.
pub fn unseen_namespaces(state: &State, contract: &str) -> Vec<String> {
    let caches = &state.caches;
    let requests = caches.service_namespaces.list_in(contract).into_iter();
    let names = requests.map(|request| names::provider_namespace(contract, &request.name_any()));
    names.filter(|name| caches.namespaces.get("", name).is_none()).collect()
}

/// The objects in a provider namespace, of every resource that the contract may have had there.
pub async fn in_namespace(state: &State, contract: &str, namespace: &str) -> Result<Leftovers, WriteError> {
    let mut resources = known_resources(state, contract);
    // The record alone tells of resources that were unbound and whose template is gone.
    if let Some(namespace) = state.caches.namespaces.get("", namespace) {
        resources.extend(recorded(&namespace, GrantRecord::Resources));
    }
    let area = SearchArea {
        namespaces: vec![namespace.to_owned()],
        cluster: false,
    };
    list(state, contract, &resources, &area).await
}

/// Lists the objects that wait for finalizers in a provider namespace that is being deleted: those of every owner, of each custom
/// resource that the contract may have had there.
pub async fn held_in_namespace(state: &State, contract: &str, namespace: &Namespace) -> Result<Leftovers, WriteError> {
    let mut resources = known_resources(state, contract);
    for record in [GrantRecord::Resources, GrantRecord::Claims] {
        resources.extend(recorded(namespace, record));
    }
    let mut objects = list::everything(state, contract, &resources, &namespace.name_any()).await?;
    objects.retain(|object| !object.waits_for.is_empty());
    Ok(Leftovers { objects })
}

/// The resources of an export that no other export of its contract offers.
fn own_resources(state: &State, export: &APIServiceExport) -> BTreeSet<GroupResource> {
    let mut others = state
        .caches
        .exports
        .list_in(export.metadata.namespace.as_deref().unwrap_or_default());
    others.retain(|other| other.uid() != export.uid() && other.metadata.deletion_timestamp.is_none());
    let shared: BTreeSet<_> = others.iter().flat_map(|other| resources_of(other)).collect();
    resources_of(export)
        .filter(|resource| !shared.contains(resource))
        .cloned()
        .collect()
}

/// The resources that a contract has, had not long ago, or may get: those of its exports, of their schemas, and of the
/// templates granted to it. Of a contract that is gone nobody knows, so that these are all that the provider may offer.
fn known_resources(state: &State, contract: &str) -> BTreeSet<GroupResource> {
    let mut known = BTreeSet::new();
    for export in state.caches.exports.list_in(contract) {
        known.extend(resources_of(&export).cloned());
    }
    for schema in state.caches.bound_schemas.list_in(contract) {
        known.insert(GroupResource::new(&schema.spec.group, &schema.spec.names.plural));
    }
    let Some(namespace) = state.contract(contract) else {
        let offered = state.caches.definitions.list(|_| true);
        known.extend(
            offered
                .iter()
                .map(|definition| GroupResource::new(&definition.spec.group, &definition.spec.names.plural)),
        );
        return known;
    };
    for name in contract::grants::granted_templates(&namespace) {
        if let Some(template) = state.caches.templates.get("", &name) {
            let resources = template.spec.resources.iter();
            known.extend(resources.map(|resource| resource.group_resource.clone()));
        }
    }
    known
}

fn resources_of(export: &APIServiceExport) -> impl Iterator<Item = &GroupResource> {
    export.spec.resources.iter().map(|resource| &resource.group_resource)
}

// === impl Leftovers ===

impl Leftovers {
    /// How many objects have not been released.
    pub fn count(&self) -> usize {
        self.objects.iter().filter(|object| !object.released).count()
    }

    /// What objects that are being deleted wait for, and the mend; `None` if none waits.
    pub fn explain_held(&self) -> Option<String> {
        let mut held = self.objects.iter().filter(|object| !object.waits_for.is_empty());
        let first = held.next()?;
        let SyncedObject {
            resource,
            namespace,
            name,
            waits_for,
            ..
        } = first;
        let scope = match namespace.as_str() {
            "" => String::new(),
            namespace => format!(" -n {namespace}"),
        };
        let more = match held.count() {
            0 => String::new(),
            1 => ", and 1 more object waits".to_owned(),
            more => format!(", and {more} more objects wait"),
        };
        Some(format!(
            "{first} is being deleted and waits for finalizers: {}{more}; if no program removes them any more, an admin of the \
             provider can: kubectl patch {resource} {name}{scope} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'",
            waits_for.join(", ")
        ))
    }

    /// Whether there are released objects.
    pub fn has_released(&self) -> bool {
        self.objects.iter().any(|object| object.released)
    }
}

impl fmt::Display for Leftovers {
    /// How many objects have not been released, the names of the first three, and what those wait for that are being deleted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMED: usize = 3;
        let unreleased: Vec<_> = self.objects.iter().filter(|object| !object.released).collect();
        let named: Vec<_> = unreleased.iter().take(NAMED).map(ToString::to_string).collect();
        let more = if unreleased.len() > NAMED { ", ..." } else { "" };
        let remain = if unreleased.len() == 1 {
            "object remains"
        } else {
            "objects remain"
        };
        write!(f, "{} {remain}: {}{more}", unreleased.len(), named.join(", "))?;
        match self.explain_held() {
            Some(held) => write!(f, "; {held}"),
            None => Ok(()),
        }
    }
}

// === impl SyncedObject ===

impl SyncedObject {
    /// An object by its metadata. It counts as released if that was for this contract, or for any, and if it is retained: nobody has to
    /// release it then, and it ends by itself.
    pub fn of(resource: GroupResource, namespace: &str, metadata: &ObjectMeta, contract: &str) -> Self {
        let value = |key: &str| metadata.annotations.as_ref()?.get(key).map(String::as_str);
        let released = value(annotations::RELEASED).is_some_and(|value| annotations::is_released(value, contract));
        let is_deleting = metadata.deletion_timestamp.is_some();
        let waits_for = metadata.finalizers.iter().flatten();
        let waits_for =
            waits_for.filter(|name| is_deleting && !finalizers::OF_GARBAGE_COLLECTOR.contains(&name.as_str()));
        Self {
            resource,
            namespace: namespace.to_owned(),
            name: metadata.name.clone().unwrap_or_default(),
            released: released || retention::is_retained(value, contract),
            uid: metadata.uid.clone(),
            version: metadata.resource_version.clone(),
            waits_for: waits_for.cloned().collect(),
        }
    }
}

impl fmt::Display for SyncedObject {
    /// The resource, and the object's namespace and name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource,
            namespace,
            name,
            ..
        } = self;
        match namespace.as_str() {
            "" => write!(f, "{resource} {name}"),
            namespace => write!(f, "{resource} {namespace}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests;
