//! Makes one attempt at an apply: read, plan, take the Lease if something is to be written, read again, write.

use super::{Job, Seen, is_current, read_and_plan, work::Work};
use crate::{
    errors::Failure,
    lock::{Held, Lock},
    plan::{Decision, Plan, saved::Saved},
    report::{Event, Outcome, Problem, Report},
    wire::Action,
};

/// What the attempts at one apply have created so far.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// True once a version was requested. It may exist although no answer arrived.
    pub begun: bool,
    /// UID of the version that was created last.
    uid: Option<String>,
}

// === impl Made ===

impl Made {
    async fn begin<'a>(
        &mut self,
        job: &'a Job<'a>,
        seen: &'a Seen,
        plan: &'a Plan,
        number: u64,
    ) -> Result<Work<'a>, Failure> {
        self.begun = true;
        let work = Work::begin(job, seen, plan, number).await?;
        self.uid = Some(work.uid.clone());
        Ok(work)
    }
}

/// Makes one attempt. `made` is what former attempts created; this attempt adds to it.
pub(crate) async fn once(job: &Job<'_>, saved: Option<&Saved>, made: &mut Made) -> Result<Report, Failure> {
    let (seen, plan) = job.unless_stopped(prepare(job, saved, made)).await?;
    let Some(number) = plan.next else {
        (job.on)(Event::Planned(&plan));
        return Ok(as_it_is(&plan));
    };
    match job.unless_stopped(take(job, &seen)).await {
        Ok(held) => {
            let work = under(job, (seen, plan), saved, &held, made);
            let outcome = held.guard(job.unless_stopped(Box::pin(work))).await;
            held.release().await;
            outcome
        }
        Err(Failure::NoNamespace(_)) if makes_namespace(job, &seen) => {
            (job.on)(Event::Planned(&plan));
            Box::pin(from_nothing(job, (&seen, &plan, number), made)).await
        }
        Err(failure) => Err(failure),
    }
}

async fn take(job: &Job<'_>, seen: &Seen) -> Result<Held, Failure> {
    Lock::take_over(job.rest.clients(), job.target, seen.versions.namespace(), job.on).await
}

/// Reads and plans, and compares the plan with the saved one, if any.
async fn prepare(job: &Job<'_>, saved: Option<&Saved>, made: &Made) -> Result<(Seen, Plan), Failure> {
    let (seen, mut plan) = read_and_plan(job, saved.is_some()).await?;
    let newest = seen.versions.newest().map(|known| &known.uid);
    if made.uid.is_some() && made.uid.as_ref() != newest {
        return Err(Failure::Overtaken(job.target.set.clone()));
    }
    if let Some(saved) = saved {
        let cluster = super::cluster(job.rest).await?;
        let differences = saved.differences(&plan, &cluster);
        if !differences.is_empty() {
            return Err(Failure::Stale(differences));
        }
    }
    if !plan.refusals.is_empty() {
        return Err(Failure::Refused(std::mem::take(&mut plan.refusals)));
    }
    Ok((seen, plan))
}

/// Finishes the attempt under the Lease. If another apply has worked meanwhile, it plans again; otherwise the earlier
/// plan holds. A saved plan is compared with everything that it was made of.
async fn under(
    job: &Job<'_>,
    first: (Seen, Plan),
    saved: Option<&Saved>,
    held: &Held,
    made: &mut Made,
) -> Result<Report, Failure> {
    let (seen, plan) = if saved.is_none() && is_current(job, &first.0).await? {
        first
    } else {
        drop(first);
        prepare(job, saved, made).await?
    };
    // The set was applied with another namespace meanwhile, where another apply may be at work.
    if seen
        .versions
        .namespace()
        .is_some_and(|namespace| !held.covers(namespace))
    {
        return Err(Failure::Lost(job.target.set.clone()));
    }
    (job.on)(Event::Planned(&plan));
    let Some(number) = plan.next else {
        return Ok(as_it_is(&plan));
    };
    let mut work = made.begin(job, &seen, &plan, number).await?;
    work.lock(held);
    work.definitions().await?;
    work.objects().await?;
    work.end().await
}

/// Makes an attempt for a set that brings the namespace of its own Lease. The creation of the version decides which of
/// two applies is first. The Lease is taken as soon as its namespace exists.
async fn from_nothing(
    job: &Job<'_>,
    (seen, plan, number): (&Seen, &Plan, u64),
    made: &mut Made,
) -> Result<Report, Failure> {
    let mut work = job.unless_stopped(made.begin(job, seen, plan, number)).await?;
    job.unless_stopped(async {
        work.definitions().await?;
        work.namespaces().await;
        Ok(())
    })
    .await?;
    let held = match job.unless_stopped(take(job, seen)).await {
        // The namespace could not be created. The status says why.
        Err(Failure::NoNamespace(_)) => return job.unless_stopped(work.give_up()).await,
        Err(held @ Failure::Held { .. }) => {
            job.unless_stopped(work.yielded(&held)).await?;
            return Err(held);
        }
        taken => taken?,
    };
    work.lock(&held);
    let rest = async {
        work.objects().await?;
        work.end().await
    };
    let outcome = held.guard(job.unless_stopped(Box::pin(rest))).await;
    held.release().await;
    outcome
}

fn makes_namespace(job: &Job<'_>, seen: &Seen) -> bool {
    let mut objects = seen.manifests.iter().map(|manifest| &manifest.object);
    objects.any(|object| object.gvk.is_namespace() && object.name == job.target.namespace)
}

/// Returns the report of an apply that had nothing to do.
fn as_it_is(plan: &Plan) -> Report {
    let outcomes = plan.steps.iter().map(|step| Outcome {
        object: step.object.clone(),
        action: match step.decision {
            Decision::Ignored => Action::Ignored,
            _ => Action::None,
        },
        uid: step.uid.clone(),
        generation: None,
        error: None::<Problem>,
    });
    Report {
        version: plan.current.map(|number| plan.set.version(number)),
        changed: false,
        objects: outcomes.collect(),
        pruned: Vec::new(),
    }
}
