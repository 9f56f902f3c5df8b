//! What a provider offers for a cell: the API `riders` of a group of its own, with claims.

use bindery_api::{
    labels,
    v1alpha2::{InformerScope, Isolation, Scope},
};
use kube::api::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::{
    cells::{Cell, Place},
    kinds::Kind,
};

/// The label by which claims of a cell select; its value is the cell's name.
pub(crate) const CLAIM_LABEL: &str = "claim";
/// The one Secret that the claim names.
pub(crate) const BY_NAME: &str = "by-name";
/// A namespace that is mapped from the start, and which the consumers do not have from the start.
pub(crate) const FRONTIER: &str = "frontier";

/// What the provider's allow-list names beside the core resources.
pub(crate) const ALLOWED: &str = "horses.stable.dev";

pub(crate) fn horses() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("stable.dev", "v1", "Horse"), "horses")
}

/// An API that both sides have, and nobody exports.
pub(crate) fn horses_crd() -> Value {
    let spec = json!({"type": "object", "properties": {"word": {"type": "string"}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": ALLOWED},
        "spec": {
            "group": "stable.dev", "scope": "Namespaced",
            "names": {"plural": "horses", "singular": "horse", "kind": "Horse", "listKind": "HorseList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    })
}

// === impl Cell ===

impl Cell {
    pub(crate) fn resource(&self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&self.group(), "v1", "Rider"), "riders")
    }

    /// Everything that a provider needs to offer it.
    pub(crate) fn offer(&self) -> Vec<Value> {
        let mut offer = vec![self.rights(), self.crd(), self.template()];
        if self.isolation() == Isolation::None {
            // The consumers share the namespace of what they claim, as its admin says.
            offer.push(json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": self.name, "labels": {labels::SHARED: "true"}},
            }));
        }
        offer
    }

    fn crd(&self) -> Value {
        let text = json!({"type": "string"});
        let refs = json!({"type": "array", "items": {
            "type": "object", "properties": {"name": text, "namespace": text},
        }});
        let subresources = if self.status_subresource {
            json!({"status": {}})
        } else {
            json!({})
        };
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("riders.{}", self.group()), "labels": {"kube-bind.io/exported": "true"}},
            "spec": {
                "group": self.group(), "scope": self.provider_scope(),
                "names": {"plural": "riders", "singular": "rider", "kind": "Rider", "listKind": "RiderList"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": subresources,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {
                            "intent": text, "badge": text, "brand": text, "secretRefs": refs,
                        }},
                        "status": {"type": "object", "properties": {"result": text, "secretRefs": refs}},
                    }}},
                }],
            },
        })
    }

    /// What lets the server hand out rights on the API.
    fn rights(&self) -> Value {
        let mut verbs = vec!["create", "delete", "get", "list", "patch", "update", "watch"];
        if self.place == Place::NoneLastWins {
            verbs.push("overwrite");
        }
        let claims: &[&str] = match self.informers {
            InformerScope::Cluster => &["get", "list", "watch"],
            InformerScope::Namespaced => &["get"],
        };
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {
                "name": format!("bindery-server-export-{}", self.name),
                "labels": {"rbac.kube-bind.io/aggregate-to-server": "true"},
            },
            "rules": [
                {"apiGroups": [self.group()], "resources": ["riders"], "verbs": verbs},
                {"apiGroups": ["stable.dev"], "resources": ["horses"], "verbs": verbs},
                // Where consumers watch cluster-wide, these claims are read so too.
                {"apiGroups": [""], "resources": ["configmaps", "serviceaccounts"], "verbs": claims},
            ],
        })
    }

    fn template(&self) -> Value {
        let mut spec = json!({
            "scope": self.consumer_scope(), "isolation": self.isolation(),
            "resources": [{"group": self.group(), "resource": "riders", "versions": ["v1"]}],
            "permissionClaims": self.claims(),
        });
        match self.place {
            Place::NoneLastWins => spec["conflictPolicy"] = json!("LastWins"),
            Place::Beside => spec["clusterScopedNamespace"] = json!(self.name),
            Place::Mapped | Place::None | Place::Prefixed | Place::Contract => {}
        }
        if self.is_preseeded() {
            spec["namespaces"] = json!([{"name": FRONTIER}]);
        }
        json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExportTemplate",
            "metadata": {"name": self.name}, "spec": spec,
        })
    }

    fn claims(&self) -> Value {
        let labels = json!({"matchLabels": {CLAIM_LABEL: self.name}});
        let referred = |list: &str| {
            let mut path = json!({"name": format!("{list}.#.name")});
            // Without a path the referring object's namespace counts, or the one that the export names.
            if self.consumer_scope() == Scope::Cluster && self.place != Place::Beside {
                path["namespace"] = json!(format!("{list}.#.namespace"));
            }
            json!({"group": self.group(), "resource": "riders", "jsonPath": path})
        };
        let mut claims = json!([
            {"resource": "secrets", "selector": {
                "labelSelector": labels,
                "namedResources": [{"name": BY_NAME, "namespace": self.name}],
                "references": [referred("spec.secretRefs"), referred("status.secretRefs")],
            }},
            {"resource": "configmaps", "selector": {"labelSelector": labels}},
            {"resource": "serviceaccounts", "selector": {"labelSelector": labels}},
        ]);
        if let Some(list) = claims.as_array_mut()
            && self.claimed().contains(&Kind::Horse)
        {
            list.push(json!({"group": "stable.dev", "resource": "horses", "selector": {"labelSelector": labels}}));
        }
        claims
    }
}
