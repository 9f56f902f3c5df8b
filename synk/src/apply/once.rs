//! One attempt at a whole apply: look, take the Lease if something is to be done, look again, do it.

use super::{Job, Seen, is_current, look, work::Work};
use crate::{
    errors::Failure,
    lock::{Held, Lock},
    plan::{Decision, Plan, saved::Saved},
    report::{Event, Outcome, Problem, Report},
    wire::Action,
};

/// What the attempts at one apply have made so far.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// Whether a version was asked for: that no answer came does not mean that there is none.
    pub begun: bool,
    /// UID of the version that was made last.
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

/// `made` is what the attempts before made, and becomes what this one makes.
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

/// Looks and plans, and holds the plan against what it has to hold to.
async fn prepare(job: &Job<'_>, saved: Option<&Saved>, made: &Made) -> Result<(Seen, Plan), Failure> {
    let (seen, mut plan) = look(job, saved.is_some()).await?;
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

/// The rest of it, with the Lease in hand. Another apply may have been at work until then: what was planned before holds
/// only if the versions are the same still. A plan that was saved is held against all that it was made of.
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
    // Meanwhile it was applied with another namespace, where another may be at work.
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
    work.objects().await;
    work.end().await
}

/// Where the set brings its own namespace, there is none to hold a Lease at first: that its version could be made decides
/// between two applies, and the Lease is taken as soon as it can be.
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
        // Its creation failed. Why, the status says.
        Err(Failure::NoNamespace(_)) => return job.unless_stopped(work.give_up()).await,
        Err(held @ Failure::Held { .. }) => {
            job.unless_stopped(work.yielded(&held)).await?;
            return Err(held);
        }
        taken => taken?,
    };
    work.lock(&held);
    let rest = async {
        work.objects().await;
        work.end().await
    };
    let outcome = held.guard(job.unless_stopped(Box::pin(rest))).await;
    held.release().await;
    outcome
}

fn makes_namespace(job: &Job<'_>, seen: &Seen) -> bool {
    let mut objects = seen.manifests.iter().map(|manifest| &manifest.object);
    objects.any(|object| {
        object.gvk.group.is_empty() && object.gvk.kind == "Namespace" && object.name == job.target.namespace
    })
}

/// Nothing was to be done.
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
