//! What clients see of the API server.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failure here is a failed test")]

mod cluster;
mod crds;
mod deletion;
mod garbage;
mod lists;
mod namespaces;
mod policies;
mod snapshots;
mod watches;
mod writes;
