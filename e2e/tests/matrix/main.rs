//! The matrix: each way of placing objects and of watching the provider, by each thing that is synced, with two consumers
//! that use the same names at the same time. What the one does never changes anything of the other's.

mod aspects;
mod bench;
mod cells;
mod counts;
mod isolation;
mod kinds;
mod last_wins;
mod offer;
mod restart;
mod side;
mod world;

use anyhow::Result;

/// A namespaced API, watched namespace by namespace.
#[test]
fn nn() -> Result<()> {
    aspects::check(&cells::NN)
}

/// A namespaced API, watched cluster-wide.
#[test]
fn nc() -> Result<()> {
    aspects::check(&cells::NC)
}

/// A namespaced API without a status subresource.
#[test]
fn without_status_subresource() -> Result<()> {
    aspects::check(&cells::BARE)
}

/// A cluster-scoped API whose objects keep their names: the first consumer wins.
#[test]
fn cc_none() -> Result<()> {
    aspects::check(&cells::NONE)
}

/// A cluster-scoped API whose objects keep their names: the last write wins.
#[test]
fn cc_none_last_wins() -> Result<()> {
    last_wins::check()
}

/// A cluster-scoped API whose objects get the contract's name in front.
#[test]
fn cc_prefixed() -> Result<()> {
    aspects::check(&cells::PREFIXED)
}

/// A namespaced API that consumers see as cluster-scoped, with its objects in the contract namespace.
#[test]
fn cc_namespaced() -> Result<()> {
    aspects::check(&cells::NAMESPACED)
}

/// The same, with its objects beside the claimed ones in the namespace that the template names.
#[test]
fn cc_namespaced_beside() -> Result<()> {
    aspects::check(&cells::BESIDE)
}

/// Where the server has consumers watch cluster-wide, cluster-scoped APIs go the same ways.
#[test]
fn cc_none_wide() -> Result<()> {
    aspects::check(&cells::NONE_WIDE)
}

/// With names of their own.
#[test]
fn cc_prefixed_wide() -> Result<()> {
    aspects::check(&cells::PREFIXED_WIDE)
}

/// In the contract namespace.
#[test]
fn cc_namespaced_wide() -> Result<()> {
    aspects::check(&cells::NAMESPACED_WIDE)
}

/// In the namespace that the template names.
#[test]
fn cc_namespaced_beside_wide() -> Result<()> {
    aspects::check(&cells::CONVERTED_WIDE)
}

/// All cells bound to one consumer, with claims, in sync: a new konnector writes nothing, and watches each thing once.
#[test]
fn a_restart_writes_nothing_and_watches_once() -> Result<()> {
    restart::check()
}
