//! An in-memory Kubernetes API server: one cluster as a deterministic state machine.
//!
//! The crate has no clock, no randomness, no thread and no IO. The caller passes the time with each request; names and UIDs
//! are made from counters and the name of the cluster. The same requests at the same times give the same answers.
//!
//! # Known differences from Kubernetes
//!
//! Suite `simulated` of `e2e` compares the crate with a real API server, but does not show these:
//!
//! - The garbage collector reads the store when it orphans the dependents of an owner, and so finds all of them. The real one reads its
//!   graph, which may lack a dependent of the last moments; it deletes that dependent later.
//! - The garbage collector forgets at a restore which owners it found absent, as if kube-controller-manager had restarted. Without a
//!   restart, the real one deletes a dependent without reading its owner again, although the restore has brought that owner back.
//! - If an API server refuses a deletion by the garbage collector, the object is not tried again until it or one of its owners is
//!   written. The real one tries again with a backoff.
//! - The garbage collector takes an owner reference with an unserved version of a served kind as one with a served version, and does not
//!   break cycles of owners that wait for each other.
//! - A change of an admission policy, its deletion, rights, tokens and the schema of a CRD take effect at once. Only a new policy takes
//!   effect late ([`ApiServer::set_policy_delay`]).
//! - `deletecollection` deletes all objects in one step, and ignores `limit` and `continue`.

mod admission;
mod auth;
mod built_in;
mod change;
mod chore;
mod control;
mod definition;
mod discovery;
mod endpoint;
mod fields;
mod handle;
mod ids;
mod json;
mod key;
mod kind;
mod meta;
mod patch;
mod present;
mod request;
mod schema;
mod selector;
mod server;
mod settings;
mod status;
mod store;
mod strategy;
mod validation;
mod watch;

pub use change::{Actor, Change};
pub use chore::Chore;
pub use key::ObjectKey;
pub use server::{Answer, ApiServer, WatchId};
pub use settings::{ClusterSettings, UserInfo};
pub use store::{Revisions, Snapshot};
