//! What the API server serves: one endpoint per resource and version.

use std::{collections::BTreeMap, sync::Arc};

use crate::{built_in, kind::KindInfo, schema::Schema};

/// One resource in one version.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) info: KindInfo,
    /// Plural name.
    pub(crate) resource: String,
    pub(crate) singular: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) traits: Traits,
    /// Group of the stored objects. It differs from that of the endpoint where two groups share one resource.
    pub(crate) storage_group: String,
    /// Present for custom resources.
    pub(crate) custom: Option<Custom>,
}

/// How the writes of a kind behave.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a trait of its own")]
pub(crate) struct Traits {
    /// Objects have `metadata.generation`, which counts the changes of the spec.
    pub(crate) generation: bool,
    /// An update without a resource version is accepted.
    pub(crate) unconditional_update: bool,
    /// An update creates an object that does not exist.
    pub(crate) create_on_update: bool,
    /// A deletion answers with the object instead of a Status.
    pub(crate) returns_deleted: bool,
    /// Deletions have no propagation policy.
    pub(crate) no_garbage_collection: bool,
    /// Names may have any characters that fit into a path.
    pub(crate) path_names: bool,
}

/// What a CRD says about the version of an endpoint.
#[derive(Debug)]
pub(crate) struct Custom {
    /// Name of the CRD.
    pub(crate) definition: String,
    pub(crate) schema: Arc<Schema>,
    /// `apiVersion` of the stored objects.
    pub(crate) storage_api_version: String,
    /// Number of the schema: objects that carry it are already pruned by it.
    pub(crate) stamp: u64,
    /// The CRD is being deleted.
    pub(crate) terminating: bool,
    /// Paths of the fields that selectors may name.
    pub(crate) selectable: Vec<String>,
}

impl Endpoint {
    pub(crate) fn group(&self) -> &str {
        &self.info.group
    }

    /// If the objects of this endpoint are stored as this resource.
    pub(crate) fn stores(&self, group: &str, resource: &str) -> bool {
        self.resource == resource && self.storage_group == group
    }
}

/// All endpoints of a cluster. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    /// By `group/version/resource`.
    by_path: BTreeMap<String, Arc<Endpoint>>,
    /// Path of one endpoint by group and kind, for owner references.
    by_kind: BTreeMap<(String, String), Arc<Endpoint>>,
}

fn path(group: &str, version: &str, resource: &str) -> String {
    [group, "/", version, "/", resource].concat()
}

impl Endpoints {
    /// The endpoints of the kinds that Kubernetes brings.
    pub(crate) fn built_in() -> Self {
        let mut endpoints = Self {
            by_path: BTreeMap::new(),
            by_kind: BTreeMap::new(),
        };
        for endpoint in built_in::endpoints() {
            endpoints.add(Arc::new(endpoint));
        }
        endpoints
    }

    pub(crate) fn add(&mut self, endpoint: Arc<Endpoint>) {
        let info = &endpoint.info;
        let kind = (info.group.clone(), info.kind.clone());
        self.by_kind.insert(kind, Arc::clone(&endpoint));
        let path = path(&info.group, &info.version, &endpoint.resource);
        self.by_path.insert(path, endpoint);
    }

    /// Removes the endpoints of a CRD.
    pub(crate) fn remove_definition(&mut self, definition: &str) {
        let is_other = |endpoint: &Arc<Endpoint>| endpoint.custom.as_ref().is_none_or(|it| it.definition != definition);
        self.by_path.retain(|_, endpoint| is_other(endpoint));
        self.by_kind.retain(|_, endpoint| is_other(endpoint));
    }

    /// The endpoints of a CRD.
    pub(crate) fn of_definition(&self, definition: &str) -> impl Iterator<Item = &Arc<Endpoint>> {
        let of =
            move |endpoint: &&Arc<Endpoint>| endpoint.custom.as_ref().is_some_and(|it| it.definition == definition);
        self.by_path.values().filter(of)
    }

    pub(crate) fn get(&self, group: &str, version: &str, resource: &str) -> Option<&Arc<Endpoint>> {
        self.by_path.get(&path(group, version, resource))
    }

    pub(crate) fn of_kind(&self, group: &str, kind: &str) -> Option<&Arc<Endpoint>> {
        self.by_kind.get(&(group.to_owned(), kind.to_owned()))
    }

    /// Any endpoint of a stored resource.
    pub(crate) fn of_resource(&self, group: &str, resource: &str) -> Option<&Arc<Endpoint>> {
        self.iter()
            .find(|endpoint| endpoint.stores(group, resource) && endpoint.info.group == group)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.by_path.values()
    }
}
