//! Names of finalizers.

/// Kept on a consumer's synced object until its copy on the provider no longer exists. It is spelled `kubebind`, as
/// kube-bind does.
pub const SYNCER: &str = "kubebind.io/syncer";
/// Kept on an APIServiceBinding until everything that the konnector created for it is deleted.
pub const KONNECTOR: &str = "kube-bind.io/konnector";
/// Kept on an APIServiceExport until the rights that the server gave for it outside the export's namespace are removed.
pub const EXPORT: &str = "kube-bind.io/export";
/// Kept on an APIServiceNamespace until its provider namespace has no synced objects any more and is deleted.
pub const NAMESPACE: &str = "kube-bind.io/namespace";
/// Kubernetes' own: kept on an object that was deleted with propagation policy Orphan, until the garbage collector has taken it off the
/// owner references of its dependents.
pub const ORPHAN: &str = "orphan";
/// Kubernetes' own, which the garbage collector removes by itself: [`ORPHAN`], and the one on an object that was deleted in foreground and
/// waits for its dependents.
pub const OF_GARBAGE_COLLECTOR: [&str; 2] = [ORPHAN, "foregroundDeletion"];
