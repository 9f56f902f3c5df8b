//! No spec of a bound object is rewound: an older state of a source never replaces a newer one in its copy.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Account, Clusters, Invariant, Seen, Violation, contracts::Contracts, marks, rewinds::Rewinds};
use crate::{faults::ProcessName, topology::Cluster, users::Circumstance};

/// A user ended the use of the API. If there is a binding, the user bound anew.
const UNBOUND: [Circumstance; 4] = [
    Circumstance::Unbound,
    Circumstance::UnboundDeleting,
    Circumstance::UnboundKeeping,
    Circumstance::UnboundByCall,
];

/// The state of each source that reached a provider last.
#[derive(Debug, Default)]
pub(super) struct Specs {
    newest: BTreeMap<(Cluster, String), SpecState>,
}

/// A state of a source in its copy.
#[derive(Clone, Copy, Debug, Default)]
struct SpecState {
    serial: u64,
    /// When the request was sent, in milliseconds.
    sent: u64,
    /// The process that sent the request, and how often it had been started.
    writer: Option<(ProcessName, u32)>,
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
        let (sent, incarnation) = (seen.written.sent, seen.written.incarnation);
        let writer = seen.written.process.map(|process| (process, incarnation));
        let before = std::mem::replace(newest, SpecState { serial, sent, writer });
        if serial >= before.serial {
            return None;
        }
        let keeps = |had: &Value| {
            let had_source = marks::copy_on_provider(had).map(|had| had.source);
            had_source == Some(copy.source) && marks::serial(had) == Some(serial)
        };
        if seen.written.change.before.as_deref().is_some_and(keeps) {
            // A write of marks leaves the state as it was. The write that brought the state was checked.
            *newest = before;
            return None;
        }
        let is_overtaken = sent < before.sent && (seen.written.is_disturbed || writer != before.writer);
        if is_overtaken && seen.written.change.before.is_none() {
            // A creation that arrives late, or a second time, when the copy is gone replaces nothing, and no precondition prevents it.
            *newest = before;
            return None;
        }
        if seen.is_by_clone() && seen.written.change.before.is_none() {
            // A clone that holds the contract makes a copy again that is gone, and so has no note of a later state. Whether it may write at
            // all is for another invariant.
            return None;
        }
        let provider = seen.provider();
        let consumer = contracts.consumer(seen.clusters, provider?, copy.contract);
        let is_revived = |consumer| rewinds.is_revived_since(Cluster::Consumer(consumer), copy.source, before.sent);
        if seen.written.change.before.is_none() && consumer.is_some_and(is_revived) {
            // A restore brought a source back whose copy had gone. A copy that is gone has no note of a later state.
            return None;
        }
        let message = format!("state {serial} of its source replaced state {}", before.serial);
        let mut violation = seen.violation(Invariant::SpecRewound, (consumer, provider), &message);
        if is_overtaken {
            violation.circumstances.insert(Circumstance::RequestOvertaken);
        }
        let (on, key) = (seen.written.on, &seen.written.change.key);
        let of_copy = rewinds.of_copy(on, key, marks::uid(after));
        let of_source = consumer.map(|consumer| rewinds.of_source(Cluster::Consumer(consumer), copy.source));
        violation
            .circumstances
            .extend(of_source.into_iter().flatten().chain(of_copy));
        let unseen = [Circumstance::SourceRewound, Circumstance::RewindUnseen];
        let is_bound_anew = UNBOUND.iter().any(|of| violation.circumstances.contains(of));
        let is_noted = seen.written.change.before.is_some() && !is_bound_anew;
        if !is_noted && unseen.iter().all(|of| violation.circumstances.contains(of)) {
            // After a restore of the consumer, of which nothing tells, a copy that the operator deleted has no note of a later state either, and
            // that of a copy which was released is of another holder where the user bound anew.
            return None;
        }
        if seen.is_by_clone() {
            violation.circumstances.insert(Circumstance::WriterIsClone);
        }
        let relation = super::relation(consumer, provider);
        let is_accepted = relation.is_some_and(|relation| seen.ledger.accepts(relation, &violation.circumstances));
        (!is_accepted).then_some(violation)
    }

    /// Takes what a provider has now for the newest, since it went back in time.
    pub(super) fn rewound(&mut self, clusters: &impl Clusters, provider: Cluster) {
        self.newest.retain(|(on, _), _| *on != provider);
        for (_, object) in clusters.objects(provider) {
            let copy = marks::copy_on_provider(&object).filter(|copy| !copy.claimed);
            if let (Some(copy), Some(serial)) = (copy, marks::serial(&object)) {
                let state = SpecState {
                    serial,
                    ..SpecState::default()
                };
                self.newest.insert((provider, copy.source.to_owned()), state);
            }
        }
    }
}
