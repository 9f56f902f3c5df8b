//! An API of its own for each case of a suite, so that cases on shared clusters have separate objects.

use anyhow::{Result, ensure};
use bindery_api::{Conditions as _, v1alpha2 as api};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::{Provider, eventually, wildwest::SOON};

/// An API: the resource `widgets` of a group made from `name`, offered by the template `name`.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Name of the API, and of its template.
    pub name: &'static str,
}

impl Offer {
    /// An API of that name.
    pub fn new(name: &'static str) -> Self {
        Self { name }
    }

    /// Its group.
    pub fn group(self) -> String {
        format!("{}.example.dev", self.name)
    }

    /// Name of the CRD and of the BoundSchema.
    pub fn crd_name(self) -> String {
        format!("widgets.{}", self.group())
    }

    /// Its resource.
    pub fn resource(self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&self.group(), "v1", "Widget"), "widgets")
    }

    /// An object of it.
    pub fn widget(self, name: &str, color: &str) -> DynamicObject {
        DynamicObject::new(name, &self.resource()).data(json!({"spec": {"color": color}}))
    }

    /// Its CRD, which may be exported.
    pub fn crd(self) -> Value {
        let text = json!({"type": "object", "properties": {"color": {"type": "string"}}});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": self.crd_name(), "labels": {"kube-bind.io/exported": "true"}},
            "spec": {
                "group": self.group(), "scope": "Namespaced",
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": text, "status": text}}},
                }],
            },
        })
    }

    /// What offers it.
    pub fn template(self) -> Value {
        json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExportTemplate", "metadata": {"name": self.name},
            "spec": {"scope": "Namespaced", "resources": [{"group": self.group(), "resource": "widgets", "versions": ["v1"]}]},
        })
    }

    /// What lets the server hand out rights on the API.
    fn rights(self) -> Value {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {
                "name": format!("bindery-server-export-{}", self.name),
                "labels": {"rbac.kube-bind.io/aggregate-to-server": "true"},
            },
            "rules": [{
                "apiGroups": [self.group()], "resources": ["widgets"],
                "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
            }],
        })
    }

    /// All of it: the rights, the CRD and the template.
    pub fn manifests(self) -> Vec<Value> {
        vec![self.rights(), self.crd(), self.template()]
    }

    /// Makes all of it on a provider, and waits until the template is ready.
    pub async fn publish(self, provider: &Provider) -> Result<()> {
        self.publish_template(provider, &self.template()).await
    }

    /// As [`Offer::publish`], with a template of the caller's.
    pub async fn publish_template(self, provider: &Provider, template: &Value) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [self.rights(), self.crd(), template]});
        provider.plane.apply(&list.to_string()).await?;
        self.ready(provider).await
    }

    /// Waits until the template is ready.
    pub async fn ready(self, provider: &Provider) -> Result<()> {
        let templates: Api<api::APIServiceExportTemplate> = Api::all(provider.plane.client());
        eventually(format!("template {} to be ready", self.name), SOON, || async {
            let template = templates.get(self.name).await?;
            ensure!(template.is_condition_true("Ready"), "{:?}", template.conditions());
            Ok(Some(()))
        })
        .await
    }
}
