//! What the sync engine keeps of an object, and where the copy of an object lives. No client and no lock.

/// Who writes, for server-side apply. kube-bind's name, so that either may continue the other's work.
pub(crate) const FIELD_MANAGER: &str = "kube-bind.io";

pub(crate) mod labels;
pub(crate) mod object;
pub(crate) mod ownership;
pub(crate) mod projection;
mod resource;
pub(crate) mod uid;

pub use bindery_api::placement::Placement;
pub use resource::BoundResource;
