//! The controller of APIServiceBindingBundles, which makes a binding of every export of a contract.
//!
//! No two workers handle the same bundle at the same time. `observe` collects the state, all of it from caches; `plan`
//! decides; `apply` writes; `status` computes the status. The controller of bindings serves the bindings of a bundle
//! like any other, and publishes how
//! many objects each has: a binding whose export was removed ends with its last object.

mod apply;
mod binding_index;
pub mod blocker;
mod controller;
mod observe;
pub mod observed;
pub mod plan;
mod runtime;
pub mod status;

#[cfg(test)]
#[path = "bundle/tests/fixtures.rs"]
mod fixtures;

pub use controller::{BundleController, RunningBundleController};
