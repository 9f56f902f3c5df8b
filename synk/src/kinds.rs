//! Knows kinds and their paths: those that the API server serves, and those that the CRDs of a set define.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{manifest::Manifest, object::Gvk};

/// A kind and how its objects are addressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Group, version and kind.
    pub gvk: Gvk,
    /// Plural name, such as `configmaps`.
    pub plural: String,
    /// Whether objects of the kind are namespaced.
    pub namespaced: bool,
}

/// All known kinds.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    served: BTreeMap<Gvk, Resource>,
    defined: BTreeMap<Gvk, Resource>,
    /// API groups whose server did not answer, with the reason.
    pub silent: BTreeMap<String, String>,
}

// === impl Kinds ===

impl Kinds {
    /// Makes the list of kinds that an API server serves.
    pub fn served(resources: impl IntoIterator<Item = Resource>) -> Self {
        Self {
            served: keyed(resources),
            ..Self::default()
        }
    }

    /// Returns these kinds and those that CRDs among the manifests define.
    #[must_use]
    pub fn with_definitions(&self, manifests: &[Manifest]) -> Self {
        let definitions = manifests.iter().filter(|manifest| manifest.object.gvk.is_crd());
        Self {
            defined: keyed(definitions.flat_map(|definition| defined(&definition.body))),
            ..self.clone()
        }
    }

    /// Returns a kind that is served, or that the set defines.
    pub fn get(&self, gvk: &Gvk) -> Option<&Resource> {
        self.served.get(gvk).or_else(|| self.defined.get(gvk))
    }

    /// Whether the API server serves the kind now.
    pub fn is_served(&self, gvk: &Gvk) -> bool {
        self.served.contains_key(gvk)
    }

    /// Returns a kind in any served version of its API.
    pub fn any_version(&self, group: &str, kind: &str) -> Option<&Resource> {
        let is_it = |resource: &&Resource| resource.gvk.group == group && resource.gvk.kind == kind;
        self.served.values().find(is_it)
    }

    /// Says why an object of an unknown kind cannot be applied.
    pub fn unknown(&self, gvk: &Gvk) -> String {
        if let Some(reason) = self.silent.get(&gvk.group) {
            let group = &gvk.group;
            return format!("the API server of group {group} does not answer, so kind {gvk} is not known: {reason}");
        }
        let others = self
            .served
            .keys()
            .filter(|known| known.group == gvk.group && known.kind == gvk.kind);
        let others: Vec<_> = others.map(Gvk::api_version).collect();
        if others.is_empty() {
            format!("no kind {gvk} is served: install its definition first, or add it to the set")
        } else {
            format!(
                "no kind {gvk} is served, but {}: change its apiVersion",
                others.join(", ")
            )
        }
    }
}

fn keyed(resources: impl IntoIterator<Item = Resource>) -> BTreeMap<Gvk, Resource> {
    resources
        .into_iter()
        .map(|resource| (resource.gvk.clone(), resource))
        .collect()
}

/// Returns the kinds that a CRD defines: one for each served version.
fn defined(definition: &Map<String, Value>) -> Vec<Resource> {
    let Some(spec) = definition.get("spec") else {
        return Vec::new();
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (Some(group), Some(kind), Some(plural)) = (
        text(&spec["group"]),
        text(&spec["names"]["kind"]),
        text(&spec["names"]["plural"]),
    ) else {
        return Vec::new();
    };
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let served = versions.iter().filter(|version| version["served"] == true);
    let names = served.filter_map(|version| text(&version["name"]));
    names
        .map(|version| Resource {
            gvk: Gvk {
                group: group.clone(),
                version,
                kind: kind.clone(),
            },
            plural: plural.clone(),
            namespaced: spec["scope"] == "Namespaced",
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::testing::manifest;

    #[test]
    fn a_definition_of_the_set_makes_its_served_versions_known() {
        let definition = manifest(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
                "versions": [{"name": "v1", "served": true}, {"name": "v1beta1", "served": false}, {"name": "v2", "served": true}],
            },
        }));
        let broken = manifest(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x"},
        }));
        let kinds = Kinds::default().with_definitions(&[definition, broken]);
        let thing = |version: &str| Gvk::new(&format!("example.com/{version}"), "Thing");
        let resource = kinds.get(&thing("v2")).unwrap();
        assert_eq!((resource.plural.as_str(), resource.namespaced), ("things", true));
        assert!(kinds.get(&thing("v1")).is_some() && kinds.get(&thing("v1beta1")).is_none());
        assert!(!kinds.is_served(&thing("v1")), "not before the definition is applied");
    }

    #[test]
    fn an_unknown_kind_is_explained() {
        let served = Resource {
            gvk: Gvk::new("apps/v1", "Deployment"),
            plural: "deployments".to_owned(),
            namespaced: true,
        };
        let mut kinds = Kinds::served([served]);
        kinds
            .silent
            .insert("metrics.k8s.io".to_owned(), "no endpoints".to_owned());
        let unknown = |api: &str, kind: &str| kinds.unknown(&Gvk::new(api, kind));
        assert!(unknown("extensions/v1beta1", "Ingress").contains("install its definition"));
        assert!(unknown("apps/v1beta1", "Deployment").contains("but apps/v1: change"));
        assert!(unknown("metrics.k8s.io/v1", "Metric").contains("does not answer"));
        assert!(kinds.any_version("apps", "Deployment").is_some() && kinds.any_version("", "Deployment").is_none());
    }
}
