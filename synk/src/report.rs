//! Describes the outcome of an apply, and its progress.

use std::time::Duration;

use jiff::Timestamp;

pub use crate::problem::Problem;
use crate::{
    object::ObjectRef,
    order,
    plan::Plan,
    wire::{self, Applied, Phase, Status, grouped},
};

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
        /// Whether the API server did not answer.
        unreachable: bool,
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

// === impl Report ===

impl Report {
    /// Returns the errors of the objects that failed.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.objects.iter().filter_map(|outcome| outcome.error.as_ref())
    }
}

// === impl Outcome ===

impl Outcome {
    /// Makes the outcome of an object on which nothing was done because of this problem.
    pub(crate) fn failed(object: &ObjectRef, problem: Problem) -> Self {
        Self {
            object: object.clone(),
            action: wire::Action::None,
            uid: None,
            generation: None,
            error: Some(problem),
        }
    }
}

// === impl Status ===

impl Status {
    /// Makes the status of an application that has ended.
    pub fn ended(started_at: Option<Timestamp>, outcomes: &[Outcome], now: Timestamp) -> Self {
        let mut outcomes: Vec<_> = outcomes.iter().collect();
        outcomes.sort_by_key(|outcome| order::wire_key(&outcome.object));
        let (applied, failed): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|outcome| outcome.error.is_none());
        let groups = |outcomes: Vec<&Outcome>| {
            grouped(
                outcomes
                    .into_iter()
                    .map(|outcome| (&outcome.object.gvk, Applied::of(outcome))),
            )
        };
        Self {
            phase: if failed.is_empty() {
                Phase::Settled
            } else {
                Phase::Failed
            },
            started_at,
            finished_at: Some(now),
            applied: groups(applied),
            failed: groups(failed),
        }
    }
}

// === impl Applied ===

impl Applied {
    fn of(outcome: &Outcome) -> Self {
        Self {
            namespace: outcome.object.namespace.clone(),
            name: outcome.object.name.clone(),
            action: outcome.action,
            uid: outcome.uid.clone(),
            generation: outcome.generation,
            error: outcome.error.as_ref().map(|problem| problem.message.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{object::Gvk, wire::Action};

    #[test]
    fn one_failure_fails_the_version() {
        let outcome = |name: &str, error: Option<&str>| Outcome {
            object: ObjectRef {
                gvk: Gvk::new("v1", "ConfigMap"),
                namespace: None,
                name: name.to_owned(),
            },
            action: Action::Create,
            uid: Some("u".to_owned()),
            generation: None,
            error: error.map(Problem::lasting),
        };
        let good = Status::ended(None, &[outcome("b", None), outcome("a", None)], Timestamp::UNIX_EPOCH);
        assert_eq!((good.phase, good.failed.len()), (Phase::Settled, 0));
        let names: Vec<_> = good.applied[0].items.iter().map(|item| item.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let bad = Status::ended(
            None,
            &[outcome("b", Some("why")), outcome("a", None)],
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!((bad.phase, bad.applied.len()), (Phase::Failed, 1));
        assert_eq!(bad.failed[0].items[0].error.as_deref(), Some("why"));
    }
}
