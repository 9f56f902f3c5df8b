//! Why a template cannot be bound.

use bindery_api::v1alpha2::{GroupResource, Scope};
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
    /// A resource has not the scope the template says.
    #[error("{resource} is {actual} and the template's spec.scope says {offered}; set it to {actual}")]
    ScopeOfTemplate {
        /// The resource.
        resource: GroupResource,
        /// Its scope.
        actual: Scope,
        /// The template's.
        offered: Scope,
    },
    /// The resource is cluster-scoped.
    #[error("{resource} is cluster-scoped; this server offers namespaced resources")]
    ClusterScoped {
        /// The resource.
        resource: GroupResource,
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
            Self::ScopeOfTemplate { .. } | Self::ScopeFixed { .. } => "ScopeMismatch",
            Self::ClusterScoped { .. } => "ClusterScopedResource",
            Self::InvalidPermissionClaim { .. } => "InvalidPermissionClaim",
            Self::DuplicatePermissionClaim { .. } => "DuplicatePermissionClaim",
            Self::InvalidNamespace { .. } => "InvalidNamespace",
            Self::ServerLacksRights { .. } => SERVER_LACKS_RIGHTS,
        }
    }

    /// The reason of a call that fails for this.
    pub const fn error_reason(&self) -> ErrorReason {
        match self {
            Self::ServerLacksRights { .. } => ErrorReason::ServerLacksRights,
            Self::ScopeFixed { .. } => ErrorReason::ScopeMismatch,
            Self::Schema { .. } | Self::ClusterScoped { .. } | Self::ProtectedGroup { .. } => {
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
            Self::ScopeFixed { .. } | Self::InvalidPermissionClaim { .. } | Self::DuplicatePermissionClaim { .. }
        )
    }
}
