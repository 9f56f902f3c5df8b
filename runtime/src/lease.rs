//! Leader election by a Lease: one of several replicas works, and another takes over when its leader is gone.
//!
//! A candidate measures with its own clock how long the Lease has not changed, and ignores the times written in it, so clocks may
//! differ by any amount. A leader stops before another replica may start: the process has to end when [`Leadership::lost`]
//! returns.
//!
//! A Lease may also guard one piece of work that ends: the worker repeats [`Candidate::attempt`], which names the other holder,
//! and deletes the Lease with [`Leadership::end`].

mod leadership;
mod notes;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::leadership::RenewalTime;
use crate::errors;

pub use self::{
    leadership::{Leadership, Renewals},
    notes::LeaseNotes,
};

/// Flags for leader election. Names and defaults are those that Kubernetes components use.
#[derive(Clone, Debug, clap::Args)]
pub struct LeaseArgs {
    /// Name of the Lease that replicas compete for.
    #[arg(long)]
    pub lease_name: Option<String>,
    /// Namespace of that Lease; where the process runs, if not given.
    #[arg(long, env = "POD_NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// Name of this replica; a random one if not given.
    #[arg(long, env = "POD_NAME", hide = true)]
    pub lease_identity: Option<String>,
    /// How long a leader that does not renew the Lease still leads, in seconds.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(2..=600))]
    pub lease_duration: u32,
    /// How long a leader tries to renew before it gives up, in seconds. Less than the duration.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=599))]
    pub lease_renew_deadline: u32,
    /// How long to wait between attempts, in seconds.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub lease_retry_period: u32,
}

/// The flags could make two replicas lead at the same time.
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

/// A replica that competes for a Lease.
#[derive(Clone)]
pub struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
    timing: LeaseTiming,
}

/// How long a Lease lasts, and when its holder renews it.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTiming {
    /// How long a holder that does not renew the Lease still holds it.
    pub duration: Duration,
    /// How long a holder tries to renew the Lease before it gives up; less than `duration`.
    pub renew_deadline: Duration,
    /// Pause between two renewals; less than `renew_deadline`.
    pub renew_period: Duration,
    /// Pause after a failed attempt to acquire or renew.
    pub retry_period: Duration,
    /// Limit on the duration that another holder wrote into the Lease; a longer one is cut to this.
    pub foreign_duration_max: Duration,
}

/// Result of one attempt to acquire the Lease.
#[derive(Debug)]
pub enum LeaseAttempt {
    /// This candidate holds the Lease now.
    Won(Box<Leadership>),
    /// Another candidate holds the Lease.
    Held(LeaseHolder),
    /// Another candidate wrote the Lease at the same moment.
    Raced,
}

/// The other holder of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseHolder {
    /// The identity that it wrote into the Lease.
    pub identity: String,
    /// When it acquired the Lease, by its own clock.
    pub since: Option<Timestamp>,
    /// Whether the holder renewed the Lease between two attempts of this candidate.
    pub alive: bool,
}

/// What a candidate observed of the Lease in its attempts so far.
#[derive(Debug, Default)]
pub struct LeaseObservations {
    last: Option<LeaseVersion>,
    alive: bool,
}

