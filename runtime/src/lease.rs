//! Leader election by a Lease: of several replicas one works, and another takes over when it is gone.
//!
//! Who waits compares times that it measured itself, never the time written in the Lease, so clocks may differ by any
//! amount. Who leads stops on its own before anybody else may start: the process is expected to end when
//! [`Leadership::lost`] returns.
//!
//! A Lease may as well stand for one piece of work that ends: whoever does it makes one [`Candidate::attempt`] after the
//! other, sees who else is at work, and takes the Lease away with [`Leadership::end`].

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::{errors, preconditions::unchanged};

/// Flags for leader election. Names and defaults are those that Kubernetes components use.
#[derive(Clone, Debug, clap::Args)]
pub struct LeaseArgs {
    /// Name of the Lease that replicas compete for.
    #[arg(long)]
    pub lease_name: Option<String>,
    /// Namespace of that Lease; where the process runs, if not given.
    #[arg(long, env = "POD_NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// Who this replica is; made up if not given.
    #[arg(long, env = "POD_NAME", hide = true)]
    pub lease_identity: Option<String>,
    /// How long a leader that is not heard of still leads, in seconds.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(2..=600))]
    pub lease_duration: u32,
    /// How long a leader tries to renew before it gives up, in seconds. Less than the duration.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=599))]
    pub lease_renew_deadline: u32,
    /// How long to wait between attempts, in seconds.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub lease_retry_period: u32,
}

/// Why the flags are refused.
#[derive(Debug, thiserror::Error)]
#[error(
    "--lease-duration {duration}, --lease-renew-deadline {deadline} and --lease-retry-period {retry} could make two replicas \
     lead at once or none for long: the duration must be longer than deadline and retry period together, and the deadline \
     longer than the retry period"
)]
pub struct InvalidLease {
    duration: u32,
    deadline: u32,
    retry: u32,
}

/// One candidate for leadership.
#[derive(Clone)]
pub struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
    duration: Duration,
    renew_deadline: Duration,
    renew_period: Duration,
    retry_period: Duration,
    believed: Duration,
}

/// How long a Lease lasts, and how it is kept.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long a holder that is not heard of still holds it.
    pub duration: Duration,
    /// How long a holder tries to renew it before it gives up. Less than the duration.
    pub renew_deadline: Duration,
    /// How long after one renewal the next one is due. Less than the deadline.
    pub renew_period: Duration,
    /// How long to wait after an attempt that failed.
    pub retry_period: Duration,
    /// How long a Lease of another holder may last at most, whatever it says itself.
    pub believed: Duration,
}

/// What one attempt to hold the Lease came to.
#[derive(Debug)]
pub enum Attempt {
    /// It is held now.
    Won(Box<Leadership>),
    /// Somebody else holds it.
    Held(Holder),
    /// Somebody else wrote it at the same moment.
    Raced,
}

/// Who holds a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// What it calls itself.
    pub identity: String,
    /// Since when, by its own clock.
    pub since: Option<Timestamp>,
    /// Whether the Lease was written by its holder while we looked on.
    pub alive: bool,
}

/// What a candidate saw of the Lease so far.
#[derive(Debug, Default)]
pub struct Sightings {
    last: Option<Sighting>,
    alive: bool,
}

/// Proof of leadership, kept by renewing the Lease.
#[derive(Debug)]
pub struct Leadership {
    candidate: Candidate,
    lease: Lease,
    renewed: watch::Sender<Renewed>,
    /// False after an attempt to renew that failed.
    renewing: bool,
}

/// When a Lease was last renewed, for whoever works under it.
#[derive(Clone, Debug)]
pub struct Renewals {
    last: watch::Receiver<Renewed>,
    deadline: Duration,
}

/// A moment, by both clocks of the machine: the first stands still while the machine sleeps, the second may be set.
#[derive(Clone, Copy, Debug)]
struct Renewed {
    at: Instant,
    wall: SystemTime,
}

/// What a candidate last saw of a held Lease, and when it saw that for the first time.
#[derive(Debug)]
struct Sighting {
    version: Option<String>,
    since: Instant,
}

