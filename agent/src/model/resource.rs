//! The resource that an engine syncs.

use std::sync::Arc;

use bindery_api::v1alpha2::Scope;

/// A resource that both clusters serve, in the version to sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundResource {
    /// API group; empty for core.
    pub group: Arc<str>,
    /// Version, such as `v1alpha1`.
    pub version: Arc<str>,
    /// Plural name.
    pub plural: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Scope on the consumer.
    pub scope: Scope,
    /// Whether the status is written through the subresource `/status`.
    pub status_subresource: bool,
}

impl BoundResource {
    /// `group/version`, as objects carry it.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Path of the collection in a namespace; of all namespaces, or of a cluster-scoped resource, if it is empty.
    pub(crate) fn collection(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        let api = self.api_version();
        if namespace.is_empty() {
            format!("/{root}/{api}/{}", self.plural)
        } else {
            format!("/{root}/{api}/namespaces/{namespace}/{}", self.plural)
        }
    }
}

impl std::fmt::Display for BoundResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.plural, self.group)
    }
}
