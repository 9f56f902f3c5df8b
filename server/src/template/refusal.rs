//! Why a template cannot be bound.

use bindery_api::{
    retention::InvalidRetention,
    v1alpha2::{GroupResource, Isolation, Scope},
};
use bindery_proto::v1alpha2::ErrorReason;

/// The reason of a condition where the server lacks rights that the provider's admin has to grant.
pub const SERVER_LACKS_RIGHTS: &str = "ServerLacksRights";

/// Why a template cannot be bound. Each message names what is wrong, and what to do.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A CRD is missing, or not labelled for export.
    #[error(
        "CustomResourceDefinition {definition} does not exist or lacks the label kube-bind.io/exported=true; correct its name in \
         spec.resources, or create or label it"
    )]
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
        /// Reason of the condition.
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
    #[error("{} is {} and {} is {}; make one template for each scope", one.0, one.1, other.0, other.1)]
    DifferentScopes {
        /// One resource.
        one: (GroupResource, Scope),
        /// Another one.
        other: (GroupResource, Scope),
    },
    /// A cluster-scoped resource cannot be shown as a namespaced one.
    #[error("{resource} is cluster-scoped, and the template's spec.scope is Namespaced; set it to Cluster")]
    ScopeOfTemplate {
        /// The resource.
        resource: GroupResource,
    },
    /// Only isolation Namespaced can show a namespaced resource as a cluster-scoped one.
    #[error(
        "{resource} is namespaced, the template's spec.scope is Cluster, and isolation {isolation} converts nothing; \
         set spec.scope to Namespaced, or spec.isolation to Namespaced"
    )]
    NotConverted {
        /// The resource.
        resource: GroupResource,
        /// The isolation in effect.
        isolation: Isolation,
    },
    /// Isolation Namespaced puts objects into namespaces, which a cluster-scoped resource does not have.
    #[error(
        "{resource} is cluster-scoped on the provider, and isolation Namespaced would put its objects into namespaces; set \
         spec.isolation to Prefixed or None, or offer a namespaced CustomResourceDefinition"
    )]
    NotConvertible {
        /// The resource.
        resource: GroupResource,
    },
    /// A conflict policy has no effect where consumers do not share names.
    #[error(
        "spec.conflictPolicy is for templates of scope Cluster with isolation None, and the isolation in effect is {isolation}; \
         remove it, or set both"
    )]
    ConflictPolicyUnused {
        /// The isolation in effect.
        isolation: Isolation,
    },
    /// A namespace for cluster-scoped objects has no effect where nothing is converted.
    #[error(
        "spec.clusterScopedNamespace is for templates of scope Cluster with isolation Namespaced, and the isolation in effect \
         is {isolation}; remove it, or set both"
    )]
    ClusterScopedNamespaceUnused {
        /// The isolation in effect.
        isolation: Isolation,
    },
    /// Copies whose names consumers share belong to nobody alone, so that nobody can restore them.
    #[error(
        "spec.retention is not for templates of scope Cluster with isolation None, where consumers share the names of objects; remove it, \
         or set spec.isolation to Prefixed or Namespaced"
    )]
    RetentionOfSharedNames,
    /// The retention cannot be offered as it is.
    #[error(transparent)]
    InvalidRetention(#[from] InvalidRetention),
    /// The scope of a resource is unknown: it has no schema yet, and its template was deleted.
    #[error(
        "{resource} has no schema in this contract yet, and template {template}, which had its scope, was deleted; restore the \
         template, or delete this export"
    )]
    ScopeUnknown {
        /// The resource.
        resource: GroupResource,
        /// The template.
        template: String,
    },
    /// The contract already has the resource in another scope.
    #[error(
        "{resource} is bound as {bound} in this contract and the template offers it as {offered}; unbind it first, and bind again"
    )]
    ScopeFixed {
        /// The resource.
        resource: GroupResource,
        /// The scope of its first export.
        bound: Scope,
        /// The scope of the template.
        offered: Scope,
    },
    /// Existing objects would have to move.
    #[error(
        "the {field} of the template changed since export {export} was made, and the objects of an export are never moved; unbind \
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
    /// A namespace to be mapped has an invalid name.
    #[error("namespace {namespace:?} has an invalid name; use lower-case letters, digits and dashes, 63 at most")]
    InvalidNamespace {
        /// The name.
        namespace: String,
    },
    /// The admission policy is not in force, which limits what RBAC cannot.
    #[error(
        "ValidatingAdmissionPolicy {policy} of this server's version is not in force, and without it a consumer could write \
         objects of others; apply deploy/server/policy.yaml"
    )]
    AdmissionPolicyMissing {
        /// The policy.
        policy: &'static str,
    },
    /// It is unknown whether the admission policy is in force.
    #[error("cannot prove that ValidatingAdmissionPolicy {policy} is in force: {cause}")]
    AdmissionPolicyUnproved {
        /// The policy.
        policy: &'static str,
        /// Why that is unknown.
        cause: String,
    },
    /// The server lacks rights that the template needs.
    #[error("the server lacks rights that this template needs; apply this:\n{manifest}")]
    ServerLacksRights {
        /// A ClusterRole with the missing rights, ready to apply.
        manifest: String,
    },
}

// === impl Refusal ===

impl Refusal {
    /// The reason of a condition that reports this.
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
            Self::RetentionOfSharedNames | Self::InvalidRetention(_) => "InvalidRetention",
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

    /// The error reason of a call that fails for this.
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

    /// The type of the condition of an APIServiceExportRequest that reports this.
    pub const fn condition(&self) -> &'static str {
        match self {
            Self::InvalidPermissionClaim { .. } | Self::DuplicatePermissionClaim { .. } => "PermissionClaim",
            _ => "ExportsReady",
        }
    }

    /// Whether the request fails for good. For everything else it waits until the provider's admin mends the template, the CRD or
    /// the server's rights.
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
