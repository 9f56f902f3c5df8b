//! Clients of both clusters, and the requests that every engine makes with them.

mod writer;

use bindery_runtime::client::Clients;

pub(crate) use writer::*;

/// Clients of the two clusters.
#[derive(Clone, Debug)]
pub struct Sides {
    /// Clients of the consumer cluster, where the user's objects are.
    pub consumer: Clients,
    /// Clients of the provider cluster, where the copies of them are.
    pub provider: Clients,
}
