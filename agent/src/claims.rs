//! Permission claims: objects of the consumer that the provider may read, and objects of the provider that it may write on
//! the consumer, such as the Secrets that bound objects refer to.
//!
//! Every claimed object has a source on one cluster, made there by somebody else, and a copy on the other, made here. The
//! source is never written or deleted. Its parts, in the way of one change:
//!
//! 1. `path` and `references` keep which objects are referred to by bound ones; `selection` tells which are claimed, and
//!    `rules` for whom.
//! 2. `pair` holds what is known of an object on both clusters, and which of the two is the source.
//! 3. `plan`, a pure function, decides what is to be done; `write` does it.
//!
//! `flavour` makes of these an engine of `sync`. The `registry` of a session runs one per claimed resource and kind of place
//! (`unit`), for all bindings that claim it; those of one resource share the watches of whole clusters (`lookout`).
//! `discovery` finds the version that both clusters serve. `cleanup` is for a binding that ends without its provider.

mod api;
mod cleanup;
mod discovery;
mod flavour;
mod lookout;
mod pair;
mod plan;
mod registry;
mod rules;
pub(crate) mod selection;
mod unit;
mod write;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod testing;

pub use api::{ClaimProgress, Problem, Progress, Wanted};
pub use cleanup::Cleanup;
pub use registry::Claims;
pub(crate) use registry::Site;
