//! synk: a set of Kubernetes manifests, applied, versioned and pruned.
//!
//! A set has a name. Each apply that changes something makes a new version of it, a ResourceSet `NAME.vN` that lists what
//! the set holds and owns all of it; the versions before go when all is applied, and what left the set with them.
//!
//! [`Synk`] is the way in. What it does is decided in [`plan`], which reads and writes nothing.

mod apply;
pub mod delete;
mod discovery;
pub mod errors;
pub mod health;
pub mod history;
pub mod input;
pub mod kinds;
mod live;
pub mod lock;
pub mod object;
pub mod plan;
pub mod problem;
pub mod report;
mod rest;
mod sets;
pub mod status;
mod synk;
#[cfg(test)]
mod testing;
pub mod versions;
pub mod wait;
pub mod wire;

pub use errors::Failure;
pub use input::Manifest;
pub use object::{Gvk, Identity, ObjectRef};
pub use report::{Event, Report};
pub use synk::{Options, Synk, Target};
pub use wire::{SetName, Version};
