//! What the caller decides about a cluster, and who a user is.

use std::collections::BTreeMap;

/// Settings of one cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterSettings {
    /// Name of the cluster. UIDs and the keys that sign tokens are derived from it, so two clusters need two names.
    pub name: String,
    /// Static bearer tokens and their users.
    pub tokens: BTreeMap<String, UserInfo>,
    /// Revision of the store before the first write.
    pub start_revision: u64,
}

/// A user as authentication found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// Name, such as `system:serviceaccount:default:robot`.
    pub name: String,
    /// UID, empty if the authenticator has none.
    pub uid: String,
    /// Groups. Members of `system:masters` pass every authorization check.
    pub groups: Vec<String>,
    /// Further attributes of the user.
    pub extra: BTreeMap<String, Vec<String>>,
}
