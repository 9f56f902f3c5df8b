//! The controller of APIServiceBindings.
//!
//! No two workers handle the same binding at the same time. `reconcile` runs the steps for one binding: `observe`
//! collects the state from caches into `observed`; `plan` decides, or `unbind` if the binding is being deleted; `apply`
//! writes; `status` computes the new status, which `reconcile` writes. Of the decisions, `crd` makes those about one
//! CRD, `claims` those about permission claims, `orphans` those about copies without a source, `retained` those about
//! copies of deleted objects that can be restored, `acceptance` those about the holder of the contract, and `contract_pin`
//! finds the contract to which the binding is pinned.
//!
//! `runtime` holds the tasks of one binding: provider connection, engines (which sync objects), releasers and claims.
//! Calls to the provider run in a session (one per contract) and in tasks such as `export_deletion`, which asks the
//! provider's backend to delete the export. So a provider that hangs delays no other binding.

mod acceptance;
mod apply;
pub mod claims;
mod contract_pin;
mod controller;
pub mod crd;
mod export_deletion;
mod observe;
pub mod observed;
pub mod op;
mod orphans;
pub mod plan;
mod reconcile;
mod retained;
mod runtime;
pub mod status;
pub mod unbind;

#[cfg(test)]
#[path = "binding/tests/fixtures.rs"]
mod fixtures;

pub use controller::{BindingController, RunningBindingController};
