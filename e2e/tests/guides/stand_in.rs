//! Stands in for Crossplane and for kro: makes the CRD of each definition, and the status and a Secret of each of its objects.
//!
//! It knows as much of either as a page about Bindery shows: the kind of the definitions, how they name the API and label its CRD, and what
//! their controllers add to an object. It composes nothing.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bindery_e2e::ControlPlane;
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

/// How often the stand-in looks for definitions and objects.
const LOOK: Duration = Duration::from_millis(500);

/// The name of the field manager, and of the owner of what is composed.
const MANAGER: &str = "composer";

/// What the stand-in stands in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Composer {
    /// Crossplane 2, with CompositeResourceDefinitions.
    Crossplane,
    /// kro, with ResourceGraphDefinitions.
    Kro,
}

/// The stand-in on a provider.
#[derive(Debug)]
pub(crate) struct StandIn<'a> {
    composer: Composer,
    plane: &'a ControlPlane,
}

/// An API that a definition describes.
struct ComposedApi {
    kind: GroupVersionKind,
    plural: String,
    /// The labels of the CRD.
    labels: Value,
    /// The schemas of `spec` and `status`.
    spec: Value,
    status: Value,
}

impl Composer {
    fn kind(self) -> GroupVersionKind {
        match self {
            Self::Crossplane => {
                GroupVersionKind::gvk("apiextensions.crossplane.io", "v2", "CompositeResourceDefinition")
            }
            Self::Kro => GroupVersionKind::gvk("kro.run", "v1alpha1", "ResourceGraphDefinition"),
        }
    }

    /// Reads a definition, as its controller does.
    fn api(self, definition: &Value) -> Result<ComposedApi> {
        let spec = &definition["spec"];
        let text = |value: &Value| {
            value
                .as_str()
                .map(str::to_owned)
                .context("a field of the definition is missing")
        };
        match self {
            Self::Crossplane => {
                let version = &spec["versions"][0];
                let properties = &version["schema"]["openAPIV3Schema"]["properties"];
                let mut fields = properties["spec"].clone();
                fields["properties"]["crossplane"] = any();
                let mut status = properties["status"].clone();
                status["properties"]["conditions"] = conditions();
                Ok(ComposedApi {
                    kind: GroupVersionKind::gvk(
                        &text(&spec["group"])?,
                        &text(&version["name"])?,
                        &text(&spec["names"]["kind"])?,
                    ),
                    plural: text(&spec["names"]["plural"])?,
                    labels: spec["metadata"]["labels"].clone(),
                    spec: fields,
                    status,
                })
            }
            Self::Kro => {
                let schema = &spec["schema"];
                let kind = text(&schema["kind"])?;
                let mut status = simple(&schema["status"], |_| "string".to_owned());
                status["properties"]["state"] = json!({"type": "string"});
                status["properties"]["conditions"] = conditions();
                Ok(ComposedApi {
                    plural: format!("{}s", kind.to_lowercase()),
                    kind: GroupVersionKind::gvk(&text(&schema["group"])?, &text(&schema["apiVersion"])?, &kind),
                    labels: schema["metadata"]["labels"].clone(),
                    spec: simple(&schema["spec"], |field| {
                        let words = field.as_str().unwrap_or_default();
                        words.split_whitespace().next().unwrap_or_default().to_owned()
                    }),
                    status,
                })
            }
        }
    }

