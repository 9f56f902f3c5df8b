//! Processes queued objects, each by one worker at a time: plans, runs the planned operations, and reports issues.

use std::sync::Arc;

use bindery_runtime::{
    backoff::Backoff,
    cache::ObjectKey,
    errors,
    guard::Faults,
    queue::{Priority, Work},
};
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    connection::Target,
    engine::{
        Shared,
        budget::Turn,
        report::{Cause, INVALID_RETRY, Issue},
        strategy::{Operation, Steps, SyncStrategy},
        traces::Attempt,
    },
    index::{Contents as _, Index, Known, PlannedUids},
    model::object::Version,
};

/// How often an object is planned in a row, each time after the operations of the plan before. A creation needs two plans.
const ROUNDS: usize = 6;

/// What to do for an object, and what was known of it when that was planned.
struct Planned<O> {
    steps: Steps<O>,
    /// The provider namespace of its copy.
    place: Arc<str>,
    uids: PlannedUids,
    versions: Versions,
}

/// What an object is worked on for.
#[derive(Debug, Default)]
struct Trigger<'b, 'a> {
    /// When the watch showed the change, if one did.
    changed: Option<Instant>,
    /// The attempt that is traced, while traces are on and the change is sampled.
    attempt: Option<&'b mut Attempt<'a>>,
}

/// The versions of the consumer's object and of the provider's.
type Versions = [Option<Version>; 2];

fn versions(pair: &impl Known) -> Versions {
    [pair.consumer(), pair.provider()].map(|known| known.map(|(_, version)| version))
}

fn versions_in(index: &Index<impl Known>, key: &ObjectKey) -> Versions {
    index.pair(key).map(versions).unwrap_or_default()
}

impl<O> Planned<O> {
    fn of(pair: &impl Known, steps: Steps<O>, place: Arc<str>) -> Self {
        Self {
            uids: PlannedUids::of(pair),
            versions: versions(pair),
            steps,
            place,
        }
    }
}

impl<F: SyncStrategy> Shared<F> {
    /// Processes queued objects until the queue is closed: each with a permit of its own, and within the engine's quota.
    pub(super) async fn work(self: Arc<Self>) {
        let mut paused = self.paused.subscribe();
        let mut faults = self.around.guard.faults();
        let mut tasks = JoinSet::new();
        let mut share = self.around.budget.share();
        let mut resumed = None;
        while let Some(priority) = self.queue.ready(Priority::Backlog).await {
            while tasks.try_join_next().is_some() {}
            while tasks.len() >= share.places() {
                tasks.join_next().await;
            }
            share.begin(priority == Priority::Live && tasks.is_empty() && self.queue.len() == 1);
            // Waiting cannot fail: the sender lives as long as this task.
            if *paused.borrow_and_update() {
                let _ = paused.wait_for(|paused| !paused).await;
                resumed = Some(Instant::now());
            }
            // What is known of a provider that sends too much may be out of date, so nothing is written.
            let _ = faults.wait_for(Faults::is_within_limits).await;
            let Some(turn) = self.turn(priority).await else { return };
            let is_paused = *paused.borrow();
            if let Some(work) = (!is_paused).then(|| self.queue.try_next()).flatten() {
                let shared = Arc::clone(&self);
                tasks.spawn(async move {
                    shared.work_on(work, resumed).await;
                    drop(turn);
                });
            }
        }
    }

    /// Waits for a permit, with live priority as soon as a live object is queued. `None` once the queue is closed.
    async fn turn(&self, priority: Priority) -> Option<Turn> {
        let budget = &self.around.budget;
        if priority == Priority::Backlog {
            tokio::select! {
                biased;
                turn = budget.turn(priority) => return Some(turn),
                ready = self.queue.ready(Priority::Live) => ready?,
            };
        }
        Some(budget.turn(Priority::Live).await)
    }

    /// Works on one object. `resumed` is when the engine was resumed last, if it was: the time before that is no lag.
    async fn work_on(&self, work: Work<ObjectKey>, resumed: Option<Instant>) {
        self.meter.waited(work.waited());
        let mut known = Versions::default();
        let changed = work
            .changed()
            .map(|changed| resumed.map_or(changed, |at| changed.max(at)));
        let mut attempt = self.changes.begin(work.key(), work.waited());
        let mut trigger = Trigger {
            changed,
            attempt: attempt.as_mut(),
        };
        let outcome = self.sync(work.key(), &mut known, &mut trigger).await;
        if let Some(attempt) = attempt {
            attempt.finish(work.key(), outcome.is_err());
        }
        self.finish(work, outcome, known);
        self.changed.notify_one();
    }

