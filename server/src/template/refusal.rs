//! Why a template cannot be bound.

use bindery_api::v1alpha2::{GroupResource, Isolation, Scope};
use bindery_proto::v1alpha2::ErrorReason;

/// Reason of what waits for a right that the provider's admin has to give.
pub const SERVER_LACKS_RIGHTS: &str = "ServerLacksRights";

/// Why a template cannot be bound, in words that name the object and the mend.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A CRD is missing, or not labelled for export.
    #[error("CustomResourceDefinition {definition} does not exist or lacks the label kube-bind.io/exported=true")]
    SchemaNotFound {
        /// Name of the CRD.
        definition: String,
    },
    /// The API server does not serve a CRD.
    #[error("CustomResourceDefinition {definition} is not established; see its conditions")]
    NotEstablished {
        /// Name of the CRD.
        definition: String,
    },
    /// A CRD cannot be offered as it is.
    #[error("CustomResourceDefinition {definition} cannot be offered: {message}")]
    Schema {
        /// Name of the CRD.
        definition: String,
        /// Stable reason.
        reason: &'static str,
        /// What is wrong with it.
        message: String,
    },
    /// The resource belongs to Kubernetes or to kube-bind.
    #[error("{resource} is in a protected group; offer resources of a group of your own")]
    ProtectedGroup {
        /// The resource.
        resource: GroupResource,
    },
    /// A resource is listed twice.
    #[error("{resource} is listed twice; list it once with all its versions")]
    DuplicateResource {
        /// The resource.
        resource: GroupResource,
    },
    /// Resources of different scopes cannot share a template.
    #[error("{} is {} and {} is {}; give each scope a template of its own", one.0, one.1, other.0, other.1)]
    DifferentScopes {
        /// One resource.
        one: (GroupResource, Scope),
        /// Another one.
        other: (GroupResource, Scope),
    },
    /// A cluster-scoped resource cannot be shown as a namespaced one.
    #[error("{resource} is Cluster and the template's spec.scope says Namespaced; set it to Cluster")]
    ScopeOfTemplate {
        /// The resource.
        resource: GroupResource,
    },
    /// A namespaced resource is shown as a cluster-scoped one under isolation Namespaced alone.
    #[error(
        "{resource} is Namespaced and the template's spec.scope says Cluster, and isolation {isolation} converts nothing; \
         set spec.scope to Namespaced, or spec.isolation to Namespaced"
    )]
    NotConverted {
        /// The resource.
        resource: GroupResource,
        /// The isolation in effect.
        isolation: Isolation,
    },
    /// Objects of a cluster-scoped resource stand in no namespace.
    #[error(
        "{resource} is cluster-scoped on the provider, and isolation Namespaced would put its objects into namespaces; set \
         spec.isolation to Prefixed or None, or offer a namespaced CustomResourceDefinition"
    )]
    NotConvertible {
        /// The resource.
        resource: GroupResource,
    },
    /// Where no names are shared, nobody can win one.
    #[error(
        "spec.conflictPolicy is for templates of scope Cluster with isolation None, and the isolation in effect is {isolation}; \
         remove it, or set both"
    )]
    ConflictPolicyUnused {
        /// The isolation in effect.
        isolation: Isolation,
    },
    /// Where nothing is converted, no namespace is needed for it.
    #[error(
        "spec.clusterScopedNamespace is for templates of scope Cluster with isolation Namespaced, and the isolation in effect \
         is {isolation}; remove it, or set both"
    )]
    ClusterScopedNamespaceUnused {
        /// The isolation in effect.
        isolation: Isolation,
    },
    /// It is not known any more in which scope a resource was offered.
    #[error(
        "{resource} has no schema in this contract yet, and template {template}, which says its scope, has gone; restore the \
         template, or delete this export"
    )]
    ScopeUnknown {
        /// The resource.
        resource: GroupResource,
        /// The template.
        template: String,
    },
    /// The contract already has the resource in another scope.
    #[error("{resource} is bound as {bound} in this contract and the template offers it as {offered}; unbind it first")]
    ScopeFixed {
        /// The resource.
        resource: GroupResource,
        /// The scope of its first export.
        bound: Scope,
        /// The scope of the template.
        offered: Scope,
    },
    /// Objects that are there are not moved.
    #[error(
        "export {export} has its objects where the {field} of its time put them, and the template's has changed since; unbind \
         it first, or choose another name"
    )]
    PlacementFixed {
        /// The export.
        export: String,
        /// What has changed.
        field: &'static str,
    },
    /// A claim cannot be served.
    #[error("permission claim on {resource}: {message}")]
    InvalidPermissionClaim {
        /// The claimed resource.
        resource: GroupResource,
        /// What is wrong with it.
        message: String,
    },
    /// A resource is claimed twice.
    #[error("{resource} is claimed twice; put both selectors into one claim, which selects what either selects")]
    DuplicatePermissionClaim {
        /// The claimed resource.
        resource: GroupResource,
    },
    /// A namespace to be mapped has no valid name.
    #[error("{namespace:?} is no name of a namespace: lower-case letters, digits and dashes, 63 at most")]
    InvalidNamespace {
        /// The name.
        namespace: String,
    },
    /// Nothing holds what RBAC cannot say.
    #[error(
        "ValidatingAdmissionPolicy {policy} of this server's version is not in force, and without it a consumer could write \
         objects of others; apply deploy/server/policy.yaml"
    )]
    AdmissionPolicyMissing {
        /// The policy.
        policy: &'static str,
    },
    /// It cannot be seen whether something holds it.
    #[error("cannot prove that ValidatingAdmissionPolicy {policy} is in force: {cause}")]
    AdmissionPolicyUnproved {
        /// The policy.
        policy: &'static str,
        /// Why not.
        cause: String,
    },
    /// The server may not hand out what the template needs.
    #[error("the server lacks rights that this template needs; apply this:\n{manifest}")]
    ServerLacksRights {
        /// A ClusterRole that mends it.
        manifest: String,
    },
}