    /// What the controller writes into an object besides its status, and the status.
    fn results(self, object: &DynamicObject) -> (Value, Value) {
        let name = object.name_any();
        let ready = json!([{
            "type": "Ready", "status": "True", "reason": "Available", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        match self {
            Self::Crossplane => (
                json!({"spec": {"crossplane": {"compositionRef": {"name": "databases"}}}}),
                json!({"endpoint": format!("{name}.db.example.org:5432"), "conditions": ready}),
            ),
            Self::Kro => (
                json!({"metadata": {"labels": {"kro.run/owned": "true"}}}),
                json!({"address": format!("https://{name}.example.org"), "state": "ACTIVE", "conditions": ready}),
            ),
        }
    }
}

/// An object schema of fields whose types are words.
fn simple(fields: &Value, type_of: impl Fn(&Value) -> String) -> Value {
    let fields = fields.as_object().into_iter().flatten();
    let properties: Map<_, _> = fields
        .map(|(name, field)| (name.clone(), json!({"type": type_of(field)})))
        .collect();
    json!({"type": "object", "properties": properties})
}

fn any() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn conditions() -> Value {
    json!({"type": "array", "items": any()})
}

impl ComposedApi {
    fn crd(&self) -> Value {
        let kind = &self.kind.kind;
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{}", self.plural, self.kind.group), "labels": self.labels},
            "spec": {
                "group": self.kind.group,
                "scope": "Namespaced",
                "names": {
                    "kind": kind, "listKind": format!("{kind}List"), "plural": self.plural, "singular": kind.to_lowercase(),
                },
                "versions": [{
                    "name": self.kind.version, "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {
                        "type": "object", "properties": {"spec": self.spec, "status": self.status},
                    }},
                }],
            },
        })
    }
}

impl<'a> StandIn<'a> {
    /// Installs the CRD of the definitions.
    pub(crate) async fn install(composer: Composer, plane: &'a ControlPlane) -> Result<Self> {
        let kind = composer.kind();
        let definitions = ComposedApi {
            plural: format!("{}s", kind.kind.to_lowercase()),
            kind,
            labels: json!({}),
            spec: any(),
            status: any(),
        };
        let mut crd = definitions.crd();
        crd["spec"]["scope"] = json!("Cluster");
        plane.apply(&crd.to_string()).await?;
        Ok(Self { composer, plane })
    }

    /// Works until it fails.
    pub(crate) async fn work(&self) -> Result<()> {
        let definitions = self.all(&self.composer.kind(), None);
        loop {
            for definition in definitions.list(&ListParams::default()).await? {
                let api = self.composer.api(&serde_json::to_value(&definition)?)?;
                // Applied again and again, as a controller that holds to what the definition says.
                self.plane.apply(&api.crd().to_string()).await?;
                for object in self
                    .all(&api.kind, Some(&api.plural))
                    .list(&ListParams::default())
                    .await?
                {
                    if object.metadata.deletion_timestamp.is_none() {
                        self.compose(&api, &object).await?;
                    }
                }
            }
            sleep(LOOK).await;
        }
    }

    async fn compose(&self, api: &ComposedApi, object: &DynamicObject) -> Result<()> {
        let (fields, status) = self.composer.results(object);
        if object.data["status"] == status {
            return Ok(());
        }
        let namespace = object.namespace().context("a namespace")?;
        let resource = ApiResource::from_gvk_with_plural(&api.kind, &api.plural);
        let objects: Api<DynamicObject> = Api::namespaced_with(self.plane.client(), &namespace, &resource);
        let name = object.name_any();
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": format!("{name}-connection"),
                "namespace": namespace,
                "labels": {"platform.example.org/connection": "true"},
                "ownerReferences": [{
                    "apiVersion": resource.api_version, "kind": resource.kind, "name": name, "uid": object.uid(), "controller": true,
                }],
            },
            "stringData": {"password": "correct horse"},
        });
        self.plane.apply(&secret.to_string()).await?;
        let how = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        objects.patch(&name, &how, &Patch::Merge(fields)).await?;
        objects
            .patch_status(&name, &how, &Patch::Merge(json!({"status": status})))
            .await?;
        Ok(())
    }

    fn all(&self, kind: &GroupVersionKind, plural: Option<&str>) -> Api<DynamicObject> {
        let resource = match plural {
            Some(plural) => ApiResource::from_gvk_with_plural(kind, plural),
            None => ApiResource::from_gvk(kind),
        };
        Api::all_with(self.plane.client(), &resource)
    }
}
