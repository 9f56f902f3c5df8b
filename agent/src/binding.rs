//! The controller of APIServiceBindings.
//!
//! One worker at a time handles each binding. `observe` collects the state, all of it from caches; `plan` and, for a
//! binding that is being deleted, `unbind` decide; `apply` writes; `status` reports. Calls to the provider run in a session
//! beside the controller, so that a provider that hangs delays no other binding.

mod apply;
pub mod claims;
mod contract_pin;
mod controller;
pub mod crd;
mod export_deletion;
mod observe;
pub mod observed;
pub mod plan;
mod reconcile;
mod runtime;
pub mod status;
pub mod unbind;

#[cfg(test)]
#[path = "binding/tests/fixtures.rs"]
mod fixtures;

pub use controller::{BindingController, RunningBindingController};
