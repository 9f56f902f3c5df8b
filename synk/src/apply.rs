//! Carries plans out. [`crate::plan`] decides what to do; this module decides in which order, how often, and what
//! happens when a step fails.
//!
//! Nothing is written before all was read, and planned, under the Lease of the set. From then on each moment may be the
//! last: a version that is not Settled is taken up by the next apply, which makes a higher one and goes through all of it.

mod establish;
mod observe;
mod once;
mod proof;
mod prune;
mod replace;
mod rounds;
mod stages;
mod work;
mod write;

use std::{future::Future, pin::pin, time::Duration};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use once::Made;

pub use proof::Proof;

pub(crate) use establish::served;
pub(crate) use observe::{Seen, cluster, is_current, read_and_plan};

use crate::{
    errors::Failure,
    input::Manifest,
    plan::{Allowed, saved::Saved},
    report::{Event, Listener, Report},
    rest::Rest,
    target::Target,
};

/// Options of an apply.
#[derive(Clone, Debug)]
pub struct Options {
    /// The guards that are lifted.
    pub allowed: Allowed,
    /// Number of retries of the whole apply after transient errors.
    pub retries: u32,
    /// The pause before each retry.
    pub pause: Duration,
    /// Number of objects that are written concurrently.
    pub concurrency: usize,
    /// Number of versions whose manifests are kept for a rollback; 0 keeps none.
    pub history: usize,
    /// Proves that admission policies which the apply changes are in force, before it goes on with what they limit.
    pub proof: Option<Proof>,
    /// Stops the apply: no more request is sent, the Lease is released, and the next apply finishes the work.
    pub stop: CancellationToken,
}

/// One apply of a set: its input, its options and its clients.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub rest: &'a Rest,
    pub target: &'a Target,
    pub manifests: &'a [Manifest],
    pub options: &'a Options,
    pub on: &'a Listener<'a>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allowed: Allowed::default(),
            retries: 60,
            pause: Duration::from_secs(5),
            concurrency: 16,
            history: 3,
            proof: None,
            stop: CancellationToken::new(),
        }
    }
}

// === impl Job ===

impl Job<'_> {
    /// Runs `work`, unless the caller tells the apply to stop first.
    pub(crate) async fn unless_stopped<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let work = pin!(work);
        tokio::select! {
            biased;
            () = self.options.stop.cancelled() => Err(Failure::Stopped(self.target.set.clone())),
            done = work => done,
        }
    }
}

/// Applies a set, and retries while the failure may be transient. A plan that was shown before, as `saved`, is carried
/// out as it is or not at all: after it began, it is not retried, because what remains is another plan.
pub(crate) async fn apply(job: &Job<'_>, saved: Option<&Saved>) -> Result<Report, Failure> {
    let mut number = 0;
    let mut made = Made::default();
    let mut was_terminating = false;
    loop {
        let failure = match Box::pin(once::once(job, saved, &mut made)).await {
            Err(failure) if number < job.options.retries && may_pass(&failure, was_terminating) => failure,
            outcome => return outcome,
        };
        if saved.is_some() && made.begun {
            return Err(failure);
        }
        was_terminating |= matches!(failure, Failure::Terminating(_));
        number += 1;
        let after = job.options.pause;
        (job.on)(Event::Retry {
            number,
            of: job.options.retries,
            after,
            reason: &failure.to_string(),
            unreachable: failure.is_unreachable(),
        });
        let pause = async {
            sleep(after).await;
            Ok(())
        };
        job.unless_stopped(pause).await?;
    }
}

/// Whether a retry may succeed. A namespace that was seen terminating may be about to be created again.
fn may_pass(failure: &Failure, was_terminating: bool) -> bool {
    failure.is_transient() || (was_terminating && matches!(failure, Failure::NoNamespace(_)))
}

#[cfg(test)]
mod tests;
