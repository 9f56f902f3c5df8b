//! The konnector: keeps a consumer's objects in sync with their providers.
//!
//! `binding` is the controller of APIServiceBindings. It finds the contract that a binding's kubeconfig reaches, shares a
//! `session` with the other bindings of that contract, installs the CRDs of the export, and runs one sync engine per
//! resource. `bundle` is the controller of APIServiceBindingBundles, which makes a binding of every export of a contract.
//! `controller` holds what both share. `run` assembles the parts for the binary.
//!
//! The sync engine is laid out in layers; each module uses only those before it:
//!
//! 1. `model`: what the engine keeps of an object, and where the copy of an object lives.
//! 2. `connection`: the clients of both clusters and the requests that every engine makes.
//! 3. `index`: all objects of one resource with their copies. `namespaces`: when to request a provider namespace.
//!    `references`: which objects the bound objects refer to.
//! 4. `engine`: watches, queue, workers, permits, metrics, orders for orphans and the deletion guard of one resource.
//! 5. `bound` and `claims`: the two strategies of an engine. Neither uses the other.
//!
//! `holder` decides whether this konnector holds a contract; engines write only then. It uses none of the layers.
//!
//! `policies` finds out whether the konnector's own account is limited as it should be.
//!
//! `drain` needs no engine: it ends objects without the provider's word. `discovery` tells what a cluster serves.

pub mod args;
pub mod attempt;
pub mod binding;
pub mod bound;
pub mod bundle;
pub mod claims;
pub mod connection;
pub mod consumer;
pub mod contract;
pub mod controller;
pub mod debounce;
mod discovery;
pub mod drain;
pub mod engine;
pub mod holder;
mod index;
pub mod metrics;
pub mod model;
mod namespaces;
pub mod patch;
mod policies;
pub mod references;
pub mod rights;
pub mod run;
pub mod session;
