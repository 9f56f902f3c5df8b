//! Versions of the objects on both clusters at one moment.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bindery_api::names::KUBECONFIG_KEY;
use bindery_e2e::{ControlPlane, wildwest};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::Value;

use crate::{
    KEPT,
    cells::{CELLS, CLAIM},
    world::World,
};

/// What the programs keep beside synced objects, and on what they run: group, version, kind and plural.
const CONTROL: [(&str, &str, &str, &str); 16] = [
    ("", "v1", "Namespace", "namespaces"),
    ("", "v1", "ServiceAccount", "serviceaccounts"),
    ("apps", "v1", "Deployment", "deployments"),
    (RBAC, "v1", "Role", "roles"),
    (RBAC, "v1", "RoleBinding", "rolebindings"),
    (RBAC, "v1", "ClusterRole", "clusterroles"),
    (RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings"),
    (
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    ),
    (KUBE_BIND, "v1alpha2", "APIServiceBinding", "apiservicebindings"),
    (
        KUBE_BIND,
        "v1alpha2",
        "APIServiceBindingBundle",
        "apiservicebindingbundles",
    ),
    (KUBE_BIND, "v1alpha2", "APIServiceExport", "apiserviceexports"),
    (KUBE_BIND, "v1alpha2", "APIServiceNamespace", "apiservicenamespaces"),
    (
        KUBE_BIND,
        "v1alpha2",
        "BindableResourcesRequest",
        "bindableresourcesrequests",
    ),
    (KUBE_BIND, "v1alpha2", "BoundSchema", "boundschemas"),
    (KUBE_BIND, "v1alpha2", "ClusterBinding", "clusterbindings"),
    ("apps.cloudrobotics.com", "v1alpha1", "ResourceSet", "resourcesets"),
];
const RBAC: &str = "rbac.authorization.k8s.io";
const KUBE_BIND: &str = "kube-bind.io";

/// An object by cluster, kind, namespace and name.
type Key = [String; 4];

/// The state of both clusters.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// UID and resource version of synced and claimed objects, and of kubeconfig Secrets.
    synced: BTreeMap<Key, String>,
    /// What the programs keep beside them.
    control: BTreeMap<Key, Control>,
}

/// An object that the programs may write, but only with a change, and which they may not replace.
#[derive(Debug)]
struct Control {
    /// UID, and generation where the kind has one.
    identity: String,
    version: Option<String>,
    /// All of it but its resource version and its managed fields.
    content: Value,
    /// Who wrote what and when.
    managed: Vec<ManagedFieldsEntry>,
}

// === impl Snapshot ===

impl Snapshot {
    pub(crate) async fn take(world: &World) -> Result<Self> {
        let mut snapshot = Self::default();
        for plane in [&world.provider.plane, &world.consumer.plane] {
            let all = ListParams::default();
            for cell in &CELLS {
                snapshot.add_synced(plane, &cell.resource(), &all, |_| true).await?;
            }
            snapshot
                .add_synced(plane, &wildwest::resource(), &all, |_| true)
                .await?;
            let secrets = resource(("", "v1", "Secret", "secrets"));
            let is_ours = |secret: &DynamicObject| {
                secret.labels().contains_key(CLAIM) || !secret.data["data"][KUBECONFIG_KEY].is_null()
            };
            snapshot.add_synced(plane, &secrets, &all, is_ours).await?;
            for kind in CONTROL {
                for object in objects(plane.client(), &resource(kind), &all).await? {
                    let key = key(plane, kind.2, &object);
                    snapshot.control.insert(key, Control::of(object, kind.2)?);
                }
            }
        }
        Ok(snapshot)
    }

    async fn add_synced(
        &mut self,
        plane: &ControlPlane,
        resource: &ApiResource,
        params: &ListParams,
        is_meant: impl Fn(&DynamicObject) -> bool,
    ) -> Result<()> {
        for object in objects(plane.client(), resource, params).await? {
            if is_meant(&object) {
                let version = format!("{:?} {:?}", object.uid(), object.resource_version());
                self.synced.insert(key(plane, &resource.api_version, &object), version);
            }
        }
        Ok(())
    }

    /// Fails if a synced object of such a name or any Secret was written or is missing, or if anything else was made anew, got
    /// another generation, or was written without a change.
    pub(crate) fn ensure_kept_in(&self, after: &Self, is_kept: impl Fn(&str) -> bool) -> Result<()> {
        let kept = self.synced.iter().filter(|(key, _)| key[1] == "v1" || is_kept(&key[3]));
        let mut wrong = Vec::new();
        let mut compared = 0;
        for (key, before) in kept {
            let now = after.synced.get(key);
            if now != Some(before) {
                wrong.push(format!("{key:?} was {before}, and is {now:?}"));
            }
            compared += 1;
        }
        // Each cell and the bundle have kept objects on both sides, and each claiming cell two claimed Secrets or three. A
        // kubeconfig is in a response, and each binding has one.
        let claimed = CELLS
            .iter()
            .filter(|cell| cell.claims)
            .map(|cell| 2 + usize::from(cell.is_namespaced()));
        let least = 2 * (KEPT.len() * (CELLS.len() + 1) + claimed.sum::<usize>()) + CELLS.len() + 2;
        ensure!(
            compared >= least,
            "only {compared} objects were compared, and not {least}"
        );
        for (key, before) in &self.control {
            // A set of synk that changed has a new version in place of the former one.
            let is_same_set = |other: &Key| key[1] == "ResourceSet" && other[..2] == key[..2];
            if !after.control.contains_key(key) && after.control.keys().any(is_same_set) {
                continue;
            }
            if let Some(problem) = before.problem(after.control.get(key)) {
                wrong.push(format!("{key:?}: {problem}"));
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }
}

// === impl Control ===

impl Control {
    fn of(mut object: DynamicObject, kind: &str) -> Result<Self> {
        let version = object.metadata.resource_version.take();
        let managed = object.metadata.managed_fields.take().unwrap_or_default();
        // What installs the programs may change: their Deployment, and the definitions of their own groups.
        let name = object.name_any();
        let is_installed =
            kind == "Deployment" || name.ends_with(".kube-bind.io") || name.ends_with(".cloudrobotics.com");
        let generation = object.metadata.generation.take().filter(|_| !is_installed);
        Ok(Self {
            identity: format!("{:?} {generation:?}", object.uid()),
            version,
            managed,
            content: serde_json::to_value(object)?,
        })
    }

    /// What an upgrade must not have done to this object.
    fn problem(&self, now: Option<&Self>) -> Option<String> {
        let Some(now) = now else {
            return Some("it is missing".to_owned());
        };
        if now.identity != self.identity {
            return Some(format!("it was {}, and is {}", self.identity, now.identity));
        }
        // Whenever the admin applies a manifest that sets no field, as that of namespace `kube-bind`, the API server writes anew
        // who manages which fields.
        let is_applied_empty = now
            .managed
            .iter()
            .any(|entry| entry.manager.as_deref() == Some("before-first-apply"));
        let is_rewritten = now.version != self.version && now.content == self.content;
        (is_rewritten && !is_applied_empty).then(|| {
            let (before, after) = (&self.managed, &now.managed);
            format!("it was written without a change; managed before: {before:#?}; and after: {after:#?}")
        })
    }
}

fn resource((group, version, kind, plural): (&str, &str, &str, &str)) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

fn key(plane: &ControlPlane, kind: &str, object: &DynamicObject) -> Key {
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
