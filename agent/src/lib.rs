//! The konnector: keeps a consumer's objects in sync with their providers.
//!
//! `binding` is the controller of APIServiceBindings. It finds the contract that a binding's kubeconfig leads to, holds
//! a `session` with it together with all other bindings of that contract, installs the CRDs of the export, and runs one
//! sync engine per resource. `bundle` is the controller of APIServiceBindingBundles, which makes bindings of what a
//! contract exports. `run` puts it together for the binary.
//!
//! The sync engine is laid out in layers; each module uses only those before it:
//!
//! 1. `model`: what the engine keeps of an object, and where the copy of an object lives.
//! 2. `connection`: the clients of both clusters and the requests that every engine makes.
//! 3. `index`: all objects of one resource with their copies. `namespaces`: when to request a provider namespace.
//!    `references`: which objects the bound objects refer to.
//! 4. `engine`: watches, queue, workers, permits, metrics and the guard of deletions of one resource.
//! 5. `bound` and `claims`: the two strategies of an engine. Neither uses the other.

pub mod args;
pub mod attempt;
pub mod binding;
pub mod bound;
pub mod bundle;
pub mod claims;
pub mod common;
pub mod connection;
pub mod consumer;
pub mod engine;
pub mod events;
mod index;
pub mod lull;
pub mod metrics;
pub mod model;
mod namespaces;
pub mod references;
pub mod release;
pub mod rights;
pub mod run;
pub mod session;
