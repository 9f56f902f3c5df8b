//! What the plan of an export depends on.

use std::sync::Arc;

use bindery_api::v1alpha2::{APIServiceExport, APIServiceExportRequest, BoundSchema, BoundSchemaSpec};
use bindery_runtime::policy::Standing;
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};

use super::schemas;
use crate::template::{ExportPlan, Refusal};

/// An export, and what its plan depends on.
pub(super) struct Observed<'a> {
    pub(super) export: &'a APIServiceExport,
    pub(super) contract: Option<Arc<Namespace>>,
    /// The schema of each resource, as far as it exists.
    pub(super) schemas: &'a [Option<Arc<BoundSchema>>],
    /// What the schema of each resource is made from today, or why it cannot be made.
    pub(super) sources: &'a [Result<BoundSchemaSpec, Refusal>],
    /// The export whose policy `Never` keeps the resource's schema as it was bound, for each resource that has one.
    pub(super) keepers: &'a [Option<String>],
    /// The APIServiceExportRequest that asked for the export.
    pub(super) request: Option<Arc<APIServiceExportRequest>>,
    pub(super) cluster_role: Option<Arc<ClusterRole>>,
    pub(super) cluster_role_binding: Option<Arc<ClusterRoleBinding>>,
    /// The export's Role in the contract namespace.
    pub(super) role: Option<Arc<Role>>,
    /// The RoleBinding of the export's Role in the contract namespace.
    pub(super) role_binding: Option<Arc<RoleBinding>>,
    /// What the consumer may read of claimed objects in the whole cluster.
    pub(super) claims: ClaimsSeen,
    /// Whether the admission policy limits cluster-wide writes; `None` if that was not asked yet.
    pub(super) policy: Option<&'a Result<(), Refusal>>,
    /// What may be done with rights that rely on the admission policy.
    pub(super) standing: Standing,
    /// Whether the consumer has the export's rights in every namespace that is mapped already.
    pub(super) has_rights: bool,
    /// What the server lacks to give the rights that are missing.
    pub(super) lacking: Option<Refusal>,
    /// What the template offers today; `None` if the template was deleted.
    pub(super) template: Option<Result<ExportPlan, Refusal>>,
    pub(super) now: Timestamp,
}

/// The right of one export to read claimed objects cluster-wide as it is, and what the operator allows.
#[derive(Clone, Debug, Default)]
pub(super) struct ClaimsSeen {
    pub(super) role: Option<Arc<ClusterRole>>,
    pub(super) binding: Option<Arc<ClusterRoleBinding>>,
    /// Whether the operator lets Secrets be read cluster-wide.
    pub(super) secrets: bool,
}

// === impl Observed ===

impl<'a> Observed<'a> {
    pub(super) fn schemas(&self) -> schemas::SchemaView<'a> {
        schemas::SchemaView {
            export: self.export,
            schemas: self.schemas,
            sources: self.sources,
            keepers: self.keepers,
        }
    }
}