// === impl Candidate ===

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate")
            .field("name", &self.name)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Candidate {
    /// A candidate with the flags given, else with the defaults of the component.
    pub fn new(client: Client, args: &LeaseArgs, name: &str, namespace: &str) -> Result<Self, InvalidLease> {
        let (duration, deadline, retry) = (args.lease_duration, args.lease_renew_deadline, args.lease_retry_period);
        if duration <= deadline + retry || deadline <= retry {
            return Err(InvalidLease {
                duration,
                deadline,
                retry,
            });
        }
        let retry_period = Duration::from_secs(retry.into());
        let pace = Pace {
            duration: Duration::from_secs(duration.into()),
            renew_deadline: Duration::from_secs(deadline.into()),
            renew_period: retry_period,
            retry_period,
            believed: Duration::MAX,
        };
        let namespace = args.lease_namespace.as_deref().unwrap_or(namespace);
        let name = args.lease_name.as_deref().unwrap_or(name);
        // Two processes with one name (a restart on the same host) are still two.
        let identity = format!("{}_{:016x}", identity(args), rand::random::<u64>());
        Ok(Self::with(client, namespace, name, identity, pace))
    }

    /// A candidate whose identity no other process has.
    pub fn with(client: Client, namespace: &str, name: &str, identity: String, pace: Pace) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity,
            duration: pace.duration,
            renew_deadline: pace.renew_deadline,
            renew_period: pace.renew_period,
            retry_period: pace.retry_period,
            believed: pace.believed,
        }
    }

    /// Waits until this candidate leads.
    pub async fn elected(self) -> Leadership {
        let mut sightings = Sightings::default();
        loop {
            match timeout(self.retry_period, self.attempt(&mut sightings)).await {
                Ok(Ok(Attempt::Won(leadership))) => {
                    tracing::info!(lease = self.name, identity = self.identity, "leading");
                    return *leadership;
                }
                Ok(Ok(Attempt::Held(_) | Attempt::Raced)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.name, error = %errors::explain(&error), "cannot take part in the election");
                }
                Err(_) => tracing::warn!(lease = self.name, "the API server does not answer; not elected yet"),
            }
            sleep(self.retry_period.mul_f64(0.8 + rand::random::<f64>() * 0.4)).await;
        }
    }

    /// Takes the Lease if it is free, or if nothing was heard of its holder for so long that it cannot work any more. All
    /// attempts of one candidate share their `sightings`.
    pub async fn attempt(&self, sightings: &mut Sightings) -> Result<Attempt, kube::Error> {
        // Counted from before the request: the Lease may be written as early as that.
        let renewed = Renewed::now();
        let held = self.api.get_opt(&self.name).await?;
        if let Some(holder) = held.as_ref().and_then(|held| self.other(held, sightings)) {
            return Ok(Attempt::Held(holder));
        }
        match self.write(&self.claim(held)).await {
            Ok(lease) => Ok(Attempt::Won(Box::new(Leadership {
                candidate: self.clone(),
                lease,
                renewed: watch::Sender::new(renewed),
                renewing: true,
            }))),
            Err(error) if errors::code(&error) == Some(409) => Ok(Attempt::Raced),
            Err(error) => Err(error),
        }
    }

    /// Who else holds the Lease, as far as it is known to live.
    fn other(&self, held: &Lease, sightings: &mut Sightings) -> Option<Holder> {
        let spec = held.spec.as_ref()?;
        let identity = spec.holder_identity.as_deref().unwrap_or_default();
        // Our own name: the answer to an earlier attempt was lost.
        if identity.is_empty() || identity == self.identity {
            sightings.last = None;
            return None;
        }
        let version = &held.metadata.resource_version;
        let seen = sightings.last.as_ref();
        if seen.is_none_or(|seen| seen.version != *version) {
            sightings.alive |= seen.is_some();
            sightings.last = Some(Sighting {
                version: version.clone(),
                since: Instant::now(),
            });
        }
        // The holder's own promise counts where it is longer than ours.
        let promised = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
        let promised = Duration::from_secs(promised).min(self.believed);
        let patience = self.duration.max(promised);
        let silent = sightings
            .last
            .as_ref()
            .is_some_and(|seen| seen.since.elapsed() >= patience);
        (!silent).then(|| Holder {
            identity: identity.to_owned(),
            since: spec.acquire_time.as_ref().map(|time| time.0),
            alive: sightings.alive,
        })
    }

    /// The Lease with us as its holder.
    fn claim(&self, held: Option<Lease>) -> Lease {
        let mut lease = held.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        lease.metadata.managed_fields = None;
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        let now = Some(MicroTime(Timestamp::now()));
        if spec.holder_identity.as_ref() != Some(&self.identity) {
            spec.holder_identity = Some(self.identity.clone());
            spec.acquire_time.clone_from(&now);
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        spec.lease_duration_seconds = i32::try_from(self.duration.as_secs()).ok();
        spec.renew_time = now;
        lease
    }

    async fn write(&self, lease: &Lease) -> Result<Lease, kube::Error> {
        let params = PostParams::default();
        if lease.metadata.resource_version.is_some() {
            self.api.replace(&self.name, &params, lease).await
        } else {
            self.api.create(&params, lease).await
        }
    }
}

