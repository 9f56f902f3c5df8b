//! An API for each placement, with claims, and what is done with its objects.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{eventually_ok, wildwest::SOON};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::world::{NAMESPACE, World};

/// The label by which cells with claims claim Secrets; its value is the cell's name.
pub(crate) const CLAIM: &str = "claimed-by";

/// One placement.
#[derive(Debug)]
pub(crate) struct Cell {
    /// Name of template and binding, and the beginning of the API's group.
    pub(crate) name: &'static str,
    /// Scope of the API on the consumer.
    scope: &'static str,
    /// Scope of the API on the provider.
    provider_scope: &'static str,
    isolation: &'static str,
    last_wins: bool,
    /// Whether it claims Secrets: by label, and where the API is namespaced also by reference.
    pub(crate) claims: bool,
}

const fn namespaced(name: &'static str, isolation: &'static str) -> Cell {
    Cell {
        name,
        scope: "Namespaced",
        provider_scope: "Namespaced",
        isolation,
        last_wins: false,
        claims: true,
    }
}

const fn cluster(name: &'static str, provider_scope: &'static str, isolation: &'static str) -> Cell {
    Cell {
        name,
        scope: "Cluster",
        provider_scope,
        isolation,
        last_wins: false,
        claims: false,
    }
}

pub(crate) static CELLS: [Cell; 6] = [
    namespaced("mapped", "Prefixed"),
    namespaced("plain", "None"),
    cluster("prefixed", "Cluster", "Prefixed"),
    cluster("inside", "Namespaced", "Namespaced"),
    // Its claimed Secrets are in a namespace that consumers share.
    Cell {
        claims: true,
        ..cluster("none", "Cluster", "None")
    },
    Cell {
        last_wins: true,
        ..cluster("lastwins", "Cluster", "None")
    },
];

// === impl Cell ===

impl Cell {
    fn group(&self) -> String {
        format!("{}.example.dev", self.name)
    }

