//! Nothing of an object that the user paused is copied.

use std::collections::BTreeMap;

use bindery_api::annotations;

use super::{Account, Clusters, Invariant, Seen, Violation, contracts::Contracts, marks};
use crate::{faults::ProcessName, topology::Cluster};

/// The objects that are paused, with the serial number that each had when the user paused it.
#[derive(Debug, Default)]
pub(super) struct Paused {
    serials: BTreeMap<(Cluster, String), u64>,
}

impl Paused {
    /// Notes a write on a consumer.
    pub(super) fn note<C: Clusters>(&mut self, seen: &Seen<'_, C>) {
        let (on, change) = (seen.written.on, seen.written.change);
        let Some(object) = change.after.as_deref().or(change.before.as_deref()) else {
            return;
        };
        let key = (on, marks::uid(object).to_owned());
        let is_paused = marks::annotation(object, annotations::PAUSED) == Some(annotations::TRUE);
        match marks::serial(object).filter(|_| is_paused && change.after.is_some()) {
            Some(serial) => {
                self.serials.entry(key).or_insert(serial);
            }
            None => {
                self.serials.remove(&key);
            }
        }
    }

    /// Checks a write on a provider. A konnector may be late, but it never saw a later content without the annotation.
    pub(super) fn check<C: Clusters>(&self, seen: &Seen<'_, C>, contracts: &mut Contracts) -> Option<Violation> {
        let Account::Contract(_) = seen.account else {
            return None;
        };
        let after = seen.written.change.after.as_deref()?;
        let (copy, serial) = (marks::copy_on_provider(after)?, marks::serial(after)?);
        let provider = seen.provider();
        let consumer = contracts.consumer(seen.clusters, provider?, copy.contract)?;
        // The clone of a consumer has its own object of that UID.
        let of = match seen.written.process {
            Some(ProcessName::Konnector { of, .. }) => of,
            _ => Cluster::Consumer(consumer),
        };
        let paused = *self.serials.get(&(of, copy.source.to_owned()))?;
        if serial <= paused {
            return None;
        }
        let message = format!("state {serial} of its source was copied, which was paused in state {paused}");
        Some(seen.violation(Invariant::PausedObjectWritten, (Some(consumer), provider), &message))
    }

    /// Forgets what was paused on a cluster that went back in time.
    pub(super) fn forget(&mut self, on: Cluster) {
        self.serials.retain(|(of, _), _| *of != on);
    }
}
