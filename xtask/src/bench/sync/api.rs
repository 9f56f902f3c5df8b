//! The APIs that are bound: small objects with a counter in spec and status, so that each change is told from the last.

use anyhow::{Result, ensure};
use bindery_api::{Conditions as _, v1alpha2::APIServiceExportTemplate};
use bindery_e2e::{Provider, eventually, wildwest::SOON};
use kube::{
    Api,
    api::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

const GROUP: &str = "bench.bindery.dev";
const VERSION: &str = "v1";

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BenchApi {
    /// What most is measured with.
    Gadgets,
    /// For a second binding beside it.
    Widgets,
}

impl BenchApi {
    pub(super) const ALL: [Self; 2] = [Self::Gadgets, Self::Widgets];

    /// Name of the resource, of its template and of its binding.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gadgets => "gadgets",
            Self::Widgets => "widgets",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Gadgets => "Gadget",
            Self::Widgets => "Widget",
        }
    }

    /// As programs are told it.
    pub(super) fn flags(self) -> [String; 2] {
        let path = format!("{GROUP}/{VERSION}/{}/{}", self.name(), self.kind());
        ["--resource".to_owned(), path]
    }

    /// Whether it is the group of these.
    pub(super) fn is_group(group: &str) -> bool {
        group == GROUP
    }

    pub(super) fn resource(self) -> ApiResource {
        let kind = GroupVersionKind::gvk(GROUP, VERSION, self.kind());
        ApiResource::from_gvk_with_plural(&kind, self.name())
    }

    /// Makes CRD, template and rights on a provider, and waits until the template is ready.
    pub(super) async fn publish(self, provider: &Provider) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [self.rights(), self.crd(), self.template()]});
        provider.plane.apply(&list.to_string()).await?;
        let templates: Api<APIServiceExportTemplate> = Api::all(provider.plane.client());
        eventually(format!("template {} to be ready", self.name()), SOON, async || {
            let template = templates.get(self.name()).await?;
            ensure!(template.is_condition_true("Ready"), "{:?}", template.conditions());
            Ok(Some(()))
        })
        .await
    }

    fn crd(self) -> Value {
        let part = json!({
            "type": "object",
            "properties": {"seq": {"type": "integer", "format": "int64"}, "payload": {"type": "string"}},
        });
        let schema = json!({"type": "object", "properties": {"spec": part, "status": part}});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{GROUP}", self.name()), "labels": {"kube-bind.io/exported": "true"}},
            "spec": {
                "group": GROUP, "scope": "Namespaced",
                "names": {
                    "plural": self.name(), "singular": self.kind().to_lowercase(), "kind": self.kind(),
                    "listKind": format!("{}List", self.kind()),
                },
                "versions": [{
                    "name": VERSION, "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }],
            },
        })
    }

    fn template(self) -> Value {
        json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExportTemplate",
            "metadata": {"name": self.name()},
            "spec": {
                "scope": "Namespaced",
                "resources": [{"group": GROUP, "resource": self.name(), "versions": [VERSION]}],
            },
        })
    }

    /// What lets the server hand out rights on the API.
    fn rights(self) -> Value {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {
                "name": format!("bindery-server-export-{}", self.name()),
                "labels": {"rbac.kube-bind.io/aggregate-to-server": "true"},
            },
            "rules": [{
                "apiGroups": [GROUP], "resources": [self.name()],
                "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
            }],
        })
    }
}
