//! No spec of a bound object is rewound: an older state of a source never replaces a newer one in its copy.

use std::collections::BTreeMap;

use super::{Account, Clusters, Invariant, Seen, Violation, contracts::Contracts, marks, rewinds::Rewinds};
use crate::{topology::Cluster, users::Circumstance};

/// The newest state of each source that reached a provider, and when its request was sent.
#[derive(Debug, Default)]
pub(super) struct Specs {
    newest: BTreeMap<(Cluster, String), (u64, u64)>,
}

impl Specs {
    /// Checks a write on a provider.
    pub(super) fn check<C: Clusters>(
        &mut self,
        seen: &Seen<'_, C>,
        contracts: &mut Contracts,
        rewinds: &Rewinds,
    ) -> Option<Violation> {
        let after = seen.written.change.after.as_deref()?;
        let copy = marks::copy_on_provider(after).filter(|copy| !copy.claimed)?;
        let serial = marks::serial(after)?;
        if !matches!(seen.account, Account::Contract(_)) {
            return None;
        }
        let newest = self
            .newest
            .entry((seen.written.on, copy.source.to_owned()))
            .or_default();
        let (before, before_sent) = std::mem::replace(newest, (serial, seen.written.sent));
        if serial >= before {
            return None;
        }
        let provider = seen.provider();
        let consumer = contracts.consumer(seen.clusters, provider?, copy.contract);
        let message = format!("state {serial} of its source replaced state {before}");
        let mut violation = seen.violation(Invariant::SpecRewound, (consumer, provider), &message);
        if seen.written.sent < before_sent {
            violation.circumstances.insert(Circumstance::RequestOvertaken);
        }
        let (on, key) = (seen.written.on, &seen.written.change.key);
        let of_copy = rewinds.of_copy(on, key, marks::uid(after));
        let of_source = consumer.map(|consumer| rewinds.of_source(Cluster::Consumer(consumer), copy.source));
        violation
            .circumstances
            .extend(of_source.into_iter().flatten().chain(of_copy));
        if seen.is_by_clone() {
            violation.circumstances.insert(Circumstance::WriterIsClone);
        }
        Some(violation)
    }

    /// Forgets what a provider had, since it went back in time.
    pub(super) fn forget(&mut self, provider: Cluster) {
        self.newest.retain(|(on, _), _| *on != provider);
    }
}
