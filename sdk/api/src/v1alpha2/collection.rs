//! Collection: templates that belong together in the catalog.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NameRef;
use crate::Condition;

/// Which templates, and what they have in common.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kube-bind.io",
    version = "v1alpha2",
    kind = "Collection",
    plural = "collections",
    category = "kube-bind",
    status = "CollectionStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Groups templates of the catalog for people who look for one.",
    printcolumn(name = "Description", type_ = "string", json_path = ".spec.description"),
    printcolumn(name = "Templates", type_ = "string", json_path = ".spec.templates[*].name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct CollectionSpec {
    /// What the templates have in common, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The templates.
    #[schemars(length(min = 1))]
    pub templates: Vec<NameRef>,
}

/// Whether the templates exist.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CollectionStatus {
    /// What is well and what is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
