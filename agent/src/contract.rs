//! Names the relation of this consumer cluster with one provider.

use std::sync::Arc;

use bindery_runtime::kubeconfig::ProviderAccess;

/// What the identity of an unverified contract begins with. No UID of Kubernetes does.
const UNVERIFIED: &str = "unverified-";

/// A contract: a namespace on the provider. Its UID tells it from a later namespace of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    /// UID of the contract namespace, or a digest of its place if the namespace cannot be read.
    pub uid: Arc<str>,
    /// Name of the contract namespace.
    pub namespace: Arc<str>,
}

impl Contract {
    /// The contract of a kubeconfig whose namespace the konnector may not read. The digest of address, CA and namespace stands
    /// for its UID.
    pub fn unverified(access: &ProviderAccess) -> Self {
        Self {
            uid: format!("{UNVERIFIED}{}", access.location.as_str()).into(),
            namespace: Arc::clone(&access.namespace),
        }
    }
}

/// Whether the identity of a contract is a digest of its place, and no UID.
pub fn is_unverified(uid: &str) -> bool {
    uid.starts_with(UNVERIFIED)
}
