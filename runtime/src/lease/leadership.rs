//! Holding a Lease: renewing it, noticing its loss, giving it up.

use std::time::{Duration, SystemTime};

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::DeleteParams;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{Candidate, notes::LeaseNotes};
use crate::{errors, preconditions::unchanged};

/// Proof that this process leads, valid while [`Leadership::lost`] is polled and has not returned.
#[derive(Debug)]
pub struct Leadership {
    candidate: Candidate,
    lease: Lease,
    renewed: watch::Sender<RenewalTime>,
    /// Whether the last attempt to renew succeeded.
    is_renewed: bool,
    notes: LeaseNotes,
}

/// When a Lease was last renewed, for tasks that may only work while it is held.
#[derive(Clone, Debug)]
pub struct Renewals {
    last: watch::Receiver<RenewalTime>,
    deadline: Duration,
}

/// A moment by both clocks of the machine: the monotonic one stands still while the machine sleeps, the other may be set.
#[derive(Clone, Copy, Debug)]
pub(super) struct RenewalTime {
    at: Instant,
    wall: SystemTime,
}

// === impl Leadership ===

impl Leadership {
    /// Wraps a Lease that the candidate acquired at this time.
    pub(super) fn new(candidate: Candidate, lease: Lease, renewed: RenewalTime) -> Self {
        Self {
            candidate,
            notes: LeaseNotes::of(lease.metadata.annotations.as_ref()),
            lease,
            renewed: watch::Sender::new(renewed),
            is_renewed: true,
        }
    }

    /// Renews the Lease until that fails for `renew_deadline`, or another candidate holds it. The caller then has to stop all
    /// work at once.
    pub async fn lost(&mut self) {
        loop {
            let pause = if self.is_renewed {
                self.candidate.timing.renew_period
            } else {
                self.candidate.timing.retry_period
            };
            tokio::select! {
                () = sleep(pause.min(self.time_left())) => {}
                () = self.notes.hurried(), if self.is_renewed => {}
            }
            self.is_renewed = false;
            let before = RenewalTime::now();
            let mut wanted = self.candidate.claim(Some(self.lease.clone()));
            let renewal = self.notes.begin(&mut wanted.metadata.annotations);
            let limit = self.time_left().min(self.candidate.timing.renew_deadline / 2);
            match timeout(limit, self.candidate.write(&wanted)).await {
                Ok(Ok(lease)) => {
                    self.lease = lease;
                    self.renewed.send_replace(before);
                    self.is_renewed = true;
                    self.notes.accept(renewal, self.lease.metadata.annotations.as_ref());
                }
                Ok(Err(error)) if errors::is_object_gone(&error, &self.candidate.name) => {
                    tracing::error!(
                        lease = self.candidate.name,
                        "the Lease was deleted; another replica may lead"
                    );
                    return;
                }
                Ok(Err(error)) if errors::code(&error) == Some(409) => {
                    if !self.reread().await {
                        tracing::error!(lease = self.candidate.name, "another replica leads");
                        return;
                    }
                }
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.candidate.name, error = %errors::explain(&error), "cannot renew");
                }
                Err(_) => tracing::warn!(
                    lease = self.candidate.name,
                    "the API server does not answer; cannot renew"
                ),
            }
            if self.time_left().is_zero() {
                tracing::error!(lease = self.candidate.name, "leadership lost: not renewed in time");
                return;
            }
        }
    }

    /// Returns how long the Lease may still be renewed.
    fn time_left(&self) -> Duration {
        let passed = self.renewed.borrow().at.elapsed();
        self.candidate.timing.renew_deadline.saturating_sub(passed)
    }

    /// Returns a view of the renewals, for other tasks.
    pub fn renewals(&self) -> Renewals {
        Renewals {
            last: self.renewed.subscribe(),
            deadline: self.candidate.timing.renew_deadline,
        }
    }

    /// Returns the annotations of the Lease, for other tasks.
    pub fn notes(&self) -> LeaseNotes {
        self.notes.clone()
    }

    /// Reads the Lease after a conflict. Returns true if this candidate still holds it, as after an answer that was lost, or if
    /// it cannot be read.
    async fn reread(&mut self) -> bool {
        let read = timeout(
            self.candidate.timing.retry_period,
            self.candidate.api.get(&self.candidate.name),
        )
        .await;
        let Ok(Ok(lease)) = read else {
            return true;
        };
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        let ours = holder.as_ref() == Some(&self.candidate.identity);
        if ours {
            self.lease = lease;
            self.notes.reread(self.lease.metadata.annotations.as_ref());
        }
        ours
    }

    /// Gives up the Lease, so that a successor need not wait. Call it when all work has stopped.
    pub async fn release(mut self) {
        let limit = self.candidate.timing.retry_period;
        if let Ok(Err(error)) = timeout(limit, self.last_write(Self::write_without_holder)).await {
            tracing::warn!(error = %errors::explain(&error), "cannot release the Lease; a successor waits until it expires");
        }
    }

    /// Sends a last write of the Lease, unless another candidate holds it.
    async fn last_write(&mut self, write: impl AsyncFn(&Self) -> Result<(), kube::Error>) -> Result<(), kube::Error> {
        match write(self).await {
            // The Lease was written since it was last read: perhaps by this candidate, with an answer that was lost or not awaited.
            Err(error) if errors::code(&error) == Some(409) => {
                if self.reread().await {
                    write(self).await
                } else {
                    Ok(())
                }
            }
            written => written,
        }
    }

    async fn write_without_holder(&self) -> Result<(), kube::Error> {
        let mut lease = self.lease.clone();
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = None;
        }
        lease.metadata.managed_fields = None;
        self.candidate.write(&lease).await.map(drop)
    }

    /// Deletes the Lease, unless another candidate holds it. Call it when all work has stopped.
    pub async fn end(mut self) -> Result<(), kube::Error> {
        self.last_write(Self::delete).await
    }

    async fn delete(&self) -> Result<(), kube::Error> {
        let params = DeleteParams::default().preconditions(unchanged(&self.lease.metadata));
        match self.candidate.api.delete(&self.candidate.name, &params).await {
            Err(error) if !errors::is_not_found(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

// === impl Renewals ===

impl Renewals {
    /// Whether the last renewal is so long ago that another candidate may hold the Lease. True at once in a process that was
    /// stopped for a while, or whose machine slept.
    pub fn is_overdue(&self) -> bool {
        let last = *self.last.borrow();
        let slept = last.wall.elapsed().is_ok_and(|elapsed| elapsed >= self.deadline);
        slept || last.at.elapsed() >= self.deadline
    }

    /// Renewals that begin now, and a function that renews the Lease again.
    #[cfg(test)]
    pub(crate) fn renewed_now(deadline: Duration) -> (Self, impl Fn()) {
        let (renewed, last) = watch::channel(RenewalTime::now());
        let renew = move || {
            renewed.send_replace(RenewalTime::now());
        };
        (Self { last, deadline }, renew)
    }
}

// === impl RenewalTime ===

impl RenewalTime {
    pub(super) fn now() -> Self {
        Self {
            at: Instant::now(),
            wall: SystemTime::now(),
        }
    }
}
