//! What became of a set, and what is told while it becomes so.

use std::time::Duration;

use crate::{object::ObjectRef, plan::Plan, wire};

/// What an apply did.
#[derive(Clone, Debug)]
pub struct Report {
    /// The version that is there now; `None` if there is none.
    pub version: Option<wire::Version>,
    /// False if all was as it is to be, and nothing was written.
    pub changed: bool,
    /// What became of each object, in the order of the set.
    pub objects: Vec<Outcome>,
    /// What left the set and is deleted.
    pub pruned: Vec<ObjectRef>,
}

/// What became of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The object.
    pub object: ObjectRef,
    /// What was done.
    pub action: wire::Action,
    /// UID of the live object.
    pub uid: Option<String>,
    /// Generation that the write led to.
    pub generation: Option<i64>,
    /// Why it failed.
    pub error: Option<Problem>,
}

/// Why something failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// In words, as the API server says it.
    pub message: String,
    /// Whether a later attempt may succeed.
    pub transient: bool,
    /// Whether it takes a right that whoever asks does not have.
    pub forbidden: bool,
}

/// Who is told.
pub type Listener<'a> = dyn Fn(Event<'_>) + Send + Sync + 'a;

/// Told while an apply runs.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// What is to be done.
    Planned(&'a Plan),
    /// An object is done, for now: a failed one may be tried again.
    Object(&'a Outcome),
    /// An object that left the set is deleted.
    Pruned(&'a ObjectRef),
    /// Definitions are applied; the API server has to serve their kinds.
    Establishing(usize),
    /// Some objects failed and are tried again.
    Round {
        /// From 2 on.
        number: u32,
        /// How many are left.
        left: usize,
    },
    /// The whole apply is tried again.
    Retry {
        /// From 1 on.
        number: u32,
        /// How often it may be.
        of: u32,
        /// After which time.
        after: Duration,
        /// Why.
        reason: &'a str,
    },
    /// Another apply holds the set; whether it is alive shows soon.
    Held {
        /// Who.
        holder: &'a str,
    },
    /// An object is not healthy yet.
    Waiting {
        /// The first of them.
        object: &'a ObjectRef,
        /// Why.
        reason: &'a str,
        /// How many.
        count: usize,
    },
}
