//! Clients of both clusters, and the requests that every engine makes with them.

mod writer;

use bindery_runtime::client::Clients;

pub(crate) use writer::*;

/// Clients of the two clusters.
#[derive(Clone, Debug)]
pub struct Sides {
    /// Where the user's objects are.
    pub consumer: Clients,
    /// Where the copies go.
    pub provider: Clients,
}
