//! Leader election by a Lease: of several replicas one works, and another takes over when it is gone.
//!
//! Who waits compares times that it measured itself, never the time written in the Lease, so clocks may differ by any
//! amount. Who leads stops on its own before anybody else may start: the process is expected to end when
//! [`Leadership::lost`] returns.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, Client, api::ObjectMeta, api::PostParams};
use tokio::time::{Instant, sleep, timeout};

use crate::errors;

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
    retry_period: Duration,
}

/// Proof of leadership, kept by renewing the Lease.
#[derive(Debug)]
pub struct Leadership {
    candidate: Candidate,
    lease: Lease,
    renewed: Instant,
}

/// What a candidate last saw of the Lease, and when it saw that for the first time.
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
        let namespace = args.lease_namespace.as_deref().unwrap_or(namespace);
        Ok(Self {
            api: Api::namespaced(client, namespace),
            name: args.lease_name.clone().unwrap_or_else(|| name.to_owned()),
            // Two processes with one name (a restart on the same host) are still two.
            identity: format!("{}_{:016x}", identity(args), rand::random::<u64>()),
            duration: Duration::from_secs(duration.into()),
            renew_deadline: Duration::from_secs(deadline.into()),
            retry_period: Duration::from_secs(retry.into()),
        })
    }

    /// Waits until this candidate leads.
    pub async fn elected(self) -> Leadership {
        let mut sighting: Option<Sighting> = None;
        loop {
            // Counted from before the request: the Lease may have been written as early as that.
            let before = Instant::now();
            match timeout(self.retry_period, self.attempt(&mut sighting)).await {
                Ok(Ok(Some(lease))) => {
                    tracing::info!(lease = self.name, identity = self.identity, "leading");
                    return Leadership {
                        candidate: self,
                        lease,
                        renewed: before,
                    };
                }
                Ok(Ok(None)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.name, error = %errors::explain(&error), "cannot take part in the election");
                }
                Err(_) => tracing::warn!(lease = self.name, "the API server does not answer; not elected yet"),
            }
            sleep(self.retry_period.mul_f64(0.8 + rand::random::<f64>() * 0.4)).await;
        }
    }

    async fn attempt(&self, sighting: &mut Option<Sighting>) -> Result<Option<Lease>, kube::Error> {
        let wanted = match self.api.get_opt(&self.name).await? {
            None => self.claim(None),
            Some(held) => {
                let version = held.metadata.resource_version.clone();
                if sighting.as_ref().is_none_or(|seen| seen.version != version) {
                    *sighting = Some(Sighting {
                        version,
                        since: Instant::now(),
                    });
                }
                let spec = held.spec.as_ref();
                let free = spec
                    .and_then(|spec| spec.holder_identity.as_deref())
                    .unwrap_or_default()
                    .is_empty();
                // The holder's own promise counts where it is longer than ours.
                let promised = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
                let patience = self
                    .duration
                    .max(Duration::from_secs(u64::try_from(promised).unwrap_or(0)));
                if !free && sighting.as_ref().is_some_and(|seen| seen.since.elapsed() < patience) {
                    return Ok(None);
                }
                self.claim(Some(held))
            }
        };
        match self.write(&wanted).await {
            Err(error) if errors::code(&error) == Some(409) => Ok(None),
            written => written.map(Some),
        }
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
            let left = self.candidate.renew_deadline.saturating_sub(self.renewed.elapsed());
            sleep(self.candidate.retry_period.min(left)).await;
            let before = Instant::now();
            let wanted = self.candidate.claim(Some(self.lease.clone()));
            let left = self.candidate.renew_deadline.saturating_sub(self.renewed.elapsed());
            match timeout(
                left.min(self.candidate.renew_deadline / 2),
                self.candidate.write(&wanted),
            )
            .await
            {
                Ok(Ok(lease)) => {
                    self.lease = lease;
                    self.renewed = before;
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
            if self.renewed.elapsed() >= self.candidate.renew_deadline {
                tracing::error!(lease = self.candidate.name, "leadership lost: not renewed in time");
                return;
            }
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
