//! Keeps the manifests of a set's newest versions in Secrets, for a rollback.
//!
//! The manifests of one version are compressed and cut into chunks, one Secret each. A version counts only if all its
//! chunks are there and are what was stored, so an end in the middle leaves nothing that looks whole.

mod chunks;
mod mark;
mod store;

use jiff::Timestamp;
use serde::Serialize;

use crate::wire::{self, Version};

pub use store::{is_kept, list, load, remove_all, store};

/// A version whose manifests are stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stored {
    /// The stored version.
    #[serde(serialize_with = "wire::as_text")]
    pub version: Version,
    /// The time of its application. Each Secret of a version records it; `None` if no annotations of them can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    /// The number of its objects; `None` if the time is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<usize>,
    /// False if some of its Secrets are missing, or their annotations are damaged: there is no rollback to this version. The
    /// content of the Secrets is verified only by [`load`].
    pub whole: bool,
}
