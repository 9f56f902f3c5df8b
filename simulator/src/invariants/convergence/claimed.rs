//! Whether claimed objects and their copies agree in the end, and copies of what is claimed no more are gone.

use std::collections::BTreeMap;

use bindery_api::{annotations, labels, names};
use bindery_simulator_apiserver::ObjectKey;
use serde_json::Value;

use super::{CLAIMED, Pair, of};
use crate::{
    invariants::marks,
    topology::{Claim, Cluster, Owner, PLURAL, Scope, Selection, group},
    users::{Circumstance, object_name},
};

impl Pair<'_> {
    /// Checks claimed objects against their copies, where the offer's objects have namespaces.
    pub(super) fn claimed(&mut self) {
        if self.offer.scope != Scope::Namespaced {
            return;
        }
        let offer = self.offer;
        for &claim in &offer.claims {
            match claim.owner {
                Owner::Consumer => self.claimed_of_consumer(claim),
                Owner::Provider => self.claimed_of_provider(claim),
            }
        }
    }

    fn claimed_of_consumer(&mut self, claim: Claim) {
        let resource = claim.resource.plural();
        let copies: BTreeMap<_, _> = of(self.provider, "", resource)
            .filter_map(|(key, object)| {
                let copy = marks::copy_on_provider(object)?;
                (copy.claimed && copy.contract == self.contract).then_some((copy.source.to_owned(), (key, object)))
            })
            .collect();
        let sources: Vec<_> = of(self.consumer, "", resource).collect();
        for (key, source) in sources {
            if marks::is_copy_on_consumer(source) || !self.is_mapped(&key.namespace) || self.is_users(key, source) {
                continue;
            }
            let copy = copies.get(marks::uid(source));
            if !self.selects(claim, key, source) {
                let copy = copy.filter(|(_, copy)| must_go(copy) && self.is_deselected(claim, key, source));
                if let Some((at, copy)) = copy {
                    let circumstances = self.circumstances(Some(source), Some((at, copy)));
                    let message = "it is claimed no more, and its copy is left".to_owned();
                    self.differs(key, message, circumstances);
                }
                continue;
            }
            match copy {
                None => {
                    let place = names::provider_namespace(&self.contract, &key.namespace);
                    let at = ObjectKey::new("", resource, &place, &key.name);
                    if !self.provider.contains_key(&at) {
                        let on = Cluster::Provider(self.relation.provider);
                        let is_touched = self.rewinds.is_touched(on, &at);
                        let circumstances = is_touched.then_some(Circumstance::CopyOfClone).into_iter().collect();
                        self.differs(key, "it is claimed, and has no copy".to_owned(), circumstances);
                    }
                }
                Some((at, _)) if self.ledger.was_overwritten(self.relation.provider, at) => {}
                Some((at, copy)) if source["data"] != copy["data"] => {
                    let circumstances = self.circumstances(Some(source), Some((at, copy)));
                    self.differs(
                        key,
                        "it is claimed, and its copy has other data".to_owned(),
                        circumstances,
                    );
                }
                Some(_) => {}
            }
        }
        for (source, (key, copy)) in &copies {
            let released = marks::copy_on_provider(copy).is_some_and(|copy| copy.released);
            let exists = of(self.consumer, "", resource).any(|(_, object)| marks::uid(object) == source);
            // Another object has the source's name: a condition asks the user which of both is right.
            let prefix = format!("{}-", self.contract);
            let namespace = key.namespace.strip_prefix(&prefix).unwrap_or_default();
            let is_replaced = self
                .consumer
                .contains_key(&ObjectKey::new("", resource, namespace, &key.name));
            if !exists && !released && !is_replaced && !self.is_forced(namespace) {
                let circumstances = self.circumstances(None, Some((key, copy)));
                self.differs(
                    key,
                    "its claimed source is gone, and it is left".to_owned(),
                    circumstances,
                );
            }
        }
    }

    fn claimed_of_provider(&mut self, claim: Claim) {
        let resource = claim.resource.plural();
        let copies: BTreeMap<_, _> = of(self.consumer, "", resource)
            .filter(|(_, object)| marks::is_copy_on_consumer(object))
            .filter_map(|(key, object)| Some((marks::annotation(object, annotations::PROVIDER_UID)?, (key, object))))
            .collect();
        let prefix = format!("{}-", self.contract);
        let sources: Vec<_> = of(self.provider, "", resource)
            .filter(|(key, object)| key.namespace.starts_with(&prefix) && marks::copy_on_provider(object).is_none())
            .collect();
        for (key, source) in sources {
            let namespace = key.namespace.strip_prefix(&prefix).unwrap_or_default();
            let own = ObjectKey::new("", resource, namespace, &key.name);
            let is_there = self
                .consumer
                .contains_key(&ObjectKey::new("", "namespaces", "", namespace));
            if !is_there || !self.selects(claim, &own, source) || !self.is_mapped(namespace) {
                continue;
            }
            match copies.get(marks::uid(source)) {
                // An object of the consumer has the name.
                None if self.consumer.contains_key(&own) => {}
                None => self.not_converged(key, "it is claimed, and the consumer has no copy".to_owned()),
                Some((_, copy)) if source["data"] != copy["data"] => {
                    self.not_converged(key, "it is claimed, and the consumer's copy has other data".to_owned());
                }
                Some(_) => {}
            }
        }
        self.withdrawn(claim);
    }

    /// Checks that the consumer has no copies of provider's objects that are gone or claimed no more. Where the provider went back in
    /// time, the product withdraws nothing.
    fn withdrawn(&mut self, claim: Claim) {
        let went_back = [Circumstance::ProviderRestoredInPlace, Circumstance::ProviderLostObjects];
        if went_back.iter().any(|one| self.happened(*one)) {
            return;
        }
        let contract = self.provider.get(&ObjectKey::new("", "namespaces", "", &self.contract));
        let uid = contract.map_or("", |namespace| marks::uid(namespace));
        let resource = claim.resource.plural();
        let copies: Vec<_> = of(self.consumer, "", resource)
            .filter(|(_, object)| marks::is_copy_on_consumer(object))
            .filter(|(_, object)| marks::label(object, labels::CONTRACT_UID) == Some(uid))
            .collect();
        for (key, copy) in copies {
            if self.is_users(key, copy) || !self.is_mapped(&key.namespace) {
                continue;
            }
            let of_copy = marks::annotation(copy, annotations::PROVIDER_UID);
            let source = of(self.provider, "", resource).find(|(_, object)| Some(marks::uid(object)) == of_copy);
            match source {
                None if self.is_replaced(claim, key) => {}
                None => {
                    let message = "its claimed source on the provider is gone, and it is left";
                    self.not_converged(key, message.to_owned());
                }
                Some((_, source)) if self.is_deselected(claim, key, source) => {
                    self.not_converged(key, "its source is claimed no more, and it is left".to_owned());
                }
                Some(_) => {}
            }
        }
    }

    /// Whether a copy on the consumer has a source whose name another object of the provider has, which may be claimed too: a condition
    /// asks the user what becomes of the copy.
    fn is_replaced(&self, claim: Claim, copy: &ObjectKey) -> bool {
        let place = names::provider_namespace(&self.contract, &copy.namespace);
        let namesake = ObjectKey::new("", claim.resource.plural(), &place, &copy.name);
        let namesake = self.provider.get(&namesake);
        namesake.is_some_and(|object| !marks::is_deleting(object) && !self.is_deselected(claim, copy, object))
    }

    /// Whether a claim selects an object that is not being deleted.
    fn selects(&self, claim: Claim, key: &ObjectKey, object: &Value) -> bool {
        if marks::is_deleting(object) || marks::annotation(object, annotations::PAUSED).is_some() {
            return false;
        }
        match claim.selection {
            Selection::Named => key.name == object_name(0),
            Selection::Labelled => marks::label(object, CLAIMED) == Some("true"),
            Selection::Referenced => of(self.consumer, &group(self.relation.provider), PLURAL).any(|(of, source)| {
                of.namespace == key.namespace
                    && !marks::is_deleting(source)
                    && refers_to(source, &key.name)
                    && !self.is_blocked(of)
            }),
        }
    }

    /// Whether an object is not claimed for certain, so that its copy has to go. Nothing is written for a paused object, and the copy
    /// of one that is being deleted is another check's.
    fn is_deselected(&self, claim: Claim, key: &ObjectKey, object: &Value) -> bool {
        if marks::is_deleting(object) || marks::annotation(object, annotations::PAUSED).is_some() {
            return false;
        }
        match claim.selection {
            Selection::Named => key.name != object_name(0),
            Selection::Labelled => marks::label(object, CLAIMED) != Some("true"),
            // A reference of an object that is being deleted counts until it is gone, and that of a retained copy until the copy is.
            Selection::Referenced => {
                let mut sources = of(self.consumer, &group(self.relation.provider), PLURAL);
                let mut retained = self.retained_copies();
                let place = names::provider_namespace(&self.contract, &key.namespace);
                !sources.any(|(of, source)| of.namespace == key.namespace && refers_to(source, &key.name))
                    && !retained.any(|(of, copy)| of.namespace == place && refers_to(copy, &key.name))
            }
        }
    }

    /// Whether a retained copy blocks the name of a bound object: the object is not synced, and what it refers to does not count.
    fn is_blocked(&self, source: &ObjectKey) -> bool {
        let places = self.places(source);
        self.retained_copies().any(|(copy, _)| places.contains(copy))
    }

    /// Whether a namespace of the consumer has a provider namespace for certain: a bound object with a copy is in it.
    fn is_mapped(&self, namespace: &str) -> bool {
        let group = group(self.relation.provider);
        let place = names::provider_namespace(&self.contract, namespace);
        let is_steady = |(_, object): (&ObjectKey, &Value)| !marks::is_deleting(object);
        of(self.consumer, &group, PLURAL)
            .filter(|(key, _)| key.namespace == namespace)
            .any(is_steady)
            && of(self.provider, &group, PLURAL)
                .filter(|(key, _)| key.namespace == place)
                .any(is_steady)
    }
}

/// Whether a bound object refers to a claimed object of this name.
fn refers_to(source: &Value, name: &str) -> bool {
    let references = source["spec"]["references"].as_array();
    references.is_some_and(|all| all.iter().any(|one| one["name"] == *name))
}

/// Whether the copy of a claimed object has to go when nothing claims the object any more: nobody released or paused the copy.
fn must_go(copy: &Value) -> bool {
    let is_released = marks::copy_on_provider(copy).is_some_and(|copy| copy.released);
    !is_released && marks::annotation(copy, annotations::PAUSED).is_none()
}
