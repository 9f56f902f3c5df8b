//! Deletes the objects that left the set.

use bindery_runtime::errors;
use futures::{StreamExt as _, stream};
use serde_json::Value;

use super::work::Work;
use crate::{
    object::ObjectRef,
    plan::{self, Prune},
    report::{Event, Outcome, Problem},
    rest::{Exactly, Place, Propagation},
};

/// Greatest number of attempts on one object after conflicts.
const CONFLICTS: u32 = 6;

/// Deletes the objects that left the set. Returns the deleted ones and the failures. First it removes the set as owner
/// of objects that stay, because they would be collected with the former versions.
pub(crate) async fn prune(work: &Work<'_>) -> (Vec<ObjectRef>, Vec<Outcome>) {
    let mut failed = Vec::new();
    for left in &work.plan.released {
        if let Err(problem) = release(work, left).await {
            failed.push(failure(work, left, problem));
        }
    }
    let deletions: Vec<_> = work.plan.prune.iter().map(|prune| delete(work, prune)).collect();
    let mut deletions = stream::iter(deletions).buffer_unordered(work.job.options.concurrency.max(1));
    let mut pruned = Vec::new();
    while let Some((prune, deleted)) = deletions.next().await {
        match deleted {
            Ok(()) => {
                (work.job.on)(Event::Pruned(&prune.object));
                pruned.push(prune.object.clone());
            }
            Err(problem) => failed.push(failure(work, prune, problem)),
        }
    }
    pruned.sort();
    (pruned, failed)
}

fn failure(work: &Work<'_>, left: &Prune, problem: Problem) -> Outcome {
    let outcome = Outcome {
        uid: Some(left.uid.clone()),
        ..Outcome::failed(&left.object, problem)
    };
    (work.job.on)(Event::Object(&outcome));
    outcome
}

/// Removes the set's owner references from an object that stays. Reads the object again after a conflict.
async fn release(work: &Work<'_>, left: &Prune) -> Result<(), Problem> {
    let object = &left.object;
    let Some(resource) = work.seen.kinds.get(&object.gvk) else {
        return Err(Problem::passing(work.seen.kinds.unknown(&object.gvk)));
    };
    let place = Place::of(resource, object);
    let refused = |error: &kube::Error| Problem::of(object, error);
    let mut live = work.seen.live.get(&object.identity()).cloned();
    let mut conflicts = 0;
    while let Some(patch) = live.as_ref().and_then(|live| plan::release(live, &work.plan.set)) {
        work.writer().may_write()?;
        match work.job.rest.patch(place, &patch).await {
            Err(error) if errors::is_conflict(&error) && conflicts < CONFLICTS => conflicts += 1,
            Err(error) if errors::is_not_found(&error) => break,
            released => return released.map(drop).map_err(|error| refused(&error)),
        }
        let read = work.job.rest.get(place).await.map_err(|error| refused(&error))?;
        live = read.filter(|live| live["metadata"]["uid"] == *left.uid);
    }
    Ok(())
}

async fn delete<'a>(work: &Work<'_>, prune: &'a Prune) -> (&'a Prune, Result<(), Problem>) {
    let gvk = &prune.object.gvk;
    let kinds = &work.seen.kinds;
    let Some(resource) = kinds.get(gvk).or_else(|| kinds.any_version(&gvk.group, &gvk.kind)) else {
        // The kind is not served any more, so all its objects are gone.
        return (prune, Ok(()));
    };
    if let Err(lost) = work.writer().may_write() {
        return (prune, Err(lost));
    }
    let place = Place::of(resource, &prune.object);
    let seen = work.seen.live.get(&prune.object.identity());
    let deleted = exactly(work, place, prune, seen).await;
    (prune, deleted.map_err(|error| Problem::of(&prune.object, &error)))
}

/// Deletes the version of an object that was seen. After a conflict it reads the object again and deletes it if its
/// owners are the same.
async fn exactly(work: &Work<'_>, place: Place<'_>, prune: &Prune, seen: Option<&Value>) -> Result<(), kube::Error> {
    let owners = |live: &Value| live["metadata"]["ownerReferences"].clone();
    let is_same =
        |live: &Value| live["metadata"]["uid"] == *prune.uid && seen.is_none_or(|seen| owners(seen) == owners(live));
    let mut live = seen.cloned();
    let mut conflicts = 0;
    while let Some(exactly) = live.as_ref().and_then(Exactly::as_read) {
        match work.job.rest.delete(place, exactly, Propagation::Background).await {
            Err(error) if errors::is_conflict(&error) && conflicts < CONFLICTS => conflicts += 1,
            Err(error) if errors::is_not_found(&error) => break,
            deleted => return deleted.map(drop),
        }
        live = work.job.rest.get(place).await?.filter(is_same);
    }
    Ok(())
}
