//! Holds the Lease of a set, so that only one of several applies works, and the others learn which.
//!
//! The holder renews the Lease in the background. A waiting candidate takes the Lease of a holder that was killed, once
//! it observed no renewal for the Lease's duration by its own clock; so clocks may differ by any amount. The holder
//! deletes the Lease at the end.

use std::{future::Future, time::Duration};

use bindery_runtime::{
    client::Clients,
    errors,
    lease::{Candidate, Leadership, LeaseAttempt, LeaseHolder, LeaseObservations, LeaseTiming, Renewals},
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::sleep,
};

use crate::{
    errors::Failure,
    report::{Event, Listener},
    target::Target,
    wire::SetName,
};

const TIMING: LeaseTiming = LeaseTiming {
    duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    renew_period: Duration::from_secs(5),
    retry_period: Duration::from_secs(1),
    foreign_duration_max: Duration::from_mins(2),
};
/// Pause between two attempts to take a Lease that another process holds.
const PAUSE: Duration = Duration::from_millis(500);
/// Number of consecutive attempts that the API server may leave unanswered.
const PATIENCE: u32 = 3;

/// Takes the Lease of a set; see [`Lock::take`].
#[derive(Debug)]
pub struct Lock;

/// The Lease of a set, held by this process until it is released or lost. After a drop it is not renewed.
#[derive(Debug)]
pub struct Held {
    set: SetName,
    /// Namespaces with which no other process can apply the set now.
    namespaces: Vec<String>,
    /// A second Lease without which this one has no effect.
    other: Option<Box<Self>>,
    renewals: Renewals,
    lost: watch::Receiver<bool>,
    stop: oneshot::Sender<()>,
    renewal: JoinHandle<Option<Leadership>>,
}

// === impl Lock ===

