//! Reads a Lease, and watches one that looks old until it would expire.

use std::time::Duration;

use bindery_runtime::client::Clients;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::time::{Instant, sleep};

use super::read;
use crate::check::facts::{Fact, LeaseFacts};

/// The pause between two reads of a Lease that looks old.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a Lease is watched beyond its duration.
const MARGIN: Duration = Duration::from_secs(3);
/// How long a Lease without a holder is watched: a candidate takes it within a few seconds.
const FREE_MAX: Duration = Duration::from_secs(6);
/// The longest duration that is believed; a longer one is cut to this.
const DURATION_MAX: Duration = Duration::from_mins(1);

/// Reads a Lease; `ahead` is how far this machine's clock is ahead of the API server's.
pub(super) async fn facts(
    clients: &Clients,
    (namespace, name): (&str, &str),
    ahead: SignedDuration,
    limit: Duration,
) -> Fact<Option<LeaseFacts>> {
    let leases: Api<Lease> = Api::namespaced(clients.lease.clone(), namespace);
    let start = Instant::now();
    let Some(first) = read::fact(limit, leases.get_opt(name)).await? else {
        return Ok(None);
    };
    let mut facts = of(&first, ahead);
    if is_fresh(&facts) {
        return Ok(Some(facts));
    }
    let patience = match &facts.holder {
        Some(_) => facts.duration.min(DURATION_MAX) + MARGIN,
        None => FREE_MAX,
    };
    while start.elapsed() < patience {
        sleep(PAUSE).await;
        let Some(lease) = read::fact(limit, leases.get_opt(name)).await? else {
            return Ok(None);
        };
        let is_renewed = lease.metadata.resource_version != first.metadata.resource_version;
        facts = LeaseFacts {
            seen_renewed: Some(is_renewed),
            watched: start.elapsed(),
            ..of(&lease, ahead)
        };
        if is_renewed && facts.holder.is_some() {
            break;
        }
    }
    Ok(Some(facts))
}

/// Whether the Lease was renewed so lately that it need not be watched.
fn is_fresh(facts: &LeaseFacts) -> bool {
    let age = facts.renewed.map(|renewed| facts.read_at.duration_since(renewed));
    let duration = SignedDuration::try_from(facts.duration).unwrap_or_default();
    facts.holder.is_some() && age.is_some_and(|age| age.abs() < duration)
}

fn of(lease: &Lease, ahead: SignedDuration) -> LeaseFacts {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    LeaseFacts {
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        renewed: spec.renew_time.map(|time| time.0),
        duration: Duration::from_secs(seconds.unwrap_or_default()),
        read_at: Timestamp::now() - ahead,
        seen_renewed: None,
        watched: Duration::ZERO,
    }
}
