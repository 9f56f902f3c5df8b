//! What no permission claim selects, whatever its selector says.

use std::fmt;

use crate::v1alpha2::GroupResource;

const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";
const BOOTSTRAP_TOKEN: &str = "bootstrap.kubernetes.io/token";
/// Types of Secrets that hold credentials of a cluster for itself.
pub const TOKEN_SECRET_TYPES: [&str; 2] = [SERVICE_ACCOUNT_TOKEN, BOOTSTRAP_TOKEN];
/// Core objects that every namespace has of its own, as resource and name.
const PER_NAMESPACE: [(&str, &str); 2] = [("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")];
/// Namespaces of Kubernetes itself: a client that can write there can rule the cluster.
pub const KUBERNETES_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// Why an object is never claimed, whatever a selector says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeverClaimed {
    /// The object is in a namespace of Kubernetes itself.
    KubernetesNamespace,
    /// The object is in the namespace of the konnector.
    KonnectorNamespace,
    /// The object is a Secret with the token of a ServiceAccount.
    ServiceAccountToken,
    /// The object is a Secret with a token by which nodes join the cluster.
    BootstrapToken,
    /// Every namespace has an object of this resource and name of its own.
    PerNamespace,
}

/// Tells whether an object is never claimed, and why. `namespace` and `name` are those on the consumer, `secret_type` is the
/// type of a Secret, and `konnector_namespace` the consumer's namespace that the konnector runs in.
pub fn never_claimed(
    resource: &GroupResource,
    (namespace, name): (&str, &str),
    secret_type: Option<&str>,
    konnector_namespace: &str,
) -> Option<NeverClaimed> {
    if namespace == konnector_namespace {
        return Some(NeverClaimed::KonnectorNamespace);
    }
    if is_protected_namespace(namespace, konnector_namespace) {
        return Some(NeverClaimed::KubernetesNamespace);
    }
    if !resource.is_core() {
        return None;
    }
    match (resource.resource.as_str(), secret_type) {
        ("secrets", Some(SERVICE_ACCOUNT_TOKEN)) => Some(NeverClaimed::ServiceAccountToken),
        ("secrets", Some(BOOTSTRAP_TOKEN)) => Some(NeverClaimed::BootstrapToken),
        (resource, _) => PER_NAMESPACE
            .contains(&(resource, name))
            .then_some(NeverClaimed::PerNamespace),
    }
}

/// Tells whether a namespace of the consumer is closed to all providers: the namespaces of Kubernetes are, and that of the
/// konnector, which holds the credentials of every provider.
pub fn is_protected_namespace(namespace: &str, konnector_namespace: &str) -> bool {
    namespace == konnector_namespace || KUBERNETES_NAMESPACES.contains(&namespace)
}

/// Tells whether a top-level field of a claimed resource has a meaning in one cluster alone, so that it is not copied.
pub fn is_local_field(resource: &GroupResource, field: &str) -> bool {
    resource.is_core() && resource.resource == "serviceaccounts" && field == "secrets"
}

// === impl NeverClaimed ===

impl fmt::Display for NeverClaimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KubernetesNamespace => "its namespace belongs to Kubernetes itself",
            Self::KonnectorNamespace => "the konnector's own namespace holds the credentials of all providers",
            Self::ServiceAccountToken => "it is a token of a ServiceAccount of this cluster",
            Self::BootstrapToken => "it is a token by which nodes join this cluster",
            Self::PerNamespace => "every namespace has one of its own",
        })
    }
}
