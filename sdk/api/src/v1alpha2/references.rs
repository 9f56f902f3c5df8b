//! How resources, Secrets and other objects are pointed at.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an API group may look like; empty is the core group.
const GROUP_PATTERN: &str = r"^(|[a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$";
/// What the plural name of a resource may look like.
const RESOURCE_PATTERN: &str = "^[a-z][-a-z0-9]*[a-z0-9]$";

/// A resource by group and plural name.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// The API group; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = GROUP_PATTERN), extend("default" = ""))]
    pub group: String,
    /// The plural name of the resource, in lower case.
    #[schemars(regex(pattern = RESOURCE_PATTERN))]
    pub resource: String,
}

/// A resource an export offers, and in which versions.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportResource {
    /// Which resource.
    #[serde(flatten)]
    pub group_resource: GroupResource,
    /// The versions offered; none means every version the provider serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<String>,
}

/// A key of a Secret in a given namespace.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClusterSecretKeyRef {
    /// The Secret's name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The key in the Secret's data.
    pub key: String,
    /// The Secret's namespace.
    #[schemars(length(min = 1))]
    pub namespace: String,
}

/// A key of a Secret in the namespace of the object that refers to it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LocalSecretKeyRef {
    /// The Secret's name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The key in the Secret's data.
    pub key: String,
}

/// A Secret of the consumer cluster.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SecretRef {
    /// The Secret's name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The Secret's namespace.
    #[schemars(length(min = 1))]
    pub namespace: String,
}

/// An object by its name alone: a template, or a namespace of the consumer.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NameRef {
    /// The object's name.
    pub name: String,
}

impl GroupResource {
    /// A resource by group and plural name.
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            resource: resource.into(),
        }
    }

    /// Whether the resource belongs to the core group.
    pub fn is_core(&self) -> bool {
        self.group.is_empty()
    }
}

impl fmt::Display for GroupResource {
    /// `<resource>.<group>`, and the resource alone in the core group.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if self.is_core() {
            return Ok(());
        }
        write!(f, ".{}", self.group)
    }
}

impl NameRef {
    /// A reference to the object of that name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }
}

impl fmt::Display for ClusterSecretKeyRef {
    /// `<namespace>/<name>`, as messages name a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
