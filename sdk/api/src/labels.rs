//! Keys of labels.

/// `true` on a CRD that may be exported.
pub const EXPORTED: &str = "kube-bind.io/exported";
/// `provider` or `consumer`: the side that owns a claimed object, or made a namespace.
pub const OWNER: &str = "kube-bind.io/owner";
/// `true` on a Secret with a provider's kubeconfig, for kube-bind's konnector. Bindery reads it and never sets it.
pub const PROVIDER_KUBECONFIG: &str = "kube-bind.io/provider-kubeconfig";
/// The contract namespace that an object belongs to, on everything that cannot say so by an owner reference.
pub const CONTRACT: &str = "kube-bind.io/contract";
/// The UID of the contract namespace; on objects that the konnector keeps for a contract.
pub const CONTRACT_UID: &str = "kube-bind.io/contract-uid";
/// The export that an object was made for.
pub const EXPORT: &str = "kube-bind.io/export";
/// `grpc` on a BindableResourcesRequest that was made over gRPC; absent on one made as a Kubernetes object.
pub const VIA: &str = "kube-bind.io/via";
/// The value of [`VIA`] for a request made over gRPC.
pub const VIA_GRPC: &str = "grpc";
/// UID of the BindableResourcesRequest that a response was issued for; on the Secret that holds it.
pub const REQUEST_UID: &str = "kube-bind.io/request-uid";
/// `true` on a provider Namespace that consumers may share under isolation None: set by its admin, or by the server on one
/// that it made for that.
pub const SHARED: &str = "kube-bind.io/shared";
/// `true` on a copy that the provider retains after its source was deleted, so that the server finds it with one list.
pub const RETAINED: &str = "kube-bind.io/retained";
/// Purpose of an object that Bindery made, such as `token-anchor`.
pub const COMPONENT: &str = "kube-bind.io/component";
/// The value of [`COMPONENT`] on anchors: Secrets that the tokens of a contract are bound to, so that deleting one revokes them.
pub const TOKEN_ANCHOR: &str = "token-anchor";
/// `true` on a ClusterRole whose rules are aggregated into the server's, so that it may grant them.
pub const AGGREGATE_TO_SERVER: &str = "rbac.kube-bind.io/aggregate-to-server";
/// Label that aggregates the rights of all consumers, which a contract that kube-bind made may still carry; the server removes it.
pub const AGGREGATE_TO_PARENT: &str = "rbac.kube-bind.io/aggregate-to-parent";
/// Kubernetes' own label for the tool that manages an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
