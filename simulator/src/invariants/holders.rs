//! No write of a process stands that does not hold the contract: a former leader, or the konnector of a clone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bindery_api::{holder::HELD, names};
use bindery_simulator_apiserver::Change;
use serde_json::Value;

use super::{Account, Clusters, Invariant, Seen, Violation, contracts::Contracts, leftovers::RIGHTS};
use crate::{
    faults::ProcessName,
    topology::{Cluster, provider_of_group},
    users::Circumstance,
};

/// Who held the Lease of each consumer's konnector and of each provider's server, and since when.
#[derive(Debug, Default)]
pub(super) struct Holders {
    leases: BTreeMap<Cluster, VecDeque<(u64, Option<ProcessName>)>>,
    /// The clusters whose konnectors have put their record as the holder of a contract on a provider.
    recorded: BTreeSet<(Cluster, Cluster)>,
    /// When each incarnation of a process sent its first write, in milliseconds.
    started: BTreeMap<(ProcessName, u32), u64>,
}

/// How many holders of a Lease are remembered.
const REMEMBERED: usize = 8;

impl Holders {
    /// Checks a write of a konnector or of a server.
    pub(super) fn check<C: Clusters>(&mut self, seen: &Seen<'_, C>, contracts: &mut Contracts) -> Option<Violation> {
        let written = seen.written;
        let key = &written.change.key;
        let started = self.note_start(seen);
        if key.resource == "leases" {
            if [names::KONNECTOR_LEASE, names::SERVER].contains(&key.name.as_str()) {
                self.lease_written(seen);
            }
            return None;
        }
        let process = written.process?;
        if let (ProcessName::Konnector { of, .. }, "clusterbindings") = (process, key.resource.as_str())
            && has_new_record(written.change)
        {
            self.recorded.insert((of, written.on));
        }
        let (of, is_of_leader) = match process {
            ProcessName::Konnector { of, .. } => (of, is_of_leading_konnector(written.change)),
            ProcessName::Server { provider, .. } => (Cluster::Provider(provider), is_of_leading_server(written.change)),
        };
        if !is_of_leader {
            return None;
        }
        let (consumer, provider) = match seen.account {
            Account::Contract(contract) => {
                let provider = seen.provider();
                (contracts.consumer(seen.clusters, provider?, contract), provider)
            }
            Account::Server => (None, seen.provider()),
            _ => (of.consumer(), provider_of_group(&key.group)),
        };
        // A clone from within one heartbeat takes the contract before anybody can tell it from its origin, and so does one that the user
        // accepts.
        let is_recorded = self.recorded.contains(&(of, written.on));
        if let (Cluster::Clone(_), Cluster::Provider(_), false) = (of, written.on, is_recorded) {
            let message = "the konnector of a restored second cluster wrote, and does not hold the contract".to_owned();
            let mut violation = seen.violation(Invariant::WriteByClone, (consumer, provider), &message);
            violation.circumstances.insert(Circumstance::WriterIsClone);
            return Some(violation);
        }
        let (since, holder) = self.holder_at(of, written.sent)?;
        let holder = holder.filter(|holder| *holder != process)?;
        let message = format!(
            "it had lost its Lease to {holder} {} ms before it sent the request",
            written.sent - since
        );
        let mut violation = seen.violation(Invariant::WriteByFormerLeader, (consumer, provider), &message);
        if seen.ledger.has_thawed(process, started, written.sent) {
            violation.circumstances.insert(Circumstance::LeaderFrozen);
        }
        Some(violation)
    }

    /// Notes a write of an incarnation of a process. Returns when it sent its first one.
    fn note_start<C: Clusters>(&mut self, seen: &Seen<'_, C>) -> u64 {
        let sent = seen.written.sent;
        let Some(process) = seen.written.process else {
            return sent;
        };
        let started = self.started.entry((process, seen.written.incarnation)).or_insert(sent);
        *started = (*started).min(sent);
        *started
    }

    fn lease_written<C: Clusters>(&mut self, seen: &Seen<'_, C>) {
        let after = seen.written.change.after.as_deref();
        let holds = after.is_some_and(|lease| {
            lease["spec"]["holderIdentity"]
                .as_str()
                .is_some_and(|name| !name.is_empty())
        });
        // Only the holder writes its Lease.
        let holder = seen.written.process.filter(|_| holds);
        let holders = self.leases.entry(seen.written.on).or_default();
        if holders.back().is_none_or(|(_, last)| *last != holder) {
            holders.push_back((seen.written.at, holder));
            if holders.len() > REMEMBERED {
                holders.pop_front();
            }
        }
    }

    /// Who held the Lease at a time, and since when.
    fn holder_at(&self, cluster: Cluster, at: u64) -> Option<(u64, Option<ProcessName>)> {
        self.leases
            .get(&cluster)?
            .iter()
            .rev()
            .find(|(since, _)| *since <= at)
            .copied()
    }

    /// Forgets who held the Lease of a cluster that went back in time.
    pub(super) fn forget(&mut self, cluster: Cluster) {
        self.leases.remove(&cluster);
    }
}

/// Whether a write of a ClusterBinding records a step of a holder.
fn has_new_record(change: &Change) -> bool {
    let record = |object: Option<&Value>| {
        let conditions = object?["status"]["conditions"].as_array()?;
        let held = conditions.iter().find(|condition| condition["type"] == HELD)?;
        (held["status"] == "True").then(|| held["message"].clone())
    };
    let after = record(change.after.as_deref());
    after.is_some() && after != record(change.before.as_deref())
}

/// Whether only the konnector that leads may send a write: each but events, heartbeats, and the CRDs of kube-bind, which each replica
/// installs when it starts.
fn is_of_leading_konnector(change: &Change) -> bool {
    match change.key.resource.as_str() {
        "events" => false,
        "customresourcedefinitions" => !change.key.name.ends_with(".kube-bind.io"),
        "clusterbindings" => !is_of_status(change),
        _ => true,
    }
}

/// Whether only the server that leads may send a write. Each replica answers calls, by which it writes requests, exports, credentials,
/// and marks of contract namespaces; all else is the work of controllers.
fn is_of_leading_server(change: &Change) -> bool {
    let resource = change.key.resource.as_str();
    match resource {
        "apiservicenamespaces" | "boundschemas" => true,
        "namespaces" => change.before.is_none() || change.after.is_none(),
        _ => RIGHTS.contains(&resource) || provider_of_group(&change.key.group).is_some(),
    }
}

/// Whether a write changes nothing but the status of an object.
fn is_of_status(change: &Change) -> bool {
    let (Some(before), Some(after)) = (&change.before, &change.after) else {
        return false;
    };
    let metadata = ["labels", "annotations", "finalizers", "deletionTimestamp"];
    before["spec"] == after["spec"]
        && metadata
            .iter()
            .all(|field| before["metadata"][*field] == after["metadata"][*field])
}
