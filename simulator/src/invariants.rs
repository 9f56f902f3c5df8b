//! What has to hold in every history, checked on each write that changes a cluster.

use std::{collections::BTreeSet, sync::Arc};

use bindery_simulator_apiserver::{Actor, Change, ObjectKey};
use serde_json::Value;

use crate::{
    faults::ProcessName,
    topology::{Cluster, definition_name, offer_name},
    users::{Circumstance, Ledger, Relation},
};

mod account;
mod clones;
mod consumers;
mod contracts;
pub mod convergence;
mod copies;
mod finalizers;
mod holders;
mod leftovers;
pub mod marks;
mod operators;
mod overwritten;
mod paused;
mod rest;
mod retained;
mod rewinds;
mod sources;
mod specs;
mod violation;

pub use account::Account;
pub use copies::STEADY;
pub use operators::BESIDE;
pub use rest::{changed_fields, is_answer_to_heartbeat, is_of_rest};
pub use violation::{Invariant, Violation};

/// Reads of the clusters of a seed.
pub trait Clusters {
    /// One object.
    fn object(&self, on: Cluster, key: &ObjectKey) -> Option<Arc<Value>>;
    /// All objects of a cluster, in the order of their keys.
    fn objects(&self, on: Cluster) -> Vec<(ObjectKey, Arc<Value>)>;
}

/// A write that changed a cluster.
#[derive(Clone, Debug)]
pub struct Written<'a> {
    /// The cluster.
    pub on: Cluster,
    /// Milliseconds of virtual time since the start of the history.
    pub at: u64,
    /// The change.
    pub change: &'a Change,
    /// The process that sent the request, if one of the seed's processes did.
    pub process: Option<ProcessName>,
    /// How often that process had been started.
    pub incarnation: u32,
    /// When the process sent the request, in milliseconds.
    pub sent: u64,
    /// When the API server of the process's own cluster gave the last answer that the process had got by then.
    pub informed: u64,
    /// Whether the network delayed the request, did it twice or lost its answer.
    pub is_disturbed: bool,
}

// === impl Written ===

impl Written<'_> {
    /// Whether it is a creation whose request the network disturbed.
    fn is_late_creation(&self) -> bool {
        self.is_disturbed && self.change.before.is_none()
    }
}

/// Checks each write, and keeps what later checks need.
#[derive(Debug, Default)]
pub struct Invariants {
    contracts: contracts::Contracts,
    sources: sources::Sources,
    specs: specs::Specs,
    holders: holders::Holders,
    paused: paused::Paused,
    overwritten: overwritten::Overwritten,
    rewinds: rewinds::Rewinds,
    /// UIDs of objects that requests made which the network disturbed: one that is late makes an object again that is gone.
    made_late: BTreeSet<String>,
    violations: Vec<Violation>,
    seen: BTreeSet<(Invariant, BTreeSet<Circumstance>)>,
}

/// What a check may read.
struct Seen<'a, C> {
    ledger: &'a Ledger,
    clusters: &'a C,
    written: &'a Written<'a>,
    account: Account<'a>,
}

// === impl Invariants ===

impl Invariants {
    /// Notes which consumer has which identity: the UID of its namespace `kube-system`.
    pub fn identify(&mut self, consumer: u8, identity: &str) {
        self.contracts.identify(consumer, identity);
    }

    /// Checks one write.
    pub fn written(&mut self, ledger: &Ledger, clusters: &impl Clusters, written: &Written<'_>) {
        // Nobody wrote: the cluster went back in time, of which [`Self::rewound`] is told.
        if is_restore(written.change) {
            return;
        }
        let seen = Seen {
            ledger,
            clusters,
            written,
            account: Account::of(&written.change.by),
        };
        if let Some(made) = written.change.after.as_deref().filter(|_| written.is_late_creation()) {
            self.made_late.insert(marks::uid(made).to_owned());
        }
        match written.on {
            Cluster::Provider(_) => {
                let copy = copies::check(&seen, &mut self.contracts, &self.sources, &self.rewinds);
                let spec = self.specs.check(&seen, &mut self.contracts, &self.rewinds);
                let contract = contracts::check(&seen, &mut self.contracts);
                let operators = operators::check(&seen, &mut self.contracts, &self.sources, &self.rewinds);
                let holder = self.holders.check(&seen, &mut self.contracts);
                let paused = self.paused.check(&seen, &mut self.contracts);
                let taken = self.overwritten.check(&seen, &mut self.contracts);
                let retained = retained::check(&seen, &mut self.contracts);
                for found in [copy, spec, contract, operators, holder, paused, taken, retained]
                    .into_iter()
                    .flatten()
                {
                    self.report(found);
                }
            }
            Cluster::Consumer(_) | Cluster::Clone(_) => {
                let deleted = self.sources.note(&seen);
                self.paused.note(&seen);
                self.overwritten.note(&seen);
                let own = consumers::check(&seen, deleted);
                let holder = self.holders.check(&seen, &mut self.contracts);
                let released = finalizers::check(&seen, &mut self.contracts, &self.rewinds, &self.made_late);
                let contract = contracts::check_on_consumer(&seen, &self.contracts);
                let data = consumers::check_data(&seen);
                for found in [own, data, holder, released, contract].into_iter().flatten() {
                    self.report(found);
                }
            }
        }
        self.rewinds.note(written);
    }

    /// Notes the time, in milliseconds since the start of the history.
    pub fn pass(&mut self, now: u64) {
        self.rewinds.pass(now);
    }

