//! The resources of group kube-bind.io, version v1alpha2, one file per kind.
//!
//! Fields, defaults and rules are those of the wire; what this project adds to them is optional and says so.

#![allow(
    clippy::duplicated_attributes,
    reason = "each column of a kind has the same attributes as the others"
)]
#![allow(
    unreachable_pub,
    reason = "the derive of rules repeats a struct, with its visibility, inside a function"
)]

mod apiservicebinding;
mod apiservicebindingbundle;
mod apiserviceexport;
mod apiserviceexportrequest;
mod apiserviceexporttemplate;
mod apiservicenamespace;
mod bindableresourcesrequest;
mod boundschema;
mod claims;
mod cluster;
mod clusterbinding;
mod collection;
mod policy;
mod references;
mod retention;
mod schemas;
mod shared_value;

pub use apiservicebinding::{APIServiceBinding, APIServiceBindingSpec, APIServiceBindingStatus};
pub use apiservicebindingbundle::{
    APIServiceBindingBundle, APIServiceBindingBundleSpec, APIServiceBindingBundleStatus,
};
pub use apiserviceexport::{APIServiceExport, APIServiceExportSpec, APIServiceExportStatus};
pub use apiserviceexportrequest::{
    APIServiceExportRequest, APIServiceExportRequestSpec, APIServiceExportRequestStatus,
};
pub use apiserviceexporttemplate::{
    APIServiceExportTemplate, APIServiceExportTemplateSpec, APIServiceExportTemplateStatus,
};
pub use apiservicenamespace::{APIServiceNamespace, APIServiceNamespaceSpec, APIServiceNamespaceStatus};
pub use bindableresourcesrequest::{
    BindableResourcesRequest, BindableResourcesRequestSpec, BindableResourcesRequestStatus, ClusterIdentity,
};
pub use boundschema::{
    BoundSchema, BoundSchemaConversion, BoundSchemaSpec, BoundSchemaStatus, BoundSchemaVersion, ConversionStrategy,
    WebhookClientConfig, WebhookConversion,
};
pub use claims::{NamedResource, PermissionClaim, ReferencePath, Selector, SelectorReference};
pub use cluster::{Cluster, ClusterSpec, ClusterStatus};
pub use clusterbinding::{ClusterBinding, ClusterBindingSpec, ClusterBindingStatus, ClusterBindingSync};
pub use collection::{Collection, CollectionSpec, CollectionStatus};
pub use policy::{
    Compatibility, ConflictPolicy, DeletionPolicy, InformerScope, Isolation, Owner, Phase, RemovedExports,
    SchemaUpdatePolicy, Scope,
};
pub use references::{ClusterSecretKeyRef, ExportResource, GroupResource, LocalSecretKeyRef, NameRef, SecretRef};
pub use retention::{RetainedObject, RetainedObjects, Retention};
pub use shared_value::SharedValue;

/// The API group of all kinds here.
pub const GROUP: &str = "kube-bind.io";
/// The version of all kinds here.
pub const VERSION: &str = "v1alpha2";
/// `group/version`, as in `apiVersion`.
pub const API_VERSION: &str = "kube-bind.io/v1alpha2";

#[cfg(test)]
mod tests;
