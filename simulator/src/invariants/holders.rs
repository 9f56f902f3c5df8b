//! No write of a process stands that does not hold the contract: a former leader, or the konnector of a clone.

use std::collections::{BTreeMap, VecDeque};

use bindery_api::names;

use super::{Account, Clusters, Invariant, Seen, Violation, contracts::Contracts, marks};
use crate::{
    faults::ProcessName,
    topology::{Cluster, provider_of_group},
    users::Circumstance,
};

/// Who held the Lease of each cluster's konnector, and since when.
#[derive(Debug, Default)]
pub(super) struct Holders {
    leases: BTreeMap<Cluster, VecDeque<(u64, Option<ProcessName>)>>,
    /// When each incarnation of a process sent its first write, in milliseconds.
    started: BTreeMap<(ProcessName, u32), u64>,
}

/// How many holders of a Lease are remembered.
const REMEMBERED: usize = 8;

impl Holders {
    /// Checks a write of a konnector.
    pub(super) fn check<C: Clusters>(&mut self, seen: &Seen<'_, C>, contracts: &mut Contracts) -> Option<Violation> {
        let written = seen.written;
        let key = &written.change.key;
        let started = self.note_start(seen);
        if key.resource == "leases" {
            if key.name == names::KONNECTOR_LEASE {
                self.lease_written(seen);
            }
            return None;
        }
        let process @ ProcessName::Konnector { of, .. } = written.process? else {
            return None;
        };
        // Only objects count: a heartbeat and an event change no object of a user.
        let object = written.change.after.as_deref().or(written.change.before.as_deref())?;
        let is_copy = marks::copy_on_provider(object).is_some() || marks::is_copy_on_consumer(object);
        let is_object = provider_of_group(&key.group).is_some() || is_copy;
        if !is_object || !matches!(seen.account, Account::Contract(_) | Account::Konnector) {
            return None;
        }
        let (consumer, provider) = match seen.account {
            Account::Contract(contract) => {
                let provider = seen.provider();
                (contracts.consumer(seen.clusters, provider?, contract), provider)
            }
            _ => (of.consumer(), provider_of_group(&key.group)),
        };
        if let (Cluster::Clone(_), Cluster::Provider(_)) = (of, written.on) {
            let message = "the konnector of a restored second cluster wrote".to_owned();
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
