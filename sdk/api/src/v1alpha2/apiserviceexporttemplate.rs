//! APIServiceExportTemplate: a service in the provider's catalog.
//!
//! A contract namespace is the provider's namespace for one consumer cluster. Under isolation Prefixed, the default, the
//! name of an object on the provider begins with the name of the contract.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    ConflictPolicy, ExportResource, Isolation, NameRef, PermissionClaim, Retention, SchemaUpdatePolicy, Scope,
};
use crate::Condition;

/// The resources and claims that every export of this template has.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kube-bind.io",
    version = "v1alpha2",
    kind = "APIServiceExportTemplate",
    plural = "apiserviceexporttemplates",
    category = "kube-bind",
    status = "APIServiceExportTemplateStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A service that the provider offers, from which exports are made.",
    printcolumn(name = "Resources", type_ = "string", json_path = ".spec.resources[*].group"),
    printcolumn(
        name = "PermissionClaims",
        type_ = "string",
        json_path = ".spec.permissionClaims[*].resource"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct APIServiceExportTemplateSpec {
    /// What it is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The scope of the resources as the consumer sees them.
    pub scope: Scope,
    /// The resources it offers.
    #[schemars(length(min = 1))]
    pub resources: Vec<ExportResource>,
    /// What the provider asks to see and to write on the consumer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permission_claims: Vec<PermissionClaim>,
    /// Namespaces of the consumer to be mapped from the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<NameRef>,
    /// Whether exports follow changes of the provider's CRD. Never (the default) keeps the schema as it was bound. Always
    /// carries compatible changes, such as an optional field, a version or a wider limit, through to the consumer's CRD;
    /// an incompatible one is refused, and condition SchemaInSync of the export names the field. A schema that several
    /// exports of a consumer share follows if all of them say Always.
    #[serde(default)]
    pub schema_update_policy: SchemaUpdatePolicy,
    /// How cluster-scoped objects are placed; the server's own choice if absent. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Isolation")]
    pub isolation: Option<Isolation>,
    /// Who wins when consumers share a name under isolation None; FirstWins if absent. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ConflictPolicy")]
    pub conflict_policy: Option<ConflictPolicy>,
    /// The consumer's namespace whose mapped namespace holds cluster-scoped objects under isolation Namespaced; if absent,
    /// the contract namespace holds them. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_scoped_namespace: Option<String>,
    /// How long the copies of deleted objects stay, so that the consumer can restore the objects; if absent, they are deleted at once.
    /// Not for isolation None and conflictPolicy LastWins. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
}

/// Whether the template can be bound.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct APIServiceExportTemplateStatus {
    /// What is well and what is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
