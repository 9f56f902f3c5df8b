//! No write of a process stands that does not hold the contract: a former leader, or the konnector of a clone.

use std::collections::{BTreeMap, VecDeque};

use bindery_api::{
    annotations,
    holder::{HELD, HolderChain, HolderRecord},
    names,
};
use bindery_simulator_apiserver::{Change, ObjectKey};
use serde_json::Value;

use super::{Account, Clusters, Invariant, Seen, Violation, contracts::Contracts, leftovers::RIGHTS, marks};
use crate::{
    faults::ProcessName,
    topology::{Cluster, provider_of_group},
    users::Circumstance,
};

/// Who held the Lease of each consumer's konnector and of each provider's server, and since when.
#[derive(Debug, Default)]
pub(super) struct Holders {
    leases: BTreeMap<Cluster, VecDeque<(u64, Option<ProcessName>)>>,
    /// Who held the Lease of a cluster when a restore took it back, and until when that process may go on without knowing.
    unaware: BTreeMap<Cluster, (ProcessName, u64)>,
    /// The contracts that konnectors of second clusters took, each by the cluster and the provider.
    taken: BTreeMap<(Cluster, Cluster), Taken>,
    /// When each incarnation of a process sent its first write, in milliseconds.
    started: BTreeMap<(ProcessName, u32), u64>,
}

/// A contract that the konnector of a second cluster took by its record on the provider.
#[derive(Debug)]
struct Taken {
    /// The last time at which the konnector may send a write; `None` while its record stands.
    until: Option<u64>,
}

/// The record of a contract's holder on a provider.
#[derive(Debug, PartialEq, Eq)]
struct HeldRecord {
    record: HolderRecord,
    is_contested: bool,
}

/// How many holders of a Lease are remembered.
const REMEMBERED: usize = 8;
/// A leader has learned within this time that a restore took its Lease back: it renews the Lease before. In milliseconds.
const RENEW_DEADLINE: u64 = 10_000;
/// The konnector of a second cluster stops within this time after another one contests the contract, or was accepted: no disturbance of
/// its watch lasts longer. In milliseconds.
const STOPPED: u64 = 120_000;

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
        if let Some(violation) = self.record_written(seen, contracts) {
            return Some(violation);
        }
        let process = written.process?;
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
        if let (Cluster::Clone(_), Cluster::Provider(_)) = (of, written.on)
            && !self.may_write(of, written.on, written.sent)
        {
            let message = "the konnector of a restored second cluster wrote, and does not hold the contract";
            return Some(by_clone(seen, (consumer, provider), message));
        }
        let (since, holder) = self.holder_at(of, written.sent)?;
        let holder = holder.filter(|holder| *holder != process)?;
        if self
            .unaware
            .get(&of)
            .is_some_and(|(name, until)| *name == process && written.sent <= *until)
        {
            return None;
        }
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

    /// Notes who holds a contract by the record on its provider. A clone may take a contract only from the last step that its own Lease
    /// records, as a backup from within one heartbeat has it, and not from one that is contested: its user accepts nothing.
    fn record_written<C: Clusters>(&mut self, seen: &Seen<'_, C>, contracts: &mut Contracts) -> Option<Violation> {
        let (written, change) = (seen.written, seen.written.change);
        if change.key.resource != "clusterbindings" {
            return None;
        }
        let [before, after] = [&change.before, &change.after].map(|object| held_record(object.as_deref()));
        if before == after {
            return None;
        }
        let provider = seen.provider()?;
        let contract = &change.key.namespace;
        let consumer = contracts.consumer(seen.clusters, provider, contract)?;
        let clone = Cluster::Clone(consumer);
        let is_by_clone = matches!(written.process, Some(ProcessName::Konnector { of, .. }) if of == clone);
        let is_contested = after.as_ref().is_some_and(|after| after.is_contested);
        if !is_by_clone || is_contested {
            self.stops(clone, Some(written.on), written.at + STOPPED);
            return None;
        }
        // Without a record the clone gives the contract up.
        after?;
        self.taken.insert((clone, written.on), Taken { until: None });
        let is_next = match &before {
            Some(before) => {
                !before.is_contested && chains(seen, clone).any(|(_, chain)| chain.contains(Some(&before.record)))
            }
            None => chains(seen, clone)
                .filter(|(uid, _)| is_contract(seen, contract, uid))
                .all(|(_, chain)| chain.contains(None)),
        };
        // A request that is late may come when the Lease has gone on, or when another clone runs.
        if is_next || written.is_disturbed {
            return None;
        }
        let message =
            "the konnector of a restored second cluster took the contract, and its Lease has not the last step of it";
        Some(by_clone(seen, (Some(consumer), Some(provider)), message))
    }

    /// Notes that a clone sends no write to a provider after a time, or to none of them.
    fn stops(&mut self, clone: Cluster, provider: Option<Cluster>, at: u64) {
        for ((of, on), taken) in &mut self.taken {
            if *of == clone && provider.is_none_or(|provider| provider == *on) {
                taken.until = Some(taken.until.map_or(at, |until| until.min(at)));
            }
        }
    }

    /// Whether the konnector of a clone may have sent a write to a provider at a time.
    fn may_write(&self, clone: Cluster, provider: Cluster, sent: u64) -> bool {
        let taken = self.taken.get(&(clone, provider));
        taken.is_some_and(|taken| taken.until.is_none_or(|until| sent <= until))
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

    /// Forgets who held the Lease of a cluster that went back in time. The holder may not know yet, while another process finds the Lease
    /// as it was before. A clone is another one from then on, and what the former one sent
    /// was sent by `now`, the time of the last write.
    pub(super) fn forget(&mut self, cluster: Cluster, now: u64) {
        let holders = self.leases.remove(&cluster);
        if let Some((_, Some(holder))) = holders.as_ref().and_then(VecDeque::back) {
            self.unaware.insert(cluster, (*holder, now + RENEW_DEADLINE));
        }
        self.stops(cluster, None, now);
    }
}

