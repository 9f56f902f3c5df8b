//! What has to hold some time after the last fault: sources and copies agree, nothing is left over, and bindings are ready.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bindery_api::{annotations, names};
use bindery_simulator_apiserver::ObjectKey;
use serde_json::Value;

use super::{Clusters, Invariant, Invariants, Violation, leftovers, marks, rewinds::Rewinds};
use crate::{
    topology::{Cluster, Offer, PLURAL, Scope, Topology, group, offer_name},
    users::{Circumstance, Ledger, Relation},
};

mod bindings;
mod bound;
mod claimed;

/// The label by which a claim selects.
pub const CLAIMED: &str = "claimed";

/// The field of a spec that operators of a history set in copies.
pub const ADDED: &str = "extra";

/// The objects of a cluster by key.
type Objects = BTreeMap<ObjectKey, Arc<Value>>;

/// One relation with both of its clusters.
struct Pair<'a> {
    relation: Relation,
    offer: &'a Offer,
    contract: String,
    consumer: &'a Objects,
    provider: &'a Objects,
    ledger: &'a Ledger,
    rewinds: &'a Rewinds,
    made_late: &'a BTreeSet<String>,
    found: Vec<Difference>,
}

/// Something that is not as it has to be.
struct Difference {
    invariant: Invariant,
    subject: String,
    message: String,
    circumstances: Vec<Circumstance>,
}

impl Invariants {
    /// Everything that is not as it has to be when a world has come to rest at this time. An empty list means that all is well.
    pub fn differences(
        &mut self,
        topology: &Topology,
        ledger: &Ledger,
        clusters: &impl Clusters,
        at: u64,
    ) -> Vec<Violation> {
        let mut violations = Vec::new();
        let read = |on| -> Objects { clusters.objects(on).into_iter().collect() };
        for number in topology.consumer_numbers() {
            let consumer = read(Cluster::Consumer(number));
            for provider in topology.provider_numbers() {
                let Some(offer) = topology.offer(provider) else {
                    continue;
                };
                let relation = Relation {
                    consumer: number,
                    provider,
                };
                let objects = read(Cluster::Provider(provider));
                let contract = self.contract_of(clusters, relation, &objects);
                let mut pair = Pair {
                    relation,
                    offer,
                    contract: contract.clone().unwrap_or_default(),
                    consumer: &consumer,
                    provider: &objects,
                    ledger,
                    rewinds: &self.rewinds,
                    made_late: &self.made_late,
                    found: Vec::new(),
                };
                if contract.is_none() {
                    pair.without_contract();
                } else {
                    pair.left();
                    pair.retained();
                    if pair.binding() {
                        pair.bound();
                        let ends = |uid: &str| self.sources.end(number, uid);
                        pair.leftovers(&ends);
                        pair.claimed();
                        pair.hanging();
                    }
                }
                let orphaned = pair.is_orphaned().then_some(Circumstance::BindingOrphaned);
                let mut known = ledger.circumstances(Some(number), Some(provider));
                known.extend(orphaned);
                violations.extend(pair.found.into_iter().map(|found| Violation {
                    invariant: found.invariant,
                    at,
                    subject: found.subject,
                    message: found.message,
                    circumstances: known.iter().copied().chain(found.circumstances).collect(),
                }));
            }
        }
        violations
    }

    /// The name of the contract of a relation.
    fn contract_of(&mut self, clusters: &impl Clusters, relation: Relation, provider: &Objects) -> Option<String> {
        let namespaces = of(provider, "", "namespaces");
        let names: Vec<_> = namespaces
            .filter(|(_, object)| marks::annotation(object, annotations::IDENTITY).is_some())
            .map(|(key, _)| key.name.clone())
            .collect();
        names
            .into_iter()
            .find(|name| self.consumer_of(clusters, relation.provider, name) == Some(relation.consumer))
    }
}

impl<'a> Pair<'a> {
    /// The copies of the contract that are retained.
    fn retained_copies(&self) -> impl Iterator<Item = (&'a ObjectKey, &'a Value)> {
        of(self.provider, &group(self.relation.provider), PLURAL).filter(move |(_, object)| {
            marks::copy_on_provider(object)
                .is_some_and(|copy| copy.contract == self.contract && copy.retained && !copy.released)
        })
    }
}