    pub(crate) fn resource(&self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&self.group(), "v1", "Rider"), "riders")
    }

    /// CRD, rights of the server and template.
    pub(crate) fn offer(&self) -> Value {
        let text = json!({"type": "string"});
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("riders.{}", self.group()), "labels": {"kube-bind.io/exported": "true"}},
            "spec": {
                "group": self.group(), "scope": self.provider_scope,
                "names": {"plural": "riders", "singular": "rider", "kind": "Rider", "listKind": "RiderList"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {"intent": text, "permit": text}},
                        "status": {"type": "object", "properties": {"result": text}},
                    }}},
                }],
            },
        });
        let mut verbs = vec!["create", "delete", "get", "list", "patch", "update", "watch"];
        if self.last_wins {
            verbs.push("overwrite");
        }
        let rights = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {
                "name": format!("bindery-server-export-{}", self.name),
                "labels": {"rbac.kube-bind.io/aggregate-to-server": "true"},
            },
            "rules": [{"apiGroups": [self.group()], "resources": ["riders"], "verbs": verbs}],
        });
        let mut spec = json!({
            "scope": self.scope, "isolation": self.isolation,
            "resources": [{"group": self.group(), "resource": "riders", "versions": ["v1"]}],
        });
        if self.last_wins {
            spec["conflictPolicy"] = json!("LastWins");
        }
        if self.claims {
            let mut selector = json!({"labelSelector": {"matchLabels": {CLAIM: self.name}}});
            if self.is_namespaced() {
                let path = json!({"group": self.group(), "resource": "riders", "jsonPath": {"name": "spec.permit"}});
                selector["references"] = json!([path]);
            }
            spec["permissionClaims"] = json!([{"resource": "secrets", "selector": selector}]);
        }
        if self.is_namespaced() {
            spec["namespaces"] = json!([{"name": NAMESPACE}]);
        }
        let template = json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExportTemplate",
            "metadata": {"name": self.name}, "spec": spec,
        });
        let mut items = vec![crd, rights, template];
        if self.claims && !self.is_namespaced() {
            // As its admin says. What a former version made without asking is not shared any more after the upgrade.
            items.push(json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": NAMESPACE, "labels": {"kube-bind.io/shared": "true"}},
            }));
        }
        json!({"apiVersion": "v1", "kind": "List", "items": items})
    }

    /// Whether the API is namespaced on the consumer.
    pub(crate) fn is_namespaced(&self) -> bool {
        self.scope == "Namespaced"
    }

    fn ours(&self, world: &World) -> Api<DynamicObject> {
        let client = world.consumer.plane.client();
        if self.is_namespaced() {
            Api::namespaced_with(client, NAMESPACE, &self.resource())
        } else {
            Api::all_with(client, &self.resource())
        }
    }

    /// The copy of an object of this cell, wherever it is on the provider: its intent begins with the object's name.
    async fn copy(&self, world: &World, name: &str) -> Result<Option<DynamicObject>> {
        let everywhere: Api<DynamicObject> = Api::all_with(world.provider.plane.client(), &self.resource());
        let mut copies = everywhere.list(&ListParams::default()).await?.items;
        copies.retain(|copy| {
            let intent = copy.data["spec"]["intent"].as_str().unwrap_or_default();
            intent.split(' ').next() == Some(name)
        });
        ensure!(copies.len() <= 1, "{name} has {} copies", copies.len());
        Ok(copies.pop())
    }

    /// Creates an object and waits for its copy.
    pub(crate) async fn create(&self, world: &World, name: &str) -> Result<()> {
        let mut spec = json!({"intent": format!("{name} rides")});
        if self.is_namespaced() {
            spec["permit"] = json!(format!("permit-{}", self.name));
        }
        let object = DynamicObject::new(name, &self.resource()).data(json!({"spec": spec}));
        self.ours(world).create(&PostParams::default(), &object).await?;
        self.is_copied(world, name, "rides").await
    }

    pub(crate) async fn intend(&self, world: &World, name: &str, verb: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"intent": format!("{name} {verb}")}}));
        self.ours(world).patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn delete(&self, world: &World, name: &str) -> Result<()> {
        self.ours(world).delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Sets the status of the copy, as the provider's operator would.
    pub(crate) async fn report(&self, world: &World, name: &str, result: &str) -> Result<()> {
        let copy = self.copy(world, name).await?.context("no copy")?;
        let client = world.provider.plane.client();
        let copies: Api<DynamicObject> = match copy.namespace() {
            Some(namespace) => Api::namespaced_with(client, &namespace, &self.resource()),
            None => Api::all_with(client, &self.resource()),
        };
        let patch = Patch::Merge(json!({"status": {"result": result}}));
        copies
            .patch_status(&copy.name_any(), &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    pub(crate) async fn is_copied(&self, world: &World, name: &str, verb: &str) -> Result<()> {
        eventually_ok(format!("the copy of {name} in {}", self.name), SOON, async || {
            let copy = self.copy(world, name).await?.context("no copy")?;
            ensure!(copy.data["spec"]["intent"] == format!("{name} {verb}"), "{}", copy.data);
            Ok(())
        })
        .await
    }

    pub(crate) async fn is_reported(&self, world: &World, name: &str, result: &str) -> Result<()> {
        eventually_ok(format!("the status of {name} in {}", self.name), SOON, async || {
            let object = self.ours(world).get(name).await?;
            ensure!(object.data["status"]["result"] == result, "{}", object.data);
            Ok(())
        })
        .await
    }

    pub(crate) async fn is_gone(&self, world: &World, name: &str) -> Result<()> {
        eventually_ok(format!("{name} of {} to be gone", self.name), SOON, async || {
            // After an unbind the API is gone too.
            let ours = self.ours(world).list(&ListParams::default()).await;
            let ours = ours.map(|list| list.items).unwrap_or_default();
            ensure!(
                ours.iter().all(|object| object.name_any() != name),
                "it is on the consumer"
            );
            ensure!(self.copy(world, name).await?.is_none(), "it is on the provider");
            Ok(())
        })
        .await
    }
}
