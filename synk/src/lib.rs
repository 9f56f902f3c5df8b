//! Applies sets of Kubernetes manifests, keeps versions of them, and prunes.
//!
//! A set has a name. Each apply that changes something creates a new version of the set: a ResourceSet `NAME.vN`, which
//! lists the objects of the set and owns them. When all objects are applied, former versions are deleted, and with them
//! the objects that left the set.
//!
//! [`Synk`] is the entry for programs. [`plan`] decides, without IO.

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
mod manifest;
pub mod object;
pub mod order;
pub mod plan;
pub mod problem;
pub mod report;
mod rest;
mod sets;
pub mod status;
mod synk;
mod target;
#[cfg(test)]
mod testing;
pub mod versions;
pub mod wait;
pub mod wire;

pub use apply::{Options, Proof};
pub use errors::Failure;
pub use input::Manifest;
pub use object::{Gvk, Identity, ObjectRef};
pub use report::{Event, Report};
pub use synk::Synk;
pub use target::Target;
pub use wire::{SetName, Version};
