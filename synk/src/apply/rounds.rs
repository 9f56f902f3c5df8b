//! Applies objects phase by phase, and retries failures in rounds while that helps.

use std::time::Duration;

use bindery_runtime::backoff::Backoff;
use futures::{StreamExt as _, stream};
use tokio::time::sleep;

use super::work::Work;
use crate::{
    live::Live,
    object::owner_references,
    order,
    plan::{self, Decision, PlanInput},
    report::{Event, Outcome, Problem},
    rest::Place,
    wire::{Phase, Version},
};

/// Greatest number of attempts on one object.
const ROUNDS: u32 = 10;
/// Greatest number of conflicts per attempt.
const CONFLICTS: u32 = 6;
const PAUSE: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));

/// Applies the steps of the plan with these indices.
pub(crate) async fn run(work: &mut Work<'_>, steps: Vec<usize>) {
    let mut left = steps;
    let mut before = None;
    for number in 1..=ROUNDS {
        if left.is_empty() {
            return;
        }
        if number > 1 {
            (work.job.on)(Event::Round {
                number,
                left: left.len(),
            });
            sleep(PAUSE.delay(number - 2)).await;
        }
        round(work, &left, number > 1).await;
        left.retain(|index| may_succeed(work, *index));
        if before == Some(left.len()) {
            return;
        }
        before = Some(left.len());
    }
}

async fn round(work: &mut Work<'_>, left: &[usize], again: bool) {
    let steps = &work.plan.steps;
    let mut done = Vec::with_capacity(left.len());
    let phase_of = |index: &usize| order::phase(&steps[*index].object);
    for phase in left.chunk_by(|one, next| phase_of(one) == phase_of(next)) {
        let attempts: Vec<_> = phase.iter().map(|index| attempt(work, *index, again)).collect();
        let mut attempts = stream::iter(attempts).buffer_unordered(work.job.options.concurrency.max(1));
        while let Some((index, outcome)) = attempts.next().await {
            (work.job.on)(Event::Object(&outcome));
            done.push((index, outcome));
        }
    }
    for (index, outcome) in done {
        work.outcomes[index] = Some(outcome);
    }
}

/// Whether a retry may succeed. Kinds that are not served and plans that were refused do not change within an apply.
fn may_succeed(work: &Work<'_>, index: usize) -> bool {
    let is_impossible = matches!(
        work.plan.steps[index].decision,
        Decision::Impossible { transient: false, .. }
    );
    let outcome = work.outcomes[index].as_ref();
    !is_impossible && outcome.is_some_and(|outcome| outcome.error.is_some())
}

/// Attempts one step. After a conflict it reads the object again and retries.
async fn attempt(work: &Work<'_>, index: usize, again: bool) -> (usize, Outcome) {
    let step = &work.plan.steps[index];
    let manifest = &work.seen.manifests[index];
    let writer = work.writer();
    let mut conflicts = 0;
    if !again {
        let live = work.seen.live.get(&step.object.identity());
        let tried = writer.write(manifest, &step.decision, live).await;
        if !tried.conflict {
            return (index, tried.outcome);
        }
        conflicts = 1;
    }
    loop {
        let tried = match read_again(work, index).await {
            Ok((decision, live)) => writer.write(manifest, &decision, live.as_ref()).await,
            Err(problem) => return (index, Outcome::failed(&step.object, problem)),
        };
        conflicts += 1;
        if !tried.conflict || conflicts > CONFLICTS {
            return (index, tried.outcome);
        }
    }
}

/// Reads an object again and decides about its present state.
async fn read_again(work: &Work<'_>, index: usize) -> Result<(Decision, Option<serde_json::Value>), Problem> {
    let object = &work.plan.steps[index].object;
    let kinds = &work.seen.kinds;
    let resource = kinds
        .get(&object.gvk)
        .ok_or_else(|| Problem::passing(kinds.unknown(&object.gvk)))?;
    let read = work.job.rest.get(Place::of(resource, object)).await;
    let live = read.map_err(|error| Problem::of(object, &error))?;
    // Without the Lease, another apply may be at work: the one that began first goes on.
    let maker = live
        .as_ref()
        .filter(|_| work.held.is_none())
        .and_then(|live| maker(work, live));
    if let Some(maker) = maker {
        return Err(Problem::passing(format!("{maker} is at work on it")));
    }
    let live: Live = live.map(|live| (object.identity(), live)).into_iter().collect();
    let input = PlanInput {
        versions: &work.versions,
        live: &live,
        ..work.seen.input(work.job)
    };
    match plan::decide(&input, &work.seen.manifests[index]) {
        Ok(decision) => Ok((decision, live.into_values().next())),
        Err(refusal) => Err(Problem::lasting(refusal.to_string())),
    }
}

/// Returns the earlier version that created an object and is not finished.
fn maker<'a>(work: &'a Work<'_>, live: &serde_json::Value) -> Option<&'a Version> {
    let known = owner_references(live).iter().find_map(|owner| {
        let mut begun = work.seen.versions.iter().filter(|known| known.phase == Phase::Pending);
        begun.find(|known| owner["uid"] == *known.uid)
    });
    known.map(|known| &known.version)
}