    /// Syncs one object as far as possible now. `known` is set to the versions that the last plan was made of, and follows our own writes.
    async fn sync(
        &self,
        key: &ObjectKey,
        known: &mut Versions,
        trigger: &mut Trigger<'_, '_>,
    ) -> Result<Option<Issue>, Issue> {
        let mut reread = false;
        for _ in 0..ROUNDS {
            let mut planned = Attempt::planning(trigger.attempt.as_deref_mut(), || self.plan(key));
            while !self.around.holding.is_proven() {
                self.around.holding.proven().await;
                // What was known before may be out of date.
                planned = Attempt::planning(trigger.attempt.as_deref_mut(), || self.plan(key));
            }
            let Some(Planned {
                steps,
                place,
                uids,
                versions,
            }) = planned
            else {
                let index = self.index.lock();
                *known = versions_in(&index, key);
                if index.waits_for_place(key)
                    && let Some(attempt) = trigger.attempt.as_deref_mut()
                {
                    attempt.waits();
                }
                return Ok(index.refusal(key).map(|refusal| Issue::of_refusal(refusal)));
            };
            *known = versions;
            if steps.ops.is_empty() {
                return Ok(steps.issue);
            }
            let mut learned_any = false;
            for op in &steps.ops {
                if op.is_deletion() && self.withholds_deletions() {
                    return Ok(Some(Issue::withheld()));
                }
                if op.is_guarded() && !self.may_delete() {
                    return Ok(None);
                }
                if op.relies_on_an_end() && self.index.lock().awaits_consumer(key) {
                    return Ok(None);
                }
                match self.apply(key, &place, op, trigger).await {
                    Ok(Some(learned)) => {
                        self.learn(key, learned, &uids, op, known);
                        learned_any = true;
                    }
                    Ok(None) => {}
                    // The watch has shown another version than the planned one: plan again.
                    Err(error) if is_stale(&error) && self.versions(key) != *known => {
                        learned_any = true;
                        break;
                    }
                    // The watch has not shown the other version yet: read the object, and plan again.
                    Err(error) if is_stale(&error) && !reread => {
                        reread = true;
                        let read = F::Op::read(op.is_on_consumer());
                        let learned = self
                            .apply(key, &place, &read, trigger)
                            .await
                            .map_err(|error| issue(&error, &read))?;
                        if let Some(learned) = learned {
                            self.learn(key, learned, &uids, &read, known);
                        }
                        learned_any = true;
                        break;
                    }
                    Err(error) => {
                        // Where the copy may not be written, its status comes down all the same.
                        if errors::is_forbidden(&error) && !op.is_on_consumer() {
                            // What comes down is no part of the change that cannot go up.
                            trigger.changed = None;
                            let ops = (&*place, &*steps.ops);
                            self.apply_independent(key, ops, &uids, known, trigger).await;
                        }
                        return Err(issue(&error, op));
                    }
                }
            }
            if !learned_any {
                // The next event of the watch queues the object again.
                return Ok(None);
            }
        }
        Err(Issue {
            reason: "Unstable",
            message: "the object changes faster than it can be written".to_owned(),
            transient: true,
            cause: Cause::Other,
        })
    }

    /// Runs the operations of a plan that do not depend on one that failed. Failures are left to the next attempt.
    async fn apply_independent(
        &self,
        key: &ObjectKey,
        (place, ops): (&str, &[F::Op]),
        uids: &PlannedUids,
        known: &mut Versions,
        trigger: &mut Trigger<'_, '_>,
    ) {
        for op in ops.iter().filter(|op| op.is_independent()) {
            if let Ok(Some(learned)) = self.apply(key, place, op, trigger).await {
                self.learn(key, learned, uids, op, known);
            }
        }
    }

    /// Plans one object. `None` if it waits for its provider namespace, which is requested if necessary.
    fn plan(&self, key: &ObjectKey) -> Option<Planned<F::Op>> {
        let mut index = self.index.lock();
        if let Some((pair, place)) = index.known(key) {
            let steps = self.strategy.plan(key, pair, &place);
            // The contents of our own write are compared once the watch shows it.
            if steps.ops.is_empty() && !pair.is_unseen() {
                pair.forget_content();
            }
            return Some(Planned::of(pair, steps, place.namespace));
        }
        let pair = index.pair(key)?;
        let has_place = index.place(&key.namespace).is_some();
        if let Some(steps) = self.strategy.unplaced(key, pair, has_place) {
            return Some(Planned::of(pair, steps, "".into()));
        }
        if index.needs_place(key) {
            self.look_at_place(&key.namespace, Priority::Live);
        }
        None
    }

