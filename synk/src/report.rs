//! Describes the outcome of an apply, and its progress.

use std::time::Duration;

use crate::{object::ObjectRef, plan::Plan, wire};

/// The outcome of an apply.
#[derive(Clone, Debug)]
pub struct Report {
    /// The version that exists now; `None` if there is none.
    pub version: Option<wire::Version>,
    /// False if nothing differed and nothing was written.
    pub changed: bool,
    /// The outcome for each object, in the order of the set.
    pub objects: Vec<Outcome>,
    /// The objects that left the set and were deleted.
    pub pruned: Vec<ObjectRef>,
}

/// The outcome for one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The object of this outcome.
    pub object: ObjectRef,
    /// The action on the object.
    pub action: wire::Action,
    /// UID of the live object.
    pub uid: Option<String>,
    /// Generation of the object after the write.
    pub generation: Option<i64>,
    /// The error, if the action failed.
    pub error: Option<Problem>,
}

/// The reason why an action failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The message of the API server.
    pub message: String,
    /// Whether a retry may succeed.
    pub transient: bool,
    /// Whether the caller lacks a right.
    pub forbidden: bool,
}

/// A callback that receives progress events.
pub type Listener<'a> = dyn Fn(Event<'_>) + Send + Sync + 'a;

/// Progress of an apply.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The plan was made.
    Planned(&'a Plan),
    /// An object was attempted. A failed one may be retried.
    Object(&'a Outcome),
    /// An object that left the set was deleted.
    Pruned(&'a ObjectRef),
    /// This number of CRDs was applied. The API server must serve their kinds before other objects are applied.
    Establishing(usize),
    /// Some objects failed and are retried.
    Round {
        /// Number of the round, from 2.
        number: u32,
        /// Number of objects in the round.
        left: usize,
    },
    /// The whole apply is retried.
    Retry {
        /// Number of the retry, from 1.
        number: u32,
        /// Greatest number of retries.
        of: u32,
        /// The pause before the retry.
        after: Duration,
        /// The error that caused the retry.
        reason: &'a str,
    },
    /// Another process holds the Lease. It is being observed whether that process renews it.
    Held {
        /// The name of the holder.
        holder: &'a str,
    },
    /// Some objects are not healthy yet.
    Waiting {
        /// The first of these objects.
        object: &'a ObjectRef,
        /// Why that object is not healthy.
        reason: &'a str,
        /// The number of these objects.
        count: usize,
    },
}
