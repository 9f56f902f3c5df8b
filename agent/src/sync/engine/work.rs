//! Works on the objects of an engine, one at a time each: plans, does what was planned, and tells what came of it.

use std::sync::Arc;

use bindery_runtime::{
    backoff::Backoff,
    cache::ObjectKey,
    queue::{Lane, Work},
};
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::Instant;

use super::Shared;
use crate::sync::{
    flavour::{Flavour, Operation, Steps},
    index::{Cast, Known},
    report::{INVALID_RETRY, Issue},
    write,
};

/// Plans for one object in a row, each after the operations of the one before: a creation needs two.
const ROUNDS: usize = 6;

impl<F: Flavour> Shared<F> {
    pub(super) async fn work(self: Arc<Self>) {
        let mut paused = self.paused.subscribe();
        while let Some(work) = self.queue.next().await {
            // The sender lives as long as this task.
            let _ = paused.wait_for(|paused| !paused).await;
            let outcome = self.sync(work.key()).await;
            self.finish(work, outcome);
            self.changed.notify_one();
        }
    }

    /// Brings one object in sync, as far as that goes now.
    async fn sync(&self, key: &ObjectKey) -> Result<Option<Issue>, Issue> {
        let mut reread = false;
        for _ in 0..ROUNDS {
            let Some((steps, place, cast)) = self.plan(key) else {
                return Ok(self.index.lock().refusal(key).map(|refusal| Issue::of_refusal(refusal)));
            };
            if steps.ops.is_empty() {
                return Ok(steps.issue);
            }
            let mut learned_any = false;
            for op in &steps.ops {
                if op.is_guarded() && !self.may_delete() {
                    return Ok(None);
                }
                match self.apply(key, &place, op).await {
                    Ok(Some(learned)) => {
                        self.flavour.learn(&mut self.index.lock(), key, learned, &cast);
                        learned_any = true;
                    }
                    Ok(None) => {}
                    Err(error) if is_stale(&error) && !reread => {
                        // The object is not what the watch has shown so far: look, and plan anew.
                        reread = true;
                        let read = F::Op::read(op.is_on_consumer());
                        let learned = self
                            .apply(key, &place, &read)
                            .await
                            .map_err(|error| issue(&error, &read))?;
                        if let Some(learned) = learned {
                            self.flavour.learn(&mut self.index.lock(), key, learned, &cast);
                        }
                        learned_any = true;
                        break;
                    }
                    Err(error) => return Err(issue(&error, op)),
                }
            }
            if !learned_any {
                // The watch brings the rest.
                return Ok(None);
            }
        }
        Err(Issue {
            reason: "Unstable",
            message: "the object changes faster than it can be written".to_owned(),
            transient: true,
            lacks_right: false,
        })
    }

    /// Plans one object, or asks for the place that is missing to do so.
    fn plan(&self, key: &ObjectKey) -> Option<(Steps<F::Op>, Arc<str>, Cast)> {
        let mut index = self.index.lock();
        if let Some((pair, place)) = index.known(key) {
            let steps = self.flavour.plan(key, pair, &place);
            return Some((steps, place.namespace, Cast::of(pair)));
        }
        let pair = index.pair(key)?;
        let has_place = index.place(&key.namespace).is_some();
        if let Some(steps) = self.flavour.unplaced(key, pair, has_place) {
            return Some((steps, "".into(), Cast::of(pair)));
        }
        if index.needs_place(key) {
            self.look_at_place(&key.namespace, Lane::Live);
        }
        None
    }

    /// Has the place of a consumer namespace looked at, if it has one that is asked for.
    pub(in crate::sync) fn look_at_place(&self, consumer_namespace: &Arc<str>, lane: Lane) {
        if let Some(request) = self.frame.placement.request(consumer_namespace) {
            self.place_queue.add(request, lane);
        }
    }

    async fn apply(&self, key: &ObjectKey, place: &str, op: &F::Op) -> Result<Option<F::Learned>, kube::Error> {
        let start = Instant::now();
        let name = &*self.frame.placement.copy_name(&self.frame.contract, &key.name);
        let target = write::Target { key, place, name };
        let outcome = self.flavour.apply(&self.writer, target, op).await;
        let resource = &self.frame.resource.plural;
        self.around
            .metrics
            .operation(resource, op.name(), outcome.is_ok(), start.elapsed().as_secs_f64());
        tracing::debug!(%resource, %key, op = op.name(), ok = outcome.is_ok(), "synced");
        outcome
    }

    fn finish(&self, work: Work<ObjectKey>, outcome: Result<Option<Issue>, Issue>) {
        let namespace = &work.key().namespace;
        if self.index.lock().is_vacant(namespace) {
            // With its last object gone, its place may be given back.
            self.look_at_place(namespace, Lane::Backlog);
        }
        let (issue, failed) = match &outcome {
            Ok(issue) => (issue.as_ref(), false),
            Err(issue) => (Some(issue), true),
        };
        // A first conflict is the normal course of two writers, no trouble.
        if !(failed && work.failures() == 0 && issue.is_some_and(|issue| issue.transient)) {
            let news = self.issues.lock().set(work.key(), issue);
            if let Some(issue) = issue.filter(|_| news) {
                self.around
                    .recorder
                    .warn(&self.reference(work.key()), issue.reason, &issue.message);
            }
        }
        match outcome {
            Ok(_) => drop(work),
            Err(issue) if matches!(issue.reason, "Invalid" | "TooLarge") => work.again_after(INVALID_RETRY),
            Err(_) => work.retry(Backoff::OBJECT),
        }
    }

    fn reference(&self, key: &ObjectKey) -> ObjectReference {
        let index = self.index.lock();
        let consumer = index.pair(key).and_then(Known::consumer);
        let uid = consumer.map(|(uid, _)| uid.to_string());
        ObjectReference {
            api_version: Some(self.frame.resource.api_version()),
            kind: Some(self.frame.resource.kind.to_string()),
            namespace: Some(key.namespace.to_string()).filter(|namespace| !namespace.is_empty()),
            name: Some(key.name.to_string()),
            uid,
            ..ObjectReference::default()
        }
    }
}

/// True if a write was refused because the object is not the one, or not in the state, that was planned for.
fn is_stale(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let tested = status.code == 422 && status.details.as_ref().is_none_or(|details| details.causes.is_empty());
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let uid = status.code == 422 && causes.into_iter().any(|cause| cause.field == "metadata.uid");
    status.code == 409 || status.code == 404 || tested || uid
}

fn issue(error: &kube::Error, op: &impl Operation) -> Issue {
    Issue::of_error(error, if op.is_on_consumer() { "consumer" } else { "provider" })
}