    /// Takes a restore or a loss into account: the objects of the cluster are now those of `clusters`, without a write.
    pub fn rewound(&mut self, clusters: &impl Clusters, on: Cluster) {
        self.rewinds.rewound(clusters, on);
        match on {
            Cluster::Provider(_) => {
                self.specs.rewound(clusters, on);
                self.holders.forget(on, self.rewinds.now());
            }
            Cluster::Consumer(_) | Cluster::Clone(_) => {
                self.sources.rewound(clusters, on, self.rewinds.now());
                self.holders.forget(on, self.rewinds.now());
                self.paused.forget(on);
            }
        }
    }

    /// Notes a violation. Of those with the same invariant and circumstances only the first is kept.
    pub fn report(&mut self, violation: Violation) {
        if self.seen.insert((violation.invariant, violation.circumstances.clone())) {
            self.violations.push(violation);
        }
    }

    /// The violation that a write is which came when everything was at rest; `None` for one that is expected then.
    pub fn unrest(&mut self, ledger: &Ledger, clusters: &impl Clusters, written: &Written<'_>) -> Option<Violation> {
        let seen = Seen {
            ledger,
            clusters,
            written,
            account: Account::of(&written.change.by),
        };
        let key = &written.change.key;
        let object = written.change.after.as_deref().or(written.change.before.as_deref());
        let consumer = match (seen.account, seen.provider()) {
            (Account::Contract(contract), Some(provider)) => self.contracts.consumer(clusters, provider, contract),
            (_, Some(provider)) => self.contracts.consumer_of(clusters, provider, (key, object)),
            (_, None) => written.on.consumer(),
        };
        let fields = changed_fields(written.change).join(", ");
        let message = format!("it was still written, and {fields} changed");
        let mut violation = seen.violation(Invariant::NotAtRest, (consumer, seen.provider()), &message);
        if seen.is_by_clone() {
            violation.circumstances.insert(Circumstance::WriterIsClone);
        }
        let uid = object.map_or("", marks::uid);
        let found = match written.on {
            Cluster::Provider(_) => self.rewinds.of_copy(written.on, key, uid),
            Cluster::Consumer(_) | Cluster::Clone(_) => self.rewinds.of_source(written.on, uid),
        };
        violation.circumstances.extend(found);
        (!rest::waits_for_forced_namespace(key, &violation.circumstances)).then_some(violation)
    }

    /// Whether this invariant was violated.
    pub fn has(&self, invariant: Invariant) -> bool {
        self.violations.iter().any(|violation| violation.invariant == invariant)
    }

    /// The violations so far, in the order of their times.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// The consumer whose contract a provider has under this name.
    pub fn consumer_of(&mut self, clusters: &impl Clusters, provider: u8, contract: &str) -> Option<u8> {
        self.contracts.consumer(clusters, provider, contract)
    }
}

// === impl Seen ===

impl<C: Clusters> Seen<'_, C> {
    /// Builds a violation of the use of an API.
    fn violation(&self, invariant: Invariant, relation: (Option<u8>, Option<u8>), message: &str) -> Violation {
        let mut circumstances = self.ledger.circumstances(relation.0, relation.1);
        let has_failed_watch = |consumer| self.ledger.has_failed_watch(consumer, self.written.at);
        if relation.0.is_some_and(has_failed_watch) {
            circumstances.insert(Circumstance::WatchFailed);
        }
        Violation {
            invariant,
            at: self.written.at,
            subject: format!("{} on {}", self.written.change.key, self.written.on),
            message: format!("{message}, by {}{}", self.written.change.by, self.process()),
            circumstances,
        }
    }

    /// Whether a konnector of a restored second cluster wrote.
    fn is_by_clone(&self) -> bool {
        self.written.process.is_some_and(ProcessName::is_of_clone)
    }

    fn process(&self) -> String {
        self.written
            .process
            .map_or_else(String::new, |process| format!(" ({process})"))
    }

    /// The binding of a relation.
    fn binding(&self, relation: Relation) -> Option<Arc<Value>> {
        self.binding_on(Cluster::Consumer(relation.consumer), relation.provider)
    }

    /// The binding of a provider's API on a consumer or its clone.
    fn binding_on(&self, on: Cluster, provider: u8) -> Option<Arc<Value>> {
        let name = offer_name(provider);
        let mut objects = self.clusters.objects(on).into_iter();
        let (_, binding) = objects.find(|(key, object)| marks::is_binding_of(key, object, &name))?;
        Some(binding)
    }

    fn binding_uid(&self, relation: Relation) -> Option<String> {
        Some(marks::uid(&*self.binding(relation)?).to_owned())
    }

    /// Whether the binding of a consumer and a provider, or the consumer's CRD of it, is being deleted or is gone.
    fn ending(&self, relation: Option<(u8, u8)>) -> Option<Circumstance> {
        let (consumer, provider) = relation?;
        let definition = ObjectKey::new(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "",
            &definition_name(provider),
        );
        let definition = self.clusters.object(Cluster::Consumer(consumer), &definition);
        [self.binding(Relation { consumer, provider }), definition]
            .iter()
            .any(|object| object.as_ref().is_none_or(|object| marks::is_deleting(object)))
            .then_some(Circumstance::BindingEnds)
    }

    /// The number of the provider that was written to.
    fn provider(&self) -> Option<u8> {
        match self.written.on {
            Cluster::Provider(number) => Some(number),
            Cluster::Consumer(_) | Cluster::Clone(_) => None,
        }
    }
}

/// Whether a change is no write, but the effect of a restore.
pub fn is_restore(change: &Change) -> bool {
    change.by == Actor::Controller("restore")
}

/// The relation of a consumer and a provider, if both are known.
fn relation(consumer: Option<u8>, provider: Option<u8>) -> Option<Relation> {
    Some(Relation {
        consumer: consumer?,
        provider: provider?,
    })
}

#[cfg(test)]
mod tests;
