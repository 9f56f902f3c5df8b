//! What the API server knows about one kind in one version.

use std::sync::Arc;

use serde_json::Value;

/// A kind in one version, as the functions on fields need it.
#[derive(Clone, Debug)]
pub(crate) struct KindInfo {
    /// API group, empty for core kinds.
    pub(crate) group: String,
    /// Version, such as `v1`.
    pub(crate) version: String,
    /// Kind, such as `Secret`.
    pub(crate) kind: String,
    /// If the kind has a status subresource.
    pub(crate) status: bool,
    /// OpenAPI schema of the whole object: that of the CRD, or for built-in kinds a partial one with the lists and maps that
    /// merge by key (`x-kubernetes-list-type`, `x-kubernetes-list-map-keys`, `x-kubernetes-map-type`). Absent parts are
    /// atomic lists and granular maps.
    pub(crate) schema: Option<Arc<Value>>,
}

impl KindInfo {
    /// `apiVersion` of the kind's objects.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}
