//! Names kinds and objects.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Group, version and kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Gvk {
    /// The API group; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The kind, such as `ConfigMap`.
    pub kind: String,
}

/// A reference to an object, with the API version that a manifest or a ResourceSet names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectRef {
    /// Group, version and kind.
    #[serde(flatten)]
    pub gvk: Gvk,
    /// The namespace; `None` for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: String,
}

/// The identity of an object in any version of its API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind, such as `ConfigMap`.
    pub kind: String,
    /// The namespace; `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: String,
}

// === impl Gvk ===

impl Gvk {
    /// Makes a kind from `apiVersion` and `kind` as manifests write them.
    pub fn new(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
        }
    }

    /// Returns `group/version`, or the version alone for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether this is a CustomResourceDefinition.
    pub fn is_crd(&self) -> bool {
        self.group == "apiextensions.k8s.io" && self.kind == "CustomResourceDefinition"
    }

    /// Whether this is a Namespace.
    pub fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.kind == "Namespace"
    }

    /// Whether this is a core Secret, whose content must not be shown.
    pub fn is_secret(&self) -> bool {
        self.group.is_empty() && self.kind == "Secret"
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.api_version(), self.kind)
    }
}

// === impl ObjectRef ===

impl ObjectRef {
    /// Reads the reference of an object; `None` if `apiVersion`, `kind` or the name is missing.
    pub fn of(object: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let metadata = &object["metadata"];
        Some(Self {
            gvk: Gvk::new(object["apiVersion"].as_str()?, &text(&object["kind"])?),
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"])?,
        })
    }

    /// Returns the identity of the object, without the version of its API.
    pub fn identity(&self) -> Identity {
        Identity {
            group: self.gvk.group.clone(),
            kind: self.gvk.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// Returns `kind.group/name`, as kubectl writes it.
    pub fn short(&self) -> String {
        let dot = if self.gvk.group.is_empty() { "" } else { "." };
        let kind = self.gvk.kind.to_ascii_lowercase();
        format!("{kind}{dot}{}/{}", self.gvk.group, self.name)
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())?;
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        }
    }
}

/// Returns all owner references of an object.
pub(crate) fn owner_references(live: &Value) -> &[Value] {
    live["metadata"]["ownerReferences"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_named_as_kubectl_names_them() {
        let deployment =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}});
        let object = ObjectRef::of(&deployment).unwrap();
        assert_eq!(object.to_string(), "deployment.apps/web in namespace shop");
        assert_eq!(object.gvk.to_string(), "apps/v1 Deployment");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
        assert_eq!(ObjectRef::of(&node).unwrap().to_string(), "node/a");
        assert_eq!(
            ObjectRef::of(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": ""}})),
            None
        );
    }
}
