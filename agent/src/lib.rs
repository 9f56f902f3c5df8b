//! The konnector: keeps a consumer's objects in sync with their providers.
//!
//! `binding` is the controller of APIServiceBindings. It finds the contract that a binding's kubeconfig leads to, holds
//! a `session` with it together with all other bindings of that contract, installs the CRDs of the export, and runs one
//! engine of `sync` per resource. `bundle` is the controller of APIServiceBindingBundles, which makes bindings of what a
//! contract exports. `run` puts it together for the binary.

pub mod args;
pub mod attempt;
pub mod binding;
pub mod bundle;
pub mod claims;
pub mod common;
pub mod consumer;
pub mod events;
pub mod lull;
pub mod metrics;
pub mod release;
pub mod rights;
pub mod run;
pub mod session;
pub mod sync;