/// A version of a held Lease, and when the candidate saw it first.
#[derive(Debug)]
struct LeaseVersion {
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
    /// Makes a candidate from flags. `name` and `namespace` are those of the Lease if the flags do not say.
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
        let timing = LeaseTiming {
            duration: Duration::from_secs(duration.into()),
            renew_deadline: Duration::from_secs(deadline.into()),
            renew_period: retry_period,
            retry_period,
            foreign_duration_max: Duration::MAX,
        };
        let namespace = args.lease_namespace.as_deref().unwrap_or(namespace);
        let name = args.lease_name.as_deref().unwrap_or(name);
        // Two processes with one name (a restart on the same host) are still two.
        let identity = format!("{}_{:016x}", identity(args), rand::random::<u64>());
        Ok(Self::with(client, namespace, name, identity, timing))
    }

    /// Makes a candidate. Its identity must be unique among all processes.
    pub fn with(client: Client, namespace: &str, name: &str, identity: String, timing: LeaseTiming) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity,
            timing,
        }
    }

    /// Repeats attempts until this candidate leads, or until `stop`: then it returns None and holds no Lease. Failures are logged.
    ///
    /// An attempt is never given up halfway for `stop`: the API server might have taken it, and a Lease of a process that is gone
    /// keeps every successor waiting for as long as it lasts.
    pub async fn elected(self, stop: &CancellationToken) -> Option<Leadership> {
        let mut observations = LeaseObservations::default();
        while !stop.is_cancelled() {
            match timeout(self.timing.retry_period, self.attempt(&mut observations)).await {
                Ok(Ok(LeaseAttempt::Won(leadership))) if stop.is_cancelled() => leadership.release().await,
                Ok(Ok(LeaseAttempt::Won(leadership))) => {
                    tracing::info!(lease = self.name, identity = self.identity, "leading");
                    return Some(*leadership);
                }
                Ok(Ok(LeaseAttempt::Held(_) | LeaseAttempt::Raced)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.name, error = %errors::explain(&error), "cannot take part in the election");
                }
                Err(_) => tracing::warn!(lease = self.name, "the API server does not answer; not elected yet"),
            }
            let pause = self.timing.retry_period.mul_f64(0.8 + rand::random::<f64>() * 0.4);
            stop.run_until_cancelled(sleep(pause)).await;
        }
        None
    }

    /// Acquires the Lease if it is free, or if its holder has not renewed it for its duration. All attempts of one candidate
    /// share their `observations`.
    pub async fn attempt(&self, observations: &mut LeaseObservations) -> Result<LeaseAttempt, kube::Error> {
        // Counted from before the request: the Lease may be written as early as that.
        let renewed = RenewalTime::now();
        let held = self.api.get_opt(&self.name).await?;
        if let Some(holder) = held.as_ref().and_then(|held| self.other(held, observations)) {
            return Ok(LeaseAttempt::Held(holder));
        }
        match self.write(&self.claim(held)).await {
            Ok(lease) => {
                let leadership = Leadership::new(self.clone(), lease, renewed);
                Ok(LeaseAttempt::Won(Box::new(leadership)))
            }
            Err(error) if errors::code(&error) == Some(409) => Ok(LeaseAttempt::Raced),
            Err(error) => Err(error),
        }
    }

    /// Returns the other holder of the Lease, unless it has not renewed it for its duration.
    fn other(&self, held: &Lease, observations: &mut LeaseObservations) -> Option<LeaseHolder> {
        let spec = held.spec.as_ref()?;
        let identity = spec.holder_identity.as_deref().unwrap_or_default();
        // With this candidate's identity, the answer to an earlier attempt was lost.
        if identity.is_empty() || identity == self.identity {
            observations.last = None;
            return None;
        }
        let version = &held.metadata.resource_version;
        let seen = observations.last.as_ref();
        if seen.is_none_or(|seen| seen.version != *version) {
            observations.alive |= seen.is_some();
            observations.last = Some(LeaseVersion {
                version: version.clone(),
                since: Instant::now(),
            });
        }
        // The holder's own duration counts where it is longer than this candidate's.
        let promised = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
        let promised = Duration::from_secs(promised).min(self.timing.foreign_duration_max);
        let patience = self.timing.duration.max(promised);
        let silent = observations
            .last
            .as_ref()
            .is_some_and(|seen| seen.since.elapsed() >= patience);
        (!silent).then(|| LeaseHolder {
            identity: identity.to_owned(),
            since: spec.acquire_time.as_ref().map(|time| time.0),
            alive: observations.alive,
        })
    }

    /// Returns the Lease with this candidate as its holder, renewed now.
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
        spec.lease_duration_seconds = i32::try_from(self.timing.duration.as_secs()).ok();
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

#[cfg(test)]
mod tests;