impl Lock {
    /// Takes the Lease of a set. If another process holds it, either that process renews it, which is a
    /// [`Failure::Held`], or the Lease expires and is taken.
    pub async fn take(clients: &Clients, target: &Target, on: &Listener<'_>) -> Result<Held, Failure> {
        let name = target.set.lease();
        let candidate = Candidate::with(clients.lease.clone(), &target.namespace, &name, identity(), TIMING);
        let mut observations = LeaseObservations::default();
        let mut told = false;
        let mut silent = 0;
        loop {
            match candidate.attempt(&mut observations).await {
                Ok(LeaseAttempt::Won(leadership)) => return Ok(Held::keep(target, *leadership)),
                Ok(LeaseAttempt::Held(holder)) if holder.alive => return Err(held(&target.set, holder)),
                Ok(LeaseAttempt::Held(holder)) => {
                    if !told {
                        on(Event::Held {
                            holder: &holder.identity,
                        });
                    }
                    (told, silent) = (true, 0);
                }
                Ok(LeaseAttempt::Raced) => silent = 0,
                Err(error) if errors::is_transient(&error) && silent < PATIENCE => silent += 1,
                Err(error) => {
                    let what = format!("take Lease {name} in namespace {}", target.namespace);
                    return Err(Failure::api_in(&target.namespace, what)(error));
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Takes the Lease like [`Lock::take`], and the Lease in the namespace that the set was applied with so far, so
    /// that no process can apply it there either.
    pub async fn take_over(
        clients: &Clients,
        target: &Target,
        from: Option<&str>,
        on: &Listener<'_>,
    ) -> Result<Held, Failure> {
        let mut held = Self::take(clients, target, on).await?;
        let Some(from) = from.filter(|from| *from != target.namespace) else {
            return Ok(held);
        };
        let there = Target {
            set: target.set.clone(),
            namespace: from.to_owned(),
        };
        match Self::take(clients, &there, on).await {
            Ok(other) => held.other = Some(Box::new(other)),
            // The other namespace does not exist, so no process can apply the set with it.
            Err(Failure::NoNamespace(_) | Failure::Terminating(_)) => {}
            Err(failure) => {
                held.release().await;
                return Err(failure);
            }
        }
        held.namespaces.push(there.namespace);
        Ok(held)
    }

    /// Whether the Lease exists, regardless of its holder. A Lease that may not be read counts as absent.
    pub async fn exists(clients: &Clients, target: &Target) -> Result<bool, Failure> {
        let name = target.set.lease();
        let api: Api<Lease> = Api::namespaced(clients.lease.clone(), &target.namespace);
        match api.get_metadata_opt(&name).await {
            Ok(lease) => Ok(lease.is_some()),
            Err(error) if errors::is_forbidden(&error) => Ok(false),
            Err(error) => {
                let what = format!("read Lease {name} in namespace {}", target.namespace);
                Err(Failure::api(what)(error))
            }
        }
    }
}

fn held(set: &SetName, holder: LeaseHolder) -> Failure {
    Failure::Held {
        set: set.clone(),
        holder: holder.identity,
        since: holder
            .since
            .map_or_else(|| "an unknown time".to_owned(), |since| format!("{since:.0}")),
    }
}

/// Returns the name of this process for people: user, machine and process id, with a random part, because machines may
/// share a name.
fn identity() -> String {
    let from_environment = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = from_environment("USER").or_else(|| from_environment("LOGNAME"));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.map(|host| host.trim().to_owned()).filter(|host| !host.is_empty());
    format!(
        "{}@{}-{}-{:08x}",
        user.as_deref().unwrap_or("unknown"),
        host.or_else(|| from_environment("HOSTNAME"))
            .as_deref()
            .unwrap_or("unknown"),
        std::process::id(),
        rand::random::<u32>()
    )
}

// === impl Held ===

impl Held {
    fn keep(target: &Target, mut leadership: Leadership) -> Self {
        let (told, lost) = watch::channel(false);
        let (stop, stopped) = oneshot::channel();
        let renewals = leadership.renewals();
        let renewal = tokio::spawn(async move {
            tokio::select! {
                () = leadership.lost() => {
                    told.send_replace(true);
                    None
                }
                released = stopped => released.is_ok().then_some(leadership),
            }
        });
        Self {
            set: target.set.clone(),
            namespaces: vec![target.namespace.clone()],
            other: None,
            renewals,
            lost,
            stop,
            renewal,
        }
    }

    /// Whether no other process can apply the set with this namespace.
    pub fn covers(&self, namespace: &str) -> bool {
        self.namespaces.iter().any(|covered| covered == namespace)
    }

    /// Whether the Lease is lost, or may be. Must be asked before a write, because a process that was stopped for a
    /// while goes on before it learns of the loss.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow() || self.renewals.is_overdue() || self.other.as_ref().is_some_and(|other| other.is_lost())
    }

    /// Waits until the Lease is lost.
    pub async fn lost(&self) {
        // The sender is dropped without a message only if the renewing task was aborted.
        let mut lost = self.lost.clone();
        let own = lost.wait_for(|lost| *lost);
        match &self.other {
            Some(other) => tokio::select! {
                _ = own => {}
                () = Box::pin(other.lost()) => {}
            },
            None => drop(own.await),
        }
    }

    /// Runs `work` while the Lease is held, and stops it as soon as the Lease is lost.
    pub async fn guard<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.lost() => Err(Failure::Lost(self.set.clone())),
            done = work => done,
        }
    }

    /// Deletes the Lease. Must be called after all work has stopped. If it fails, other processes wait until the Lease
    /// expires.
    pub async fn release(mut self) {
        if let Some(other) = self.other.take() {
            Box::pin(other.release()).await;
        }
        if self.stop.send(()).is_err() {
            return;
        }
        let Ok(Some(leadership)) = self.renewal.await else {
            return;
        };
        if let Err(error) = leadership.end().await {
            tracing::warn!(set = %self.set, error = %errors::explain(&error), "cannot delete the Lease");
        }
    }
}

#[cfg(test)]
mod tests;
