//! APIServiceNamespace: a namespace of the consumer, mapped to one of the provider.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::IgnoredAny};

use crate::Condition;

/// Empty: the object's name is the consumer's namespace.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq)]
#[kube(
    group = "kube-bind.io",
    version = "v1alpha2",
    kind = "APIServiceNamespace",
    plural = "apiservicenamespaces",
    category = "kube-bindings",
    namespaced,
    status = "APIServiceNamespaceStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Maps the consumer's namespace of the same name to a namespace of the provider.",
    printcolumn(name = "Namespace", type_ = "string", json_path = ".status.namespace"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(from = "Option<IgnoredAny>")]
#[schemars(!from)]
pub struct APIServiceNamespaceSpec {}

/// Where the namespace is on the provider.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct APIServiceNamespaceStatus {
    /// The provider's namespace; once set it never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The namespace for claims of exports with isolation None, of the consumer's own name. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_namespace: Option<String>,
    /// What is well and what is not. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl From<Option<IgnoredAny>> for APIServiceNamespaceSpec {
    /// The wire does not require a spec, and one object without it must not stop the reading of others.
    fn from(_: Option<IgnoredAny>) -> Self {
        Self {}
    }
}
