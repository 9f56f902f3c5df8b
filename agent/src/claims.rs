//! Permission claims: objects of the consumer that the provider may read, and objects of the provider that it may write on
//! the consumer, such as the Secrets that bound objects refer to.
//!
//! Every claimed object has a source on one cluster, which a user or the provider made there, and a copy on the other,
//! which the konnector makes. It never writes or deletes the source. The parts, in the way of one change:
//!
//! 1. `rules` decide which objects are claimed, by what the bindings say and what bound objects refer to.
//! 2. `pair` holds what is known of an object on both clusters, and which of the two is the source.
//! 3. `descent` decides which of the provider's objects may come down, and with which labels.
//! 4. `plan`, a pure function, decides what to write; `write` does it.
//!
//! `strategy` makes an engine of these. The `registry` of a session has one `runner` per claimed resource and placement, for all
//! bindings that claim it; the runners of one resource share their watches of the consumer and of the whole provider (`informer`).
//! `reach` decides which namespaces of the consumer are watched.

mod descent;
#[cfg(test)]
#[path = "claims/tests/fake.rs"]
pub(crate) mod fake;
mod informer;
mod pair;
mod plan;
mod reach;
mod registry;
mod rules;
mod runner;
mod strategy;
#[cfg(test)]
#[path = "claims/tests/testing.rs"]
pub(crate) mod testing;
mod wanted;
mod write;

pub use registry::Claims;
pub(crate) use runner::Site;
pub use wanted::{ClaimProgress, Progress, Wanted};