    /// The versions of an object that are known now.
    fn versions(&self, key: &ObjectKey) -> Versions {
        versions_in(&self.index.lock(), key)
    }

    /// Queues the APIServiceNamespace of a consumer namespace, if the placement needs one.
    pub(crate) fn look_at_place(&self, consumer_namespace: &Arc<str>, priority: Priority) {
        if let Some(request) = self.frame.placement.request(consumer_namespace) {
            self.place_queue.add(request, priority);
        }
    }

    /// Runs one operation.
    async fn apply(
        &self,
        key: &ObjectKey,
        place: &str,
        op: &F::Op,
        trigger: &mut Trigger<'_, '_>,
    ) -> Result<Option<F::Learned>, kube::Error> {
        let start = Instant::now();
        let name = &*self.frame.placement.copy_name(&self.frame.contract, &key.name);
        let traced = trigger
            .attempt
            .as_deref_mut()
            .and_then(|attempt| attempt.operation(&self.frame, key, op));
        let target = Target {
            key,
            place,
            name,
            traceparent: traced.as_ref().and_then(|span| span.annotation()),
        };
        self.strategy.sent(&mut self.index.lock(), key, op);
        let outcome = self.strategy.apply(&self.writer, target, op).await;
        if let Some((attempt, traced)) = trigger.attempt.as_deref_mut().zip(traced) {
            attempt.answered(traced, &outcome);
        }
        self.meter
            .answered(op.is_on_consumer(), op.name(), outcome.is_ok(), start.elapsed());
        if let Some(changed) = trigger.changed.filter(|_| outcome.is_ok() && op.carries_change()) {
            self.meter.synced(op.is_on_consumer(), changed.elapsed());
        }
        let resource = &self.frame.resource.plural;
        tracing::debug!(%resource, %key, op = op.name(), ok = outcome.is_ok(), "synced");
        outcome
    }

    /// Notes the outcome of an operation. `known` follows it, unless the watch has shown another version meanwhile.
    fn learn(&self, key: &ObjectKey, learned: F::Learned, planned: &PlannedUids, op: &F::Op, known: &mut Versions) {
        let mut index = self.index.lock();
        let is_as_known = versions_in(&index, key) == *known;
        if let Some(version) = F::written(&learned) {
            let on_consumer = op.is_on_consumer();
            self.meter.wrote(on_consumer, version, |version| {
                let pair = index.pair(key);
                let known = pair.and_then(|pair| if on_consumer { pair.consumer() } else { pair.provider() });
                known.is_some_and(|(_, known)| known >= version)
            });
        }
        self.strategy.learn(&mut index, key, learned, planned);
        if is_as_known {
            *known = versions_in(&index, key);
        }
    }

    fn finish(&self, work: Work<ObjectKey>, outcome: Result<Option<Issue>, Issue>, known: Versions) {
        let namespace = &work.key().namespace;
        if self.index.lock().is_vacant(namespace) {
            // The last object is gone, so the provider namespace may be given up.
            self.look_at_place(namespace, Priority::Backlog);
        }
        let (issue, failed) = match &outcome {
            Ok(issue) => (issue.as_ref(), false),
            Err(issue) => (Some(issue), true),
        };
        // A first transient failure, such as a conflict with another writer, is normal and not reported.
        if !(failed && work.failures() == 0 && issue.is_some_and(|issue| issue.transient)) {
            let news = self.issues.lock().set(work.key(), issue);
            if let Some(issue) = issue.filter(|_| news) {
                self.around
                    .recorder
                    .warn(&self.reference(work.key()), issue.reason, &issue.message);
            }
            // An event that ends the issue may have come before the issue was noted, and then did not queue the object.
            if issue.is_some() && self.versions(work.key()) != known {
                self.queue.add(work.key().clone(), Priority::Live);
            }
        }
        match outcome {
            Ok(_) => drop(work),
            Err(issue) if issue.cause == Cause::Invalid => work.again_after(INVALID_RETRY),
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

/// True if a write was refused because the object does not have the planned UID or version.
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
    Issue::of_error(error, op.is_on_consumer())
}

#[cfg(test)]
#[path = "tests/work.rs"]
mod tests;
