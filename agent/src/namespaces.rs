//! Provider namespaces: when one is requested for a consumer namespace, when it is given back, and who reaches into none.

pub(crate) mod mapped;
mod reconcile;

/// Namespaces of Kubernetes itself: whoever writes there may rule the cluster.
const PROTECTED_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// True for namespaces of the consumer into which no provider reaches, whatever it says: those of Kubernetes, and the
/// konnector's own, which holds the credentials of every provider.
pub(crate) fn is_protected(namespace: &str, home: &str) -> bool {
    namespace == home || PROTECTED_NAMESPACES.contains(&namespace)
}
