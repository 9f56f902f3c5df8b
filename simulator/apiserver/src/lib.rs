//! An in-memory Kubernetes API server: one cluster as a deterministic state machine.
//!
//! The crate has no clock, no randomness, no thread and no IO. The caller passes the time with each request; names and UIDs
//! are made from counters and the name of the cluster. The same requests at the same times give the same answers.

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
