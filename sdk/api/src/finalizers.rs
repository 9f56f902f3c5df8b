//! Names of finalizers.

/// On a consumer's synced object until its copy on the provider is gone. Spelled without a dash, as on the wire.
pub const SYNCER: &str = "kubebind.io/syncer";
/// On an APIServiceBinding from before its konnector creates anything for it until all of that is deleted.
pub const KONNECTOR: &str = "kube-bind.io/konnector";
/// On an APIServiceExport until the rights made for it outside its namespace are gone.
pub const EXPORT: &str = "kube-bind.io/export";
/// On an APIServiceNamespace until its provider namespace is empty of synced objects, and gone.
pub const NAMESPACE: &str = "kube-bind.io/namespace";
