//! Names the relation of this consumer cluster with one provider.

use std::sync::Arc;

/// A contract: a namespace on the provider. Its UID tells it from a later namespace of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    /// UID of the contract namespace.
    pub uid: Arc<str>,
    /// Name of the contract namespace.
    pub namespace: Arc<str>,
}
