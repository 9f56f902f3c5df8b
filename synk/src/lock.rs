//! The Lease of a set: of several applies one works, and the others learn who it is.
//!
//! Its holder renews it in the background. One that was killed is passed as soon as nothing was heard of it for as long as
//! its Lease lasts, counted by whoever waits, so clocks may differ by any amount. At the end the Lease is deleted.

use std::{future::Future, time::Duration};

use bindery_runtime::{
    client::Clients,
    errors,
    lease::{Attempt, Candidate, Holder, Leadership, Pace, Renewals, Sightings},
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
    synk::Target,
    wire::SetName,
};

const PACE: Pace = Pace {
    duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    renew_period: Duration::from_secs(5),
    retry_period: Duration::from_secs(1),
    believed: Duration::from_mins(2),
};
/// How often a held Lease is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How many attempts in a row an API server may leave without an answer.
const PATIENCE: u32 = 3;

/// The way to a [`Held`].
#[derive(Debug)]
pub struct Lock;

/// The Lease of a set, which is ours until it is released or lost. Dropped, it is not renewed any more.
#[derive(Debug)]
pub struct Held {
    set: SetName,
    /// The namespaces in which nobody else can hold the set.
    namespaces: Vec<String>,
    /// Another one, without which this one is worth nothing.
    other: Option<Box<Self>>,
    renewals: Renewals,
    lost: watch::Receiver<bool>,
    stop: oneshot::Sender<()>,
    renewal: JoinHandle<Option<Leadership>>,
}

// === impl Lock ===

impl Lock {
    /// Takes the Lease of a set. Whoever else holds it either shows that it lives, which is a [`Failure::Held`], or is
    /// passed when its time is over.
    pub async fn take(clients: &Clients, target: &Target, on: &Listener<'_>) -> Result<Held, Failure> {
        let name = target.set.lease();
        let candidate = Candidate::with(clients.lease.clone(), &target.namespace, &name, identity(), PACE);
        let mut sightings = Sightings::default();
        let mut told = false;
        let mut silent = 0;
        loop {
            match candidate.attempt(&mut sightings).await {
                Ok(Attempt::Won(leadership)) => return Ok(Held::keep(target, *leadership)),
                Ok(Attempt::Held(holder)) if holder.alive => return Err(held(&target.set, holder)),
                Ok(Attempt::Held(holder)) => {
                    if !told {
                        on(Event::Held {
                            holder: &holder.identity,
                        });
                    }
                    (told, silent) = (true, 0);
                }
                Ok(Attempt::Raced) => silent = 0,
                Err(error) if errors::is_transient(&error) && silent < PATIENCE => silent += 1,
                Err(error) => {
                    let what = format!("take Lease {name} in namespace {}", target.namespace);
                    return Err(Failure::api_in(&target.namespace, what)(error));
                }
            }
            sleep(LOOK).await;
        }
    }

    /// As [`Lock::take`], of a set that is applied with another namespace so far: who applies it there is held off as well.
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
            // Nobody can apply it there.
            Err(Failure::NoNamespace(_) | Failure::Terminating(_)) => {}
            Err(failure) => {
                held.release().await;
                return Err(failure);
            }
        }
        held.namespaces.push(there.namespace);
        Ok(held)
    }

    /// Whether there is a Lease, whoever holds it. One that may not be read is none.
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

fn held(set: &SetName, holder: Holder) -> Failure {
    Failure::Held {
        set: set.clone(),
        holder: holder.identity,
        since: holder
            .since
            .map_or_else(|| "an unknown time".to_owned(), |since| format!("{since:.0}")),
    }
}

/// Who this process is, for people: the one who ran it, the machine, the process. Made unique by chance, since machines
/// may share a name and processes a number.
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

    /// Whether nobody else can hold the set, while it is applied with this namespace.
    pub fn covers(&self, namespace: &str) -> bool {
        self.namespaces.iter().any(|covered| covered == namespace)
    }

    /// Whether the Lease is ours no longer, or may be: to be asked before a write, since a process that was stopped for a
    /// while works on before it learns of the loss.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow() || self.renewals.is_overdue() || self.other.as_ref().is_some_and(|other| other.is_lost())
    }

    /// Waits until the Lease is ours no longer.
    pub async fn lost(&self) {
        // The sender goes without a word only where the task that renews the Lease was ended from outside.
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

    /// Does work while the Lease is ours, and stops it at once when it is not.
    pub async fn guard<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.lost() => Err(Failure::Lost(self.set.clone())),
            done = work => done,
        }
    }

    /// Deletes the Lease. Call when all work has stopped. If that fails, others wait until its time is over.
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
