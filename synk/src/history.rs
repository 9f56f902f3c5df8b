//! What a set was: the manifests of its newest versions, kept in Secrets for a rollback.
//!
//! The manifests of one version are compressed and cut into chunks, one Secret each. A version counts only if all its
//! chunks are there and are what was stored, so an end in the middle leaves nothing that looks whole.

mod chunks;
mod mark;
mod store;

use jiff::Timestamp;
use serde::Serialize;

use crate::wire::Version;

pub use store::{is_kept, list, load, remove_all, store};

/// A version whose manifests are stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stored {
    /// The version.
    #[serde(serialize_with = "as_text")]
    pub version: Version,
    /// When it was applied; `None` if the Secrets do not say so any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    /// How many objects it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<usize>,
    /// False if parts of it are missing.
    pub whole: bool,
}

fn as_text<S: serde::Serializer>(version: &Version, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(version)
}