/// The violation that a write of the konnector of a clone is.
fn by_clone<C: Clusters>(seen: &Seen<'_, C>, relation: (Option<u8>, Option<u8>), message: &str) -> Violation {
    let mut violation = seen.violation(Invariant::WriteByClone, relation, message);
    violation.circumstances.insert(Circumstance::WriterIsClone);
    violation
}

/// The holder that a ClusterBinding records.
fn held_record(binding: Option<&Value>) -> Option<HeldRecord> {
    let conditions = binding?["status"]["conditions"].as_array()?;
    let held = conditions.iter().find(|condition| condition["type"] == HELD)?;
    let record = held["message"].as_str()?.rsplit(' ').next()?;
    Some(HeldRecord {
        record: record.parse().ok()?,
        is_contested: held["status"] != "True",
    })
}

/// What the Lease of a cluster's konnectors records, by UID of the contract.
fn chains<C: Clusters>(seen: &Seen<'_, C>, cluster: Cluster) -> impl Iterator<Item = (String, HolderChain)> {
    let lease = ObjectKey::new(
        "coordination.k8s.io",
        "leases",
        names::KUBE_BIND_NAMESPACE,
        names::KONNECTOR_LEASE,
    );
    let lease = seen.clusters.object(cluster, &lease);
    let notes = lease.and_then(|lease| lease["metadata"]["annotations"].as_object().cloned());
    notes.into_iter().flatten().filter_map(|(key, text)| {
        let uid = key.strip_prefix(annotations::HOLDER)?.strip_prefix('/')?;
        Some((
            uid.to_owned(),
            serde_json::from_str::<HolderChain>(text.as_str()?).ok()?,
        ))
    })
}

/// Whether a contract of the provider has this UID.
fn is_contract<C: Clusters>(seen: &Seen<'_, C>, contract: &str, uid: &str) -> bool {
    let namespace = ObjectKey::new("", "namespaces", "", contract);
    let namespace = seen.clusters.object(seen.written.on, &namespace);
    namespace.is_some_and(|namespace| marks::uid(&namespace) == uid)
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
