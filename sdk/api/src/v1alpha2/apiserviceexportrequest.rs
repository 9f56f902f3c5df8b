//! APIServiceExportRequest: a consumer asks for an export.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ExportResource, NameRef, PermissionClaim, Phase, SchemaUpdatePolicy, schemas};
use crate::Condition;

/// What is asked for; fixed once it is asked.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kube-bind.io",
    version = "v1alpha2",
    kind = "APIServiceExportRequest",
    plural = "apiserviceexportrequests",
    category = "kube-bindings",
    namespaced,
    status = "APIServiceExportRequestStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Asks the provider for an export of the same name in the same contract namespace.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct APIServiceExportRequestSpec {
    /// Free-form parameters; not interpreted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("parameters are immutable"))]
    pub parameters: Option<Value>,
    /// The resources asked for.
    #[schemars(length(min = 1))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("resources are immutable"))]
    pub resources: Vec<ExportResource>,
    /// The claims that come with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("permissionClaims are immutable"))]
    pub permission_claims: Vec<PermissionClaim>,
    /// Namespaces of the consumer to be mapped from the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("namespaces are immutable"))]
    pub namespaces: Vec<NameRef>,
    /// Whether the export follows compatible changes of the provider's CRD (Always) or keeps its schema as it was bound
    /// (Never); read for as long as the export lives.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self == oldSelf").message("schemaUpdatePolicy is immutable"))]
    pub schema_update_policy: SchemaUpdatePolicy,
}

/// How far the request has come.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct APIServiceExportRequestStatus {
    /// Pending until it is decided.
    #[serde(default)]
    pub phase: Phase,
    /// Why a failed request failed, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_message: Option<String>,
    /// What is well and what is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

// === impl APIServiceExportRequest ===

impl APIServiceExportRequest {
    /// The phase in the status; pending while there is no status.
    pub fn phase(&self) -> Phase {
        self.status.as_ref().map(|status| status.phase).unwrap_or_default()
    }
}
