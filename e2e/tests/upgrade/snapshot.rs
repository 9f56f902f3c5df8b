//! Versions of the objects on both clusters at one moment.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bindery_e2e::ControlPlane;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};

use crate::{
    cells::{CELLS, CLAIM},
    world::World,
};

/// What must be the same objects after the upgrade, although somebody may have written to them.
const CONTROL: [(&str, &str, &str, &str); 10] = [
    ("", "v1", "Namespace", "namespaces"),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    (
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    ),
    ("kube-bind.io", "v1alpha2", "APIServiceBinding", "apiservicebindings"),
    (
        "kube-bind.io",
        "v1alpha2",
        "APIServiceBindingBundle",
        "apiservicebindingbundles",
    ),
    ("kube-bind.io", "v1alpha2", "APIServiceExport", "apiserviceexports"),
    (
        "kube-bind.io",
        "v1alpha2",
        "APIServiceNamespace",
        "apiservicenamespaces",
    ),
    ("kube-bind.io", "v1alpha2", "BoundSchema", "boundschemas"),
    ("kube-bind.io", "v1alpha2", "ClusterBinding", "clusterbindings"),
];

/// Each object by cluster, kind, namespace and name.
type Versions = BTreeMap<[String; 4], String>;

/// The state of both clusters.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// UID and resource version of synced and claimed objects.
    synced: Versions,
    /// UID of what the programs keep beside them.
    control: Versions,
}

// === impl Snapshot ===

impl Snapshot {
    pub(crate) async fn take(world: &World) -> Result<Self> {
        let mut snapshot = Self::default();
        for plane in [&world.provider.plane, &world.consumer.plane] {
            for cell in &CELLS {
                snapshot
                    .add_synced(plane, &cell.resource(), &ListParams::default())
                    .await?;
            }
            let secrets = resource(("", "v1", "Secret", "secrets"));
            snapshot
                .add_synced(plane, &secrets, &ListParams::default().labels(CLAIM))
                .await?;
            for kind in CONTROL {
                for object in objects(plane.client(), &resource(kind), &ListParams::default()).await? {
                    let uid = object.uid().unwrap_or_default();
                    snapshot.control.insert(key(plane, kind.2, &object), uid);
                }
            }
        }
        Ok(snapshot)
    }

    async fn add_synced(&mut self, plane: &ControlPlane, resource: &ApiResource, params: &ListParams) -> Result<()> {
        for object in objects(plane.client(), resource, params).await? {
            let version = format!("{:?} {:?}", object.uid(), object.resource_version());
            self.synced.insert(key(plane, &resource.api_version, &object), version);
        }
        Ok(())
    }

    /// Fails if a synced object of such a name was written or is missing, or if anything else was made anew.
    pub(crate) fn ensure_kept_in(&self, after: &Self, is_kept: impl Fn(&str) -> bool) -> Result<()> {
        let kept = self.synced.iter().filter(|(key, _)| key[1] == "v1" || is_kept(&key[3]));
        let mut compared = 0;
        for (key, before) in kept {
            let now = after.synced.get(key);
            ensure!(now == Some(before), "{key:?} was {before}, and is {now:?}");
            compared += 1;
        }
        // Each cell has kept objects on both sides, and the first claimed Secrets too.
        ensure!(
            compared >= 2 * 3 * CELLS.len() + 4,
            "only {compared} objects were compared"
        );
        for (key, before) in &self.control {
            let now = after.control.get(key);
            ensure!(now == Some(before), "{key:?} was {before}, and is {now:?}");
        }
        Ok(())
    }
}

fn resource((group, version, kind, plural): (&str, &str, &str, &str)) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

fn key(plane: &ControlPlane, kind: &str, object: &DynamicObject) -> [String; 4] {
    let namespace = object.namespace().unwrap_or_default();
    [plane.name().to_owned(), kind.to_owned(), namespace, object.name_any()]
}

/// All objects of a resource; none where the cluster does not serve it.
async fn objects(client: Client, resource: &ApiResource, params: &ListParams) -> Result<Vec<DynamicObject>> {
    match Api::<DynamicObject>::all_with(client, resource).list(params).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        listed => Ok(listed?.items),
    }
}