// === impl Refusal ===

impl Refusal {
    /// Stable reason, for conditions.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::SchemaNotFound { .. } => "SchemaNotFound",
            Self::NotEstablished { .. } => "SchemaNotEstablished",
            Self::Schema { reason, .. } => reason,
            Self::ProtectedGroup { .. } => "ProtectedGroup",
            Self::DuplicateResource { .. } => "DuplicateResource",
            Self::DifferentScopes { .. } => "DifferentScopes",
            Self::ScopeOfTemplate { .. } | Self::NotConverted { .. } | Self::ScopeFixed { .. } => "ScopeMismatch",
            Self::NotConvertible { .. } => "ClusterScopedResource",
            Self::ConflictPolicyUnused { .. } => "InvalidConflictPolicy",
            Self::ClusterScopedNamespaceUnused { .. } => "InvalidClusterScopedNamespace",
            Self::ScopeUnknown { .. } => "ScopeUnknown",
            Self::PlacementFixed { .. } => "PlacementFixed",
            Self::InvalidPermissionClaim { .. } => "InvalidPermissionClaim",
            Self::DuplicatePermissionClaim { .. } => "DuplicatePermissionClaim",
            Self::InvalidNamespace { .. } => "InvalidNamespace",
            Self::AdmissionPolicyMissing { .. } => "AdmissionPolicyMissing",
            Self::AdmissionPolicyUnproved { .. } => "AdmissionPolicyUnproved",
            Self::ServerLacksRights { .. } => SERVER_LACKS_RIGHTS,
        }
    }

    /// The reason of a call that fails for this.
    pub const fn error_reason(&self) -> ErrorReason {
        match self {
            Self::ServerLacksRights { .. } => ErrorReason::ServerLacksRights,
            Self::ScopeFixed { .. } => ErrorReason::ScopeMismatch,
            Self::PlacementFixed { .. } => ErrorReason::PlacementConflict,
            Self::Schema { .. } | Self::NotConvertible { .. } | Self::ProtectedGroup { .. } => {
                ErrorReason::SchemaUnsupported
            }
            _ => ErrorReason::TemplateNotReady,
        }
    }

    /// The wire's condition on an APIServiceExportRequest that says this.
    pub const fn condition(&self) -> &'static str {
        match self {
            Self::InvalidPermissionClaim { .. } | Self::DuplicatePermissionClaim { .. } => "PermissionClaim",
            _ => "ExportsReady",
        }
    }

    /// Whether only another request can help. Everything else mends when the provider's admin mends the template, the
    /// CRD or the server's rights, and waits for that.
    pub const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::ScopeFixed { .. }
                | Self::PlacementFixed { .. }
                | Self::InvalidPermissionClaim { .. }
                | Self::DuplicatePermissionClaim { .. }
        )
    }
}
