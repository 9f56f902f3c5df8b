//! Applies the objects of a version in stages: CRDs, Namespaces, all others, and then what ends the version.

use super::{establish, prune, rounds, work::Work};
use crate::{errors::Failure, order, plan::Decision, report::Report};

/// Phase of Namespaces.
const NAMESPACES: u16 = 1;

impl Work<'_> {
    /// Applies the CRDs, and waits until their kinds are served.
    pub(crate) async fn definitions(&mut self) -> Result<(), Failure> {
        let definitions = self.steps(|phase| phase < NAMESPACES);
        if definitions.is_empty() {
            return Ok(());
        }
        rounds::run(self, definitions.clone()).await;
        establish::wait(self, &definitions).await
    }

    /// Applies the Namespaces.
    pub(crate) async fn namespaces(&mut self) {
        let namespaces = self.steps(|phase| phase == NAMESPACES);
        rounds::run(self, namespaces).await;
    }

    /// Applies all remaining objects. Where the set has admission policies, these are proved to be in force before anything changes that
    /// comes after them. If an object before that point fails, nothing after it is tried.
    pub(crate) async fn objects(&mut self) -> Result<(), Failure> {
        let changes = |index: &usize| self.plan.steps[*index].decision != Decision::Unchanged;
        let has_policies = !self.steps(|phase| phase == order::POLICIES).is_empty();
        let is_due = has_policies && self.steps(|phase| phase >= order::POLICIES).iter().any(changes);
        if let Some(proof) = self.job.options.proof.as_ref().filter(|_| is_due) {
            let first = self.left(|phase| phase <= order::POLICIES);
            rounds::run(self, first.clone()).await;
            let failed = |index: &usize| {
                self.outcomes[*index]
                    .as_ref()
                    .is_none_or(|outcome| outcome.error.is_some())
            };
            if first.iter().any(failed) {
                return Ok(());
            }
            proof.prove().await.map_err(Failure::Unproved)?;
        }
        let left = self.left(|_| true);
        rounds::run(self, left).await;
        Ok(())
    }

    /// Finishes the version: if all objects are applied, deletes what left the set, writes the status, and deletes
    /// former versions with what they owned. The history is stored last; a failure to store it delays nothing else.
    pub(crate) async fn end(self) -> Result<Report, Failure> {
        let mut report = self.report();
        let is_failed = |report: &Report| report.problems().next().is_some();
        let mut kept = Ok(());
        if !is_failed(&report) {
            let (pruned, failed) = prune::prune(&self).await;
            report.pruned = pruned;
            report.objects.extend(failed);
        }
        if !is_failed(&report) {
            kept = match self.keep().await {
                Err(lost @ (Failure::Lost(_) | Failure::NoNamespace(_) | Failure::Terminating(_))) => return Err(lost),
                kept => kept,
            };
        }
        self.tell(&report).await?;
        self.delete_older(&report).await?;
        if is_failed(&report) {
            return Err(Failure::Incomplete(Box::new(report)));
        }
        kept.map_err(|failure| Failure::NotKept {
            version: self.version,
            source: Box::new(failure),
        })?;
        Ok(report)
    }

    /// The steps after the CRDs that were not tried yet.
    fn left(&self, of: impl Fn(u16) -> bool) -> Vec<usize> {
        let mut left = self.steps(|phase| phase >= NAMESPACES && of(phase));
        left.retain(|index| self.outcomes[*index].is_none());
        left
    }

    fn steps(&self, of: impl Fn(u16) -> bool) -> Vec<usize> {
        let steps = self.plan.steps.iter().enumerate();
        let of_phase = steps.filter(|(_, step)| of(order::phase(&step.object)));
        of_phase.map(|(index, _)| index).collect()
    }
}