impl Pair<'_> {
    /// The binding of the relation.
    fn its_binding(&self) -> Option<(ObjectKey, Value)> {
        let name = offer_name(self.relation.provider);
        let mut bindings = of(self.consumer, "kube-bind.io", "apiservicebindings");
        let (key, binding) = bindings.find(|(key, binding)| marks::is_binding_of(key, binding, &name))?;
        Some((key.clone(), binding.clone()))
    }

    fn happened(&self, circumstance: Circumstance) -> bool {
        let Relation { consumer, provider } = self.relation;
        self.ledger
            .circumstances(Some(consumer), Some(provider))
            .contains(&circumstance)
    }

    /// Whether a user deleted the binding with propagation policy Orphan, and made no other one.
    fn is_orphaned(&self) -> bool {
        let binding = self.its_binding();
        let uid = binding.as_ref().map(|(_, binding)| marks::uid(binding));
        self.ledger.is_orphaned(self.relation, uid)
    }

    /// Whether an object is paused, or left in a namespace that a user forced to end, so that nobody may write it.
    fn is_users(&self, key: &ObjectKey, object: &Value) -> bool {
        marks::annotation(object, annotations::PAUSED).is_some() || self.is_forced(&key.namespace)
    }

    /// Whether a user forced a namespace of the consumer to end, and there is none of its name. Where claims are limited to a list of
    /// namespaces, nobody hears of what becomes of the objects that are left in it.
    fn is_forced(&self, namespace: &str) -> bool {
        let key = ObjectKey::new("", "namespaces", "", namespace);
        !namespace.is_empty() && !self.consumer.contains_key(&key) && self.happened(Circumstance::NamespaceForced)
    }

    /// Checks that nothing is left that nobody needs.
    fn left(&mut self) {
        let key = ObjectKey::new("", "namespaces", "", &self.contract);
        let uid = self.provider.get(&key).map_or("", |namespace| marks::uid(namespace));
        let rights = leftovers::rights(self.provider, &self.contract);
        let of_binding = leftovers::of_binding(self.consumer, self.relation.provider, uid);
        let is_orphaned = self.is_orphaned();
        for (key, message) in rights.into_iter().chain(of_binding) {
            // Where the user orphans dependents of the binding, its CRD stays.
            if is_orphaned && key.resource == "customresourcedefinitions" {
                continue;
            }
            // The konnector has no rights on claimed objects in a namespace that does not exist.
            if key.group.is_empty() && self.is_forced(&key.namespace) {
                continue;
            }
            // A creation that arrives when the binding is gone makes the copy again, and nobody watches it.
            let uid = self.consumer.get(&key).map_or("", |object| marks::uid(object));
            if key.group.is_empty() && self.made_late.contains(uid) {
                continue;
            }
            self.found(Invariant::LeftBehind, format!("{key} of {}", self.relation), &message);
        }
    }

    /// What restores did to a source and to its copy.
    fn circumstances(&self, source: Option<&Value>, copy: Option<(&ObjectKey, &Value)>) -> Vec<Circumstance> {
        let Relation { consumer, provider } = self.relation;
        let of_source = source.map(|source| self.rewinds.of_source(Cluster::Consumer(consumer), marks::uid(source)));
        let on = Cluster::Provider(provider);
        let of_copy = copy.map(|(key, copy)| self.rewinds.of_copy(on, key, marks::uid(copy)));
        of_source.into_iter().chain(of_copy).flatten().collect()
    }

    /// Whether the place of an object's copy is taken by something that is not its copy, which the product leaves alone.
    fn is_taken(&self, source: &ObjectKey) -> bool {
        self.places(source).iter().any(|key| self.provider.contains_key(key))
    }

    /// Where the copy of an object may be.
    fn places(&self, source: &ObjectKey) -> [ObjectKey; 2] {
        let names = [names::prefixed_name(&self.contract, &source.name), source.name.clone()];
        let group = group(self.relation.provider);
        let place = match self.offer.scope {
            Scope::Namespaced => names::provider_namespace(&self.contract, &source.namespace),
            Scope::Cluster if self.offer.is_namespaced_on_provider() => self.contract.clone(),
            Scope::Cluster => String::new(),
        };
        names.map(|name| ObjectKey::new(&group, PLURAL, &place, &name))
    }

    fn not_converged(&mut self, key: &ObjectKey, message: String) {
        self.differs(key, message, Vec::new());
    }

    fn differs(&mut self, key: &ObjectKey, message: String, circumstances: Vec<Circumstance>) {
        self.found.push(Difference {
            invariant: Invariant::NotConverged,
            subject: format!("{key} of {}", self.relation),
            message,
            circumstances,
        });
    }

    fn found(&mut self, invariant: Invariant, subject: String, message: &str) {
        self.found.push(Difference {
            invariant,
            subject,
            message: message.to_owned(),
            circumstances: Vec::new(),
        });
    }
}

/// The objects of one resource.
fn of<'a>(
    objects: &'a Objects,
    group: &str,
    resource: &str,
) -> impl Iterator<Item = (&'a ObjectKey, &'a Value)> + use<'a> {
    let first = ObjectKey::new(group, resource, "", "");
    let (group, resource) = (group.to_owned(), resource.to_owned());
    objects
        .range(first..)
        .take_while(move |(key, _)| key.group == group && key.resource == resource)
        .map(|(key, object)| (key, &**object))
}
