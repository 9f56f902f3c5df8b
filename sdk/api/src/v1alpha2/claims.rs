//! What a provider asks to see and to write on the consumer besides its own API.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{references::GroupResource, schemas};

/// A resource the provider claims, and which of its objects.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct PermissionClaim {
    /// Which resource.
    #[serde(flatten)]
    pub group_resource: GroupResource,
    /// Which objects of it.
    pub selector: Selector,
}

/// Selects objects: one that any of the parts selects is selected; an empty selector selects nothing.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// Objects with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::label_selector")]
    pub label_selector: Option<LabelSelector>,
    /// Objects of these names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named_resources: Vec<NamedResource>,
    /// Objects that bound objects refer to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<SelectorReference>,
}

/// An object by name, in one namespace or in any.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NamedResource {
    /// The object's name.
    pub name: String,
    /// The object's namespace; empty for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Objects whose name stands in a field of a bound object.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct SelectorReference {
    /// The resource that refers.
    #[serde(flatten)]
    pub group_resource: GroupResource,
    /// Its versions; none means those of the export.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<String>,
    /// Where name and namespace stand in the object that refers.
    pub json_path: ReferencePath,
}

/// Paths of names, dots and `#` (each element of a list), such as `spec.secretRefs.#.name`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReferencePath {
    /// Path to the name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Path to the namespace; without it, isolation decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl Selector {
    /// Whether it has no part and therefore selects nothing.
    pub fn is_empty(&self) -> bool {
        self.label_selector.is_none() && self.named_resources.is_empty() && self.references.is_empty()
    }

    /// Whether it selects every object: a label selector without a requirement does.
    pub fn selects_all(&self) -> bool {
        self.label_selector.as_ref().is_some_and(|labels| {
            labels.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
                && labels.match_expressions.as_ref().is_none_or(Vec::is_empty)
        })
    }
}