fn identity(args: &LeaseArgs) -> &str {
    args.lease_identity.as_deref().unwrap_or("replica")
}

// === impl Leadership ===

impl Leadership {
    /// Renews until that fails for too long, or another holds the Lease. The caller then stops all work at once.
    pub async fn lost(&mut self) {
        loop {
            let left = self.candidate.renew_deadline.saturating_sub(self.since_renewal());
            let pause = if self.renewing {
                self.candidate.renew_period
            } else {
                self.candidate.retry_period
            };
            sleep(pause.min(left)).await;
            self.renewing = false;
            let before = Renewed::now();
            let wanted = self.candidate.claim(Some(self.lease.clone()));
            let left = self.candidate.renew_deadline.saturating_sub(self.since_renewal());
            match timeout(
                left.min(self.candidate.renew_deadline / 2),
                self.candidate.write(&wanted),
            )
            .await
            {
                Ok(Ok(lease)) => {
                    self.lease = lease;
                    self.renewed.send_replace(before);
                    self.renewing = true;
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
            if self.since_renewal() >= self.candidate.renew_deadline {
                tracing::error!(lease = self.candidate.name, "leadership lost: not renewed in time");
                return;
            }
        }
    }

    fn since_renewal(&self) -> Duration {
        self.renewed.borrow().at.elapsed()
    }

    /// When the Lease was last renewed, to be asked while [`Leadership::lost`] is waited for elsewhere.
    pub fn renewals(&self) -> Renewals {
        Renewals {
            last: self.renewed.subscribe(),
            deadline: self.candidate.renew_deadline,
        }
    }

    /// After a conflict: true while the Lease is still ours, as after an answer that was lost.
    async fn reread(&mut self) -> bool {
        let read = timeout(
            self.candidate.retry_period,
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
        }
        ours
    }

    /// Gives the Lease back, so that a successor need not wait. Call when all work has stopped.
    pub async fn release(self) {
        let mut lease = self.lease;
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = None;
        }
        lease.metadata.managed_fields = None;
        let _ = timeout(self.candidate.retry_period, self.candidate.write(&lease)).await;
    }

    /// Deletes the Lease, so that nothing is left of it. Call when all work has stopped. A Lease that went to somebody else
    /// meanwhile stays.
    pub async fn end(mut self) -> Result<(), kube::Error> {
        match self.delete().await {
            // Written since we last saw it: perhaps by ourselves, with an answer that was lost.
            Err(error) if errors::code(&error) == Some(409) => {
                if self.reread().await {
                    self.delete().await
                } else {
                    Ok(())
                }
            }
            deleted => deleted,
        }
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
    /// Whether the last renewal is so long ago that another may hold the Lease: true at once in a process that was stopped
    /// for a while, or whose machine slept.
    pub fn is_overdue(&self) -> bool {
        let last = *self.last.borrow();
        let slept = last.wall.elapsed().is_ok_and(|elapsed| elapsed >= self.deadline);
        slept || last.at.elapsed() >= self.deadline
    }
}

// === impl Renewed ===

impl Renewed {
    fn now() -> Self {
        Self {
            at: Instant::now(),
            wall: SystemTime::now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn flags_that_could_make_two_lead_are_refused() {
        let client = Client::new(
            tower::service_fn(|_: http::Request<kube::client::Body>| async {
                Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("nowhere"))
            }),
            "default",
        );
        for (duration, deadline, retry, fine) in [
            (15, 10, 2, true),
            (5, 3, 1, true),
            (15, 14, 2, false),
            (15, 10, 60, false),
            (15, 2, 2, false),
        ] {
            let args = LeaseArgs {
                lease_name: None,
                lease_namespace: None,
                lease_identity: None,
                lease_duration: duration,
                lease_renew_deadline: deadline,
                lease_retry_period: retry,
            };
            assert_eq!(
                Candidate::new(client.clone(), &args, "a", "b").is_ok(),
                fine,
                "{args:?}"
            );
        }
    }
}
