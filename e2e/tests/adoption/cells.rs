//! The cells: each way of placing an API's objects, and what a provider offers for it.

use bindery_api::v1alpha2::{InformerScope, Isolation, Scope};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

/// One way of placing an API's objects and of watching them, or an API for one test alone.
#[derive(Debug)]
pub(crate) struct Cell {
    /// Name of the template, of the binding, of the consumer's namespace, and the beginning of the API's group.
    pub(crate) name: &'static str,
    pub(crate) informers: InformerScope,
    pub(crate) place: Place,
    pub(crate) status_subresource: bool,
}

/// Where the copies are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Namespaced on both sides: in the mapped namespace.
    Mapped,
    /// Cluster-scoped on both sides, of the same name: the provider must say whose an object is.
    None,
    /// Cluster-scoped on both sides, under the contract's name and their own.
    Prefixed,
    /// Cluster-scoped on the consumer, in the contract namespace.
    Contract,
    /// Cluster-scoped on the consumer, in the namespace that is mapped for the one that the template names.
    Beside,
}

const fn cell(name: &'static str, place: Place) -> Cell {
    Cell {
        name,
        informers: InformerScope::Namespaced,
        place,
        status_subresource: true,
    }
}

pub(crate) static NN: Cell = cell("nn", Place::Mapped);
pub(crate) static NC: Cell = Cell {
    informers: InformerScope::Cluster,
    ..cell("nc", Place::Mapped)
};
pub(crate) static NONE: Cell = cell("none", Place::None);
pub(crate) static PREFIXED: Cell = cell("prefixed", Place::Prefixed);
pub(crate) static NAMESPACED: Cell = cell("namespaced", Place::Contract);
pub(crate) static BESIDE: Cell = cell("beside", Place::Beside);
pub(crate) static BARE: Cell = Cell {
    status_subresource: false,
    ..cell("bare", Place::Mapped)
};

/// The matrix, but for what is as in another of its cells.
pub(crate) static MATRIX: [&Cell; 6] = [&NN, &NC, &NONE, &PREFIXED, &NAMESPACED, &BESIDE];

// Each of one test.
pub(crate) static WITHOUT_RIGHT: Cell = cell("unlicensed", Place::Mapped);
pub(crate) static REMOVED: Cell = cell("removed", Place::Mapped);
pub(crate) static UPGRADED: Cell = cell("upgraded", Place::Mapped);
pub(crate) static UPGRADED_CLUSTER: Cell = cell("upgraded-cluster", Place::Prefixed);
pub(crate) static RESTORED: Cell = cell("brought-back", Place::Mapped);
pub(crate) static KILLED: Cell = cell("killed", Place::Mapped);
pub(crate) static STEPWISE: Cell = cell("stepwise", Place::Prefixed);
pub(crate) static PROTECTED: Cell = cell("protected", Place::Mapped);
pub(crate) static TAKEN: Cell = cell("taken", Place::Mapped);
pub(crate) static APART: Cell = cell("apart", Place::Mapped);

static SINGLE: [&Cell; 11] = [
    &PROTECTED,
    &BARE,
    &WITHOUT_RIGHT,
    &REMOVED,
    &UPGRADED,
    &UPGRADED_CLUSTER,
    &RESTORED,
    &KILLED,
    &STEPWISE,
    &TAKEN,
    &APART,
];

pub(crate) fn all() -> impl Iterator<Item = &'static Cell> {
    MATRIX.into_iter().chain(SINGLE)
}

// === impl Cell ===

impl Cell {
    /// The API's group, which no other cell has.
    pub(crate) fn group(&self) -> String {
        format!("{}.wildwest.dev", self.name)
    }

    pub(crate) fn crd_name(&self) -> String {
        format!("riders.{}", self.group())
    }

    pub(crate) fn resource(&self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&self.group(), "v1", "Rider"), "riders")
    }

    pub(crate) fn is_namespaced(&self) -> bool {
        self.place == Place::Mapped
    }

    pub(crate) fn shares_names(&self) -> bool {
        self.place == Place::None
    }

    /// A namespace that the template maps, and which consumers do not have.
    pub(crate) fn frontier(&self) -> String {
        format!("frontier-{}", self.name)
    }

    /// Another one, into which nobody puts anything.
    pub(crate) fn desert(&self) -> String {
        format!("desert-{}", self.name)
    }

    pub(crate) fn consumer_scope(&self) -> Scope {
        match self.place {
            Place::Mapped => Scope::Namespaced,
            _ => Scope::Cluster,
        }
    }

    pub(crate) fn provider_scope(&self) -> Scope {
        match self.place {
            Place::Mapped | Place::Contract | Place::Beside => Scope::Namespaced,
            Place::None | Place::Prefixed => Scope::Cluster,
        }
    }

    fn isolation(&self) -> Isolation {
        match self.place {
            Place::None => Isolation::None,
            Place::Mapped | Place::Prefixed => Isolation::Prefixed,
            Place::Contract | Place::Beside => Isolation::Namespaced,
        }
    }

    /// An object of the API, with one word that tells its versions apart.
    pub(crate) fn object(&self, name: &str, word: &str) -> DynamicObject {
        DynamicObject::new(name, &self.resource()).data(json!({"spec": {"intent": word}}))
    }

    /// Everything that a provider needs to offer it.
    pub(crate) fn offer(&self) -> Vec<Value> {
        vec![self.rights(), self.crd(self.provider_scope()), self.template()]
    }

    /// The definition, as either side has it.
    pub(crate) fn crd(&self, scope: Scope) -> Value {
        let text = json!({"type": "string"});
        let texts = json!({"type": "array", "items": text});
        let subresources = if self.status_subresource {
            json!({"status": {}})
        } else {
            json!({})
        };
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": self.crd_name(), "labels": {"kube-bind.io/exported": "true"}},
            "spec": {
                "group": self.group(), "scope": scope,
                "names": {"plural": "riders", "singular": "rider", "kind": "Rider", "listKind": "RiderList"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": subresources,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {
                            "intent": text, "badge": text, "brand": text, "skills": texts,
                        }},
                        "status": {"type": "object", "properties": {"result": text}},
                    }}},
                }],
            },
        })
    }

    /// What lets the server hand out rights on the API.
    fn rights(&self) -> Value {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {
                "name": format!("bindery-server-export-{}", self.name),
                "labels": {"rbac.kube-bind.io/aggregate-to-server": "true"},
            },
            "rules": [{
                "apiGroups": [self.group()], "resources": ["riders"],
                "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
            }],
        })
    }

    fn template(&self) -> Value {
        let mut spec = json!({
            "scope": self.consumer_scope(), "isolation": self.isolation(),
            "resources": [{"group": self.group(), "resource": "riders", "versions": ["v1"]}],
        });
        let named = |names: &[String]| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
        match self.place {
            Place::Mapped => {
                spec["namespaces"] = json!(named(&[self.name.to_owned(), self.frontier(), self.desert()]));
            }
            Place::Beside => {
                spec["namespaces"] = json!(named(&[self.name.to_owned()]));
                spec["clusterScopedNamespace"] = json!(self.name);
            }
            Place::None | Place::Prefixed | Place::Contract => {}
        }
        json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExportTemplate",
            "metadata": {"name": self.name}, "spec": spec,
        })
    }
}
