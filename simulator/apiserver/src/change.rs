//! The journal of writes, which the invariants of the simulator read.

use std::{fmt, sync::Arc};

use serde_json::Value;

use crate::ObjectKey;

/// One write that changed the store.
#[derive(Clone, Debug)]
pub struct Change {
    /// Revision of the store after the write.
    pub revision: u64,
    /// Object that was written.
    pub key: ObjectKey,
    /// The object before the write; absent if the write created it.
    pub before: Option<Arc<Value>>,
    /// The object after the write; absent if the write removed it.
    pub after: Option<Arc<Value>>,
    /// Who wrote.
    pub by: Actor,
    /// Number of the request, from the request header `x-simulator-request`.
    pub request: Option<u64>,
}

/// The author of a write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// A request of this user.
    User(String),
    /// A controller of the control plane, by its name.
    Controller(&'static str),
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => f.write_str(name),
            Self::Controller(name) => write!(f, "controller {name}"),
        }
    }
}
