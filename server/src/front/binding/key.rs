//! What tells a request from all others.

use crate::principal::Principal;

/// The key of a request: who made it, for which cluster, under which name.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// Name of the object: a hash of the others.
    pub(super) object: String,
    pub(super) principal: Principal,
    pub(super) identity: String,
    pub(super) name: String,
}
