//! Waits until the API server serves the kinds that the CRDs of a set define.

use std::time::Duration;

use bindery_runtime::{
    backoff::Backoff,
    crds::{complaint, is_established},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::work::Work;
use crate::{
    discovery::discover,
    errors::Failure,
    object::Gvk,
    plan::Decision,
    report::{Event, Problem},
    rest::{Place, Rest},
};

/// Greatest time that the API server may take to serve the kinds.
const PATIENCE: Duration = Duration::from_mins(2);
/// Pause between two reads.
const PAUSE: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

/// Waits for CRDs, given as steps of the plan, and for kinds of the set that were not served before.
pub(crate) async fn wait(work: &mut Work<'_>, definitions: &[usize]) -> Result<(), Failure> {
    let kinds = work.seen.manifests.iter().map(|manifest| &manifest.object.gvk);
    let new = kinds.filter(|gvk| !work.seen.kinds.is_served(gvk) && work.seen.kinds.get(gvk).is_some());
    let mut new: Vec<&Gvk> = new.collect();
    new.dedup();
    let is_in_effect = |index: &usize| {
        let step = &work.plan.steps[*index];
        let live = work.seen.live.get(&step.object.identity());
        step.decision == Decision::Unchanged && live.is_some_and(was_established)
    };
    if new.is_empty() && definitions.iter().all(is_in_effect) {
        return Ok(());
    }
    let is_applied = |index: &usize| {
        work.outcomes[*index]
            .as_ref()
            .is_some_and(|outcome| outcome.error.is_none())
    };
    let applied: Vec<usize> = definitions.iter().copied().filter(is_applied).collect();
    (work.job.on)(Event::Establishing(applied.len()));
    let deadline = Instant::now() + PATIENCE;
    let mut all = applied.len() == definitions.len();
    for index in applied {
        if let Err(problem) = established(work, index, deadline).await? {
            all = false;
            if let Some(outcome) = &mut work.outcomes[index] {
                outcome.error = Some(problem);
                (work.job.on)(Event::Object(outcome));
            }
        }
    }
    // A CRD that failed serves nothing. The objects of its kind will report that themselves.
    if all && !new.is_empty() {
        served(work.job.rest, &new, deadline).await?;
    }
    Ok(())
}

async fn established(work: &Work<'_>, index: usize, deadline: Instant) -> Result<Result<(), Problem>, Failure> {
    let object = &work.plan.steps[index].object;
    let Some(resource) = work.seen.kinds.get(&object.gvk) else {
        return Ok(Ok(()));
    };
    let mut attempt = 0;
    loop {
        let read = work.job.rest.get(Place::of(resource, object)).await;
        let live = match read {
            Ok(Some(live)) => live,
            Ok(None) => return Ok(Err(Problem::passing("it was deleted while it was applied"))),
            Err(error) => return Ok(Err(Problem::of(object, &error))),
        };
        let definition: CustomResourceDefinition =
            serde_json::from_value(live).map_err(|error| Failure::Unreadable {
                what: object.to_string(),
                problem: error.to_string(),
            })?;
        if is_established(&definition) {
            return Ok(Ok(()));
        }
        let complaint = complaint(&definition);
        if has_conflict(&definition) || Instant::now() > deadline {
            return Ok(Err(Problem::passing(format!("it is not established: {complaint}"))));
        }
        sleep(PAUSE.delay(attempt)).await;
        attempt += 1;
    }
}

/// Waits until discovery lists all of these kinds and lists of their objects succeed. A kind that is not served in time
/// is left to the steps that need it.
pub(crate) async fn served(rest: &Rest, kinds: &[&Gvk], deadline: Instant) -> Result<(), Failure> {
    let mut left = kinds.to_vec();
    let mut attempt = 0;
    loop {
        let known = discover(rest).await?;
        let mut silent = Vec::new();
        for gvk in left {
            let answers = match known.get(gvk) {
                Some(resource) => rest.answers(resource).await,
                None => Ok(false),
            };
            if !answers.map_err(Failure::api(format!("list objects of {gvk}")))? {
                silent.push(gvk);
            }
        }
        if silent.is_empty() || Instant::now() > deadline {
            return Ok(());
        }
        left = silent;
        sleep(PAUSE.delay(attempt)).await;
        attempt += 1;
    }
}

fn was_established(live: &Value) -> bool {
    let mut conditions = live["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

/// Whether another CRD already uses the names of this one.
fn has_conflict(definition: &CustomResourceDefinition) -> bool {
    let status = definition.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "NamesAccepted" && condition.status == "False")
}
