//! What the provider offers: one API for each way of placing objects, and one that the attacker may not even see.

use anyhow::{Result, ensure};
use bindery_api::{Conditions as _, labels, v1alpha2 as api};
use bindery_e2e::{Provider, eventually, wildwest::SOON};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::tenant::RANCH;

/// Where a consumer's objects are on the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the provider namespace of the consumer's.
    Mapped,
    /// At cluster scope, under the contract's prefix.
    Prefixed,
    /// At cluster scope, under the consumer's own name; the first writer owns it.
    Shared,
    /// The same; each writer replaces what the one before wrote.
    SharedLastWins,
    /// In the contract namespace; cluster-scoped on the consumer alone.
    Contract,
    /// The same, in the provider namespace of one of the consumer's.
    Beside,
}

/// An API and the template that offers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// Name of the template, and of the resource.
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) place: Place,
    /// Whether the template claims Secrets, ConfigMaps and ServiceAccounts.
    pub(crate) claims: bool,
}

pub(crate) const HORSES: Offer = offer("horses", "Horse", Place::Mapped);
pub(crate) const SADDLES: Offer = Offer {
    claims: true,
    ..offer("saddles", "Saddle", Place::Mapped)
};
pub(crate) const HERDS: Offer = offer("herds", "Herd", Place::Prefixed);
pub(crate) const TRAILS: Offer = Offer {
    claims: true,
    ..offer("trails", "Trail", Place::Shared)
};
pub(crate) const RIVERS: Offer = offer("rivers", "River", Place::SharedLastWins);
pub(crate) const CAMPS: Offer = offer("camps", "Camp", Place::Contract);
pub(crate) const TENTS: Offer = offer("tents", "Tent", Place::Beside);
/// What the victim alone may bind.
pub(crate) const MASKS: Offer = offer("masks", "Mask", Place::Mapped);

/// What both may bind.
pub(crate) const COMMON: [Offer; 7] = [HORSES, SADDLES, HERDS, TRAILS, RIVERS, CAMPS, TENTS];

/// Core resources that are claimed where anything is.
pub(crate) const CLAIMED: [&str; 3] = ["configmaps", "secrets", "serviceaccounts"];

const fn offer(name: &'static str, kind: &'static str, place: Place) -> Offer {
    Offer {
        name,
        kind,
        place,
        claims: false,
    }
}

// === impl Offer ===

impl Offer {
    pub(crate) fn group(self) -> String {
        format!("{}.example.dev", self.name)
    }

    /// Whether objects of all consumers are in one collection.
    pub(crate) fn is_wide(self) -> bool {
        matches!(self.place, Place::Prefixed | Place::Shared | Place::SharedLastWins)
    }

    /// Whether the provider's CRD has namespaces.
    pub(crate) fn is_namespaced(self) -> bool {
        !self.is_wide()
    }

    pub(crate) fn resource(self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&self.group(), "v1", self.kind), self.name)
    }

    /// An object with something to steal in it.
    pub(crate) fn object(self, name: &str, secret: &str) -> DynamicObject {
        DynamicObject::new(name, &self.resource()).data(json!({"spec": {"text": secret}}))
    }

    fn crd(self) -> Value {
        let scope = if self.is_namespaced() { "Namespaced" } else { "Cluster" };
        let part = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        let schema = json!({"type": "object", "properties": {"spec": part, "status": part}});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{}.{}", self.name, self.group()), "labels": {"kube-bind.io/exported": "true"},
            },
            "spec": {
                "group": self.group(), "scope": scope,
                "names": {
                    "plural": self.name, "singular": self.kind.to_lowercase(),
                    "kind": self.kind, "listKind": format!("{}List", self.kind),
                },
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }],
            },
        })
    }

    fn template(self) -> Value {
        let scope = if self.place == Place::Mapped {
            "Namespaced"
        } else {
            "Cluster"
        };
        let mut spec = json!({
            "scope": scope, "resources": [{"group": self.group(), "resource": self.name, "versions": ["v1"]}],
        });
        match self.place {
            Place::Mapped => {}
            Place::Prefixed => spec["isolation"] = json!("Prefixed"),
            Place::Shared => spec["isolation"] = json!("None"),
            Place::SharedLastWins => {
                spec["isolation"] = json!("None");
                spec["conflictPolicy"] = json!("LastWins");
            }
            Place::Contract => spec["isolation"] = json!("Namespaced"),
            Place::Beside => {
                spec["isolation"] = json!("Namespaced");
                spec["clusterScopedNamespace"] = json!(RANCH);
            }
        }
        if self.claims {
            let claim = |resource: &str| json!({"resource": resource, "selector": {"labelSelector": {"matchLabels": {"ranch": "open"}}}});
            spec["permissionClaims"] = CLAIMED.iter().map(|resource| claim(resource)).collect();
        }
        json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExportTemplate", "metadata": {"name": self.name},
            "spec": spec,
        })
    }

    /// What lets the server hand out rights on the API.
    fn rights(self) -> Value {
        let mut verbs = vec!["create", "delete", "get", "list", "patch", "update", "watch"];
        if self.place == Place::SharedLastWins {
            verbs.push("overwrite");
        }
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {
                "name": format!("bindery-server-export-{}", self.name),
                "labels": {"rbac.kube-bind.io/aggregate-to-server": "true"},
            },
            "rules": [{"apiGroups": [self.group()], "resources": [self.name], "verbs": verbs}],
        })
    }
}

/// What lets the server hand out that claimed objects are read cluster-wide; Secrets are not among them.
fn rights_on_claims() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {
            "name": "bindery-server-claims-everywhere", "labels": {"rbac.kube-bind.io/aggregate-to-server": "true"},
        },
        "rules": [{
            "apiGroups": [""], "resources": ["configmaps", "serviceaccounts"], "verbs": ["get", "list", "watch"],
        }],
    })
}

/// Makes all of them on a provider, and a collection of what is the victim's alone; waits until all can be bound.
pub(crate) async fn publish(provider: &Provider, offers: &[Offer]) -> Result<()> {
    let mut items: Vec<Value> = offers
        .iter()
        .flat_map(|offer| [offer.rights(), offer.crd(), offer.template()])
        .collect();
    items.push(rights_on_claims());
    // Its admin lets consumers share it.
    items.push(json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RANCH, "labels": {labels::SHARED: "true"}},
    }));
    items.push(json!({
        "apiVersion": "kube-bind.io/v1alpha2", "kind": "Collection", "metadata": {"name": "zorros-wardrobe"},
        "spec": {"description": "Zorro's", "templates": [{"name": MASKS.name}]},
    }));
    items.push(json!({
        "apiVersion": "kube-bind.io/v1alpha2", "kind": "Collection", "metadata": {"name": "everything"},
        "spec": {"templates": offers.iter().map(|offer| json!({"name": offer.name})).collect::<Vec<_>>()},
    }));
    provider
        .plane
        .apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())
        .await?;
    let templates: Api<api::APIServiceExportTemplate> = Api::all(provider.plane.client());
    for offer in offers {
        eventually(format!("template {} to be ready", offer.name), SOON, || async {
            let template = templates.get(offer.name).await?;
            ensure!(template.is_condition_true("Ready"), "{:?}", template.conditions());
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}
