//! Creates one version of a set and records its outcome.

use std::{collections::BTreeSet, time::Duration};

use bindery_runtime::backoff::Backoff;
use jiff::Timestamp;
use tokio::time::sleep;

use super::{Job, Seen, write::Writer};
use crate::{
    errors::Failure,
    history,
    lock::Held,
    object::{Identity, ObjectRef, owner_references},
    plan::{Plan, is_read},
    problem,
    report::{Outcome, Problem, Report},
    rest::Propagation,
    sets,
    versions::{Known, Versions},
    wire::{Phase, ResourceSet, Status, Version},
};

/// Number of retries to store the history, because the apply as a whole is not retried for that.
const PATIENCE: u32 = 4;
/// Pause between two attempts to store the history.
const PAUSE: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(4));

/// A version that exists, and the outcomes of its objects so far.
pub(crate) struct Work<'a> {
    pub job: &'a Job<'a>,
    pub seen: &'a Seen,
    pub plan: &'a Plan,
    /// The ResourceSet of the version, as it was created.
    pub set: ResourceSet,
    /// The versions of the set, this one included.
    pub versions: Versions,
    pub version: Version,
    pub uid: String,
    /// The outcome of each step of the plan, once it was attempted.
    pub outcomes: Vec<Option<Outcome>>,
    pub held: Option<&'a Held>,
}

// === impl Work ===

impl<'a> Work<'a> {
    /// Creates the version. If it exists already, another apply was first.
    pub(crate) async fn begin(job: &'a Job<'a>, seen: &'a Seen, plan: &'a Plan, number: u64) -> Result<Self, Failure> {
        let version = plan.set.version(number);
        let objects: Vec<ObjectRef> = plan.steps.iter().map(|step| step.object.clone()).collect();
        let mut set = ResourceSet::begin(&version, &plan.namespace, &objects, Timestamp::now());
        let uid = sets::begin(job.rest, &version, &set).await?;
        set.metadata.uid = Some(uid.clone());
        Ok(Self {
            job,
            seen,
            plan,
            versions: Versions::of(&plan.set, seen.sets.iter().chain([&set]).cloned()),
            set,
            version,
            uid,
            outcomes: vec![None; plan.steps.len()],
            held: None,
        })
    }

    /// Makes all later writes depend on this Lease.
    pub(crate) fn lock(&mut self, held: &'a Held) {
        self.held = Some(held);
    }

    pub(crate) fn writer(&self) -> Writer<'_> {
        Writer {
            rest: self.job.rest,
            kinds: &self.seen.kinds,
            version: &self.version,
            uid: &self.uid,
            held: self.held,
            fields_of: &self.job.options.allowed.fields_of,
        }
    }

    /// Stores the manifests for a rollback, with retries.
    pub(super) async fn keep(&self) -> Result<(), Failure> {
        let mut attempt = 0;
        loop {
            self.may_go_on()?;
            match self.try_to_keep().await {
                Err(Failure::Api { source, .. }) if problem::is_transient(&source) && attempt < PATIENCE => {
                    sleep(PAUSE.delay(attempt)).await;
                    attempt += 1;
                }
                kept => return kept,
            }
        }
    }

    async fn try_to_keep(&self) -> Result<(), Failure> {
        let Job {
            rest, target, options, ..
        } = *self.job;
        let (clients, manifests) = (rest.clients(), &self.seen.manifests);
        history::store(clients, target, &self.version, manifests, options.history).await?;
        let noted = self.seen.versions.iter().filter_map(|known| known.namespace.as_deref());
        let before: BTreeSet<_> = noted.filter(|namespace| *namespace != target.namespace).collect();
        for namespace in before {
            history::remove_all(clients, &target.set, namespace).await?;
        }
        Ok(())
    }

    /// Fails if the Lease was lost, like [`Writer::may_write`], for writes other than objects.
    fn may_go_on(&self) -> Result<(), Failure> {
        match self.writer().may_write() {
            Err(_) => Err(Failure::Lost(self.plan.set.clone())),
            Ok(()) => Ok(()),
        }
    }

    /// Ends this version after another apply took the Lease. If the version owns objects, its status says what was
    /// applied, so that it does not look effective.
    pub(crate) async fn yielded(self, to: &Failure) -> Result<(), Failure> {
        let mut done = self.outcomes.iter().flatten();
        if !done.any(|outcome| outcome.error.is_none() && !outcome.object.gvk.is_crd()) {
            return sets::delete(self.job.rest, &self.version, &self.uid, Propagation::Background).await;
        }
        let mut report = self.report();
        for (reported, outcome) in report.objects.iter_mut().zip(&self.outcomes) {
            if outcome.is_none() {
                reported.error = Some(Problem::passing(format!("not tried: {to}")));
            }
        }
        self.tell(&report).await
    }

    /// Ends this version if most of its objects could not even be attempted.
    pub(crate) async fn give_up(self) -> Result<Report, Failure> {
        let report = self.report();
        self.tell(&report).await?;
        Err(Failure::Incomplete(Box::new(report)))
    }

    pub(super) fn report(&self) -> Report {
        let outcomes = self.plan.steps.iter().zip(&self.outcomes).map(|(step, outcome)| {
            let untried = || {
                Problem::passing(
                    "not tried: its namespace could not be made, or an object before it could not be applied",
                )
            };
            outcome
                .clone()
                .unwrap_or_else(|| Outcome::failed(&step.object, untried()))
        });
        Report {
            version: Some(self.version.clone()),
            changed: true,
            objects: outcomes.collect(),
            pruned: Vec::new(),
        }
    }

    pub(super) async fn tell(&self, report: &Report) -> Result<(), Failure> {
        self.may_go_on()?;
        let started = self.set.status.started_at;
        let status = Status::ended(started, &report.objects, Timestamp::now());
        let told = sets::end(self.job.rest, &self.version, &self.uid, &status).await;
        told.map_err(|error| {
            let failed = report.objects.iter().find_map(|outcome| {
                let problem = outcome.error.as_ref()?;
                Some(format!(", of which {} failed: {}", outcome.object, problem.message))
            });
            let failed = failed.unwrap_or_default();
            Failure::api(format!("write the status of ResourceSet {}{failed}", self.version))(error)
        })
    }

    pub(super) async fn delete_older(&self, report: &Report) -> Result<(), Failure> {
        let applied = report.objects.iter().filter(|outcome| outcome.error.is_none());
        let applied: BTreeSet<Identity> = applied.map(|outcome| outcome.object.identity()).collect();
        let is_whole = applied.len() == report.objects.len();
        for known in &self.seen.versions {
            if is_whole || self.is_over(known, &applied) {
                self.may_go_on()?;
                sets::delete(self.job.rest, &known.version, &known.uid, Propagation::Background).await?;
            }
        }
        Ok(())
    }

    /// Whether a former version can be deleted although this one failed. A version that owns objects, or may own some,
    /// is kept, because they would be deleted with it.
    fn is_over(&self, known: &Known, applied: &BTreeSet<Identity>) -> bool {
        let owns = |object: &ObjectRef| {
            let identity = object.identity();
            let live = self.seen.live.get(&identity);
            let is_owned = match live {
                Some(live) => is_owned(live, &known.uid),
                None => !object.gvk.is_crd() && !is_read(object, &self.seen.kinds),
            };
            !applied.contains(&identity) && is_owned
        };
        known.phase == Phase::Failed && !known.objects.iter().any(owns)
    }
}

fn is_owned(live: &serde_json::Value, uid: &str) -> bool {
    owner_references(live).iter().any(|owner| owner["uid"] == uid)
}

#[cfg(test)]
mod tests;
