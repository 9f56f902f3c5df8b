//! APIServiceExport: what a provider exports to one consumer.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConflictPolicy, ExportResource, InformerScope, Isolation, PermissionClaim, Retention};
use crate::Condition;

/// The resources and claims of an export, fixed when it is made.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kube-bind.io",
    version = "v1alpha2",
    kind = "APIServiceExport",
    plural = "apiserviceexports",
    category = "kube-bindings",
    namespaced,
    status = "APIServiceExportStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "What a provider exports to the consumer of the contract namespace it stands in.",
    printcolumn(
        name = "Established",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Established")].status"#,
        priority = 5
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct APIServiceExportSpec {
    /// The resources that are exported.
    #[schemars(length(min = 1))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("resources are immutable"))]
    pub resources: Vec<ExportResource>,
    /// What the provider asks to see and to write on the consumer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("permissionClaims are immutable"))]
    pub permission_claims: Vec<PermissionClaim>,
    /// Whether the konnector watches the provider cluster-wide or per namespace.
    #[x_kube(validation = Rule::new("self == oldSelf").message("informerScope is immutable"))]
    pub informer_scope: InformerScope,
    /// How cluster-scoped objects are placed on the provider.
    #[x_kube(validation = Rule::new("self == oldSelf").message("isolation is immutable"))]
    pub isolation: Isolation,
    /// Deprecated name of isolation, neither read nor written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Isolation")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("clusterScopedIsolation is immutable"))]
    pub cluster_scoped_isolation: Option<Isolation>,
    /// Who wins when consumers share a name under isolation None; FirstWins if absent. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ConflictPolicy")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("conflictPolicy is immutable"))]
    pub conflict_policy: Option<ConflictPolicy>,
    /// The consumer's namespace whose mapped namespace holds cluster-scoped objects under isolation Namespaced; if absent,
    /// the contract namespace holds them. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("clusterScopedNamespace is immutable"))]
    pub cluster_scoped_namespace: Option<String>,
    /// How long the copies of deleted objects stay, so that the consumer can restore the objects; if absent, they are deleted at once.
    /// (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
}

/// What both sides say of the export. Of the provider's conditions, ProviderInSync says whether schemas and rights are
/// there, TemplateInSync whether the export is still what its template makes, and SchemaInSync whether its schemas are
/// those of the provider's CRDs.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct APIServiceExportStatus {
    /// What is well and what is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
