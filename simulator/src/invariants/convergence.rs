//! What has to hold some time after the last fault: sources and copies agree, nothing is left over, and bindings are ready.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{annotations, labels, names};
use bindery_simulator_apiserver::ObjectKey;
use serde_json::Value;

use super::{Clusters, Invariant, Invariants, Violation, left, marks, rewinds::Rewinds, sources::SourceEnd};
use crate::{
    topology::{Claim, Cluster, Offer, Owner, PLURAL, Scope, Selection, Topology, group, offer_name},
    users::{Circumstance, Ledger, Relation, bundle_name, object_name},
};

/// The label by which a claim selects.
pub const CLAIMED: &str = "claimed";

/// The field of a spec that operators of a history set in copies.
pub const ADDED: &str = "extra";

/// The ConfigMap that the control plane puts into each namespace.
const ROOT_CERTIFICATES: &str = "kube-root-ca.crt";

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
                    found: Vec::new(),
                };
                if contract.is_none() {
                    pair.without_contract();
                } else {
                    pair.left();
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

impl Pair<'_> {
    /// The binding of the relation.
    fn its_binding(&self) -> Option<(ObjectKey, Value)> {
        let name = offer_name(self.relation.provider);
        let mut bindings = of(self.consumer, "kube-bind.io", "apiservicebindings");
        let (key, binding) = bindings.find(|(key, binding)| marks::is_binding_of(key, binding, &name))?;
        Some((key.clone(), binding.clone()))
    }

    /// Checks that a relation without a contract has no binding either.
    fn without_contract(&mut self) {
        if let Some((key, binding)) = self.its_binding()
            && !marks::is_deleting(&binding)
        {
            self.found(
                Invariant::NotReady,
                key.to_string(),
                "its provider has no contract of this consumer",
            );
        }
    }

    /// Checks the binding. Returns whether there is one that syncs.
    fn binding(&mut self) -> bool {
        let Some((key, binding)) = self.its_binding() else {
            self.bundle();
            return false;
        };
        if marks::annotation(&binding, annotations::PAUSED).is_some() {
            return false;
        }
        let condition = |name: &str| -> Option<&Value> {
            let conditions = binding["status"]["conditions"].as_array()?;
            conditions.iter().find(|condition| condition["type"] == name)
        };
        if marks::is_deleting(&binding) {
            // A deletion that waits for the user says so.
            let draining = condition("Draining");
            let waits = draining.is_some_and(|draining| draining["reason"] != "Unbinding");
            if !waits && !self.only_users_can_end_the_rest() {
                let message = format!("it is being deleted, and does not end: {}", said(draining));
                self.found(Invariant::NotReady, key.to_string(), &message);
            }
            return false;
        }
        let ready = condition("Ready");
        if ready.is_some_and(|ready| ready["status"] == "True") {
            return true;
        }
        let name = offer_name(self.relation.provider);
        let export = ObjectKey::new("kube-bind.io", "apiserviceexports", &self.contract, &name);
        if !self.provider.contains_key(&export) && self.has_to_bind_again() {
            return false;
        }
        // Where an object waits for the user, the others are in sync all the same.
        let reason = ready.and_then(|ready| ready["reason"].as_str()).unwrap_or_default();
        if (reason == "ObjectsFailing" && self.waits_for_a_user())
            || (reason == "ClaimFailing" && self.claims_wait_for_a_user())
        {
            return true;
        }
        let message = format!("it is not ready: {}", said(ready));
        self.found(Invariant::NotReady, key.to_string(), &message);
        false
    }

    /// Checks a bundle whose export has no binding: it ends, waits for its user, or makes the binding.
    fn bundle(&mut self) {
        let key = ObjectKey::new(
            "kube-bind.io",
            "apiservicebindingbundles",
            "",
            &bundle_name(self.relation.provider),
        );
        let Some(bundle) = self.consumer.get(&key) else {
            return;
        };
        if marks::is_deleting(bundle) {
            self.found(Invariant::NotReady, key.to_string(), "it is being deleted, and does not end");
            return;
        }
        let name = offer_name(self.relation.provider);
        let export = ObjectKey::new("kube-bind.io", "apiserviceexports", &self.contract, &name);
        let export = self.provider.get(&export);
        let is_exported = export.is_some_and(|export| !marks::is_deleting(export));
        // A message that names an annotation asks the user to set it.
        let asks = |condition: &Value| {
            let message = condition["message"].as_str();
            message.is_some_and(|message| message.contains("kube-bind.io/"))
        };
        let conditions = bundle["status"]["conditions"].as_array();
        let waits = marks::annotation(bundle, annotations::PAUSED).is_some()
            || conditions.is_some_and(|all| all.iter().any(asks))
            || self.has_to_bind_again();
        if is_exported && !waits {
            self.found(Invariant::NotReady, key.to_string(), "it has no binding for its export");
        }
    }

    /// Whether the export went although there is a binding: the owner unbound it at the provider, a restore of the provider took it,
    /// or a restore of the consumer brought a binding back that a user had ended.
    fn has_to_bind_again(&self) -> bool {
        let any = |of: &[Circumstance]| of.iter().any(|one| self.happened(*one));
        let ends = [
            Circumstance::Unbound,
            Circumstance::UnboundDeleting,
            Circumstance::UnboundKeeping,
        ];
        any(&[Circumstance::UnboundByCall, Circumstance::ProviderRestoredInPlace])
            || (any(&ends) && self.happened(Circumstance::ConsumerRestoredInPlace))
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

    /// Whether no object of the API is left but those that users paused, or whose namespace they forced to end.
    fn only_users_can_end_the_rest(&self) -> bool {
        let group = group(self.relation.provider);
        let mut left = of(self.consumer, &group, PLURAL).peekable();
        left.peek().is_some() && left.all(|(key, object)| self.is_users(key, object))
    }

    /// Whether an object is paused, or left in a namespace that a user forced to end, so that nobody may write it.
    fn is_users(&self, key: &ObjectKey, object: &Value) -> bool {
        let namespace = ObjectKey::new("", "namespaces", "", &key.namespace);
        marks::annotation(object, annotations::PAUSED).is_some()
            || (!key.namespace.is_empty()
                && !self.consumer.contains_key(&namespace)
                && self.happened(Circumstance::NamespaceForced))
    }

    /// Whether an object waits for its user: it is paused and is to go, the place of its copy is taken, or the operator overwrote
    /// its copy.
    fn waits_for_a_user(&self) -> bool {
        let group = group(self.relation.provider);
        let has_copy = |source: &Value| {
            of(self.provider, &group, PLURAL).any(|(_, object)| {
                marks::copy_on_provider(object).is_some_and(|copy| copy.source == marks::uid(source))
            })
        };
        let waits = |(key, source): (&ObjectKey, &Value)| {
            (self.is_users(key, source) && marks::is_deleting(source)) || (!has_copy(source) && self.is_taken(key))
        };
        of(self.consumer, &group, PLURAL).any(waits) || self.has_overwritten_copy(&group, PLURAL)
    }

    /// Whether the operator overwrote a copy of this resource that still exists.
    fn has_overwritten_copy(&self, group: &str, resource: &str) -> bool {
        let provider = self.relation.provider;
        of(self.provider, group, resource).any(|(key, _)| self.ledger.was_overwritten(provider, key))
    }

    /// Whether both sides have an object of their own where a claimed object is to be copied, or the operator overwrote a copy.
    fn claims_wait_for_a_user(&self) -> bool {
        let prefix = format!("{}-", self.contract);
        self.offer.claims.iter().any(|claim| {
            let resource = claim.resource.plural();
            if self.has_overwritten_copy("", resource) {
                return true;
            }
            of(self.provider, "", resource).any(|(key, object)| {
                // Where copies keep the names of their namespaces, all consumers share them.
                let namespace = key.namespace.strip_prefix(&prefix).unwrap_or(&key.namespace);
                let own = ObjectKey::new("", resource, namespace, &key.name);
                let Some(other) = self.consumer.get(&own) else {
                    return false;
                };
                let copy = marks::copy_on_provider(object);
                let is_copy = copy.is_some_and(|copy| copy.source == marks::uid(other))
                    || marks::annotation(other, annotations::PROVIDER_UID) == Some(marks::uid(object));
                !is_copy
            })
        })
    }

    /// Checks that nothing is left that nobody needs.
    fn left(&mut self) {
        let key = ObjectKey::new("", "namespaces", "", &self.contract);
        let uid = self.provider.get(&key).map_or("", |namespace| marks::uid(namespace));
        let rights = left::rights(self.provider, &self.contract);
        let of_binding = left::of_binding(self.consumer, self.relation.provider, uid);
        let is_orphaned = self.is_orphaned();
        for (key, message) in rights.into_iter().chain(of_binding) {
            // Where the user orphans dependents of the binding, its CRD stays.
            if is_orphaned && key.resource == "customresourcedefinitions" {
                continue;
            }
            self.found(Invariant::LeftBehind, format!("{key} of {}", self.relation), &message);
        }
    }

    /// Checks bound objects against their copies.
    fn bound(&mut self) {
        let group = group(self.relation.provider);
        let mut copies = BTreeMap::new();
        let mut second = Vec::new();
        for (key, object) in of(self.provider, &group, PLURAL) {
            let Some(copy) = marks::copy_on_provider(object) else {
                continue;
            };
            if copy.released && copies.contains_key(copy.source) {
                continue;
            }
            let first = copies.insert(copy.source, (key, object));
            let first = first.and_then(|(_, first)| marks::copy_on_provider(first));
            if first.is_some_and(|first| !first.released) && copy.contract == self.contract {
                second.push((key, object));
            }
        }
        for (key, object) in second {
            let circumstances = self.circumstances(None, Some((key, object)));
            self.differs(key, "it is a second copy of its source".to_owned(), circumstances);
        }
        let sources: Vec<_> = of(self.consumer, &group, PLURAL).collect();
        for (key, source) in sources {
            if self.is_users(key, source) {
                continue;
            }
            let copy = copies.get(marks::uid(source));
            let circumstances = self.circumstances(Some(source), copy.copied());
            let not_converged = |pair: &mut Self, message| pair.differs(key, message, circumstances.clone());
            if marks::is_deleting(source) {
                not_converged(self, "its deletion does not end".to_owned());
                continue;
            }
            let Some((place, copy)) = copy else {
                if !self.is_taken(key) {
                    let on = Cluster::Provider(self.relation.provider);
                    let is_touched = self.places(key).iter().any(|place| self.rewinds.is_touched(on, place));
                    let of_clone = is_touched.then_some(Circumstance::CopyOfClone);
                    let circumstances = circumstances.iter().copied().chain(of_clone).collect();
                    self.differs(key, "it has no copy".to_owned(), circumstances);
                }
                continue;
            };
            if marks::serial(source) != marks::serial(copy) {
                let (newer, older) = (marks::serial(source), marks::serial(copy));
                not_converged(self, format!("its state is {newer:?}, that of its copy {older:?}"));
            } else if !self.ledger.was_overwritten(self.relation.provider, place) && !has_same_spec(source, copy) {
                let (up, down) = (&copy["spec"], &source["spec"]);
                not_converged(self, format!("its spec is {down}, that of its copy {up}"));
            }
            let noted = marks::annotation(source, annotations::PROVIDER_UID);
            if noted != Some(marks::uid(copy)) {
                let uid = marks::uid(copy);
                not_converged(
                    self,
                    format!("its annotation names copy {noted:?}, and its copy is {uid}"),
                );
            }
            if source["status"] != copy["status"] {
                let (up, down) = (&copy["status"], &source["status"]);
                not_converged(self, format!("its status is {down}, that of its copy {up}"));
            }
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

    /// Checks that copies whose sources a user deleted are gone.
    fn leftovers(&mut self, ends: &impl Fn(&str) -> Option<SourceEnd>) {
        if self.happened(Circumstance::NamespaceForced) {
            return;
        }
        let group = group(self.relation.provider);
        let copies: Vec<_> = of(self.provider, &group, PLURAL).collect();
        for (key, object) in copies {
            let Some(copy) = marks::copy_on_provider(object) else {
                continue;
            };
            let is_ours = copy.contract == self.contract && !copy.released && !copy.claimed;
            let exists = of(self.consumer, &group, PLURAL).any(|(_, source)| marks::uid(source) == copy.source);
            // A source that was made anew under the same name waits for the user, who decides what the copy is.
            let is_wanted = || of(self.consumer, &group, PLURAL).any(|(source, _)| self.places(source).contains(key));
            if is_ours && !exists && ends(copy.source) == Some(SourceEnd::ByUser) && !is_wanted() {
                let circumstances = self.circumstances(None, Some((key, object)));
                self.differs(
                    key,
                    "a user deleted its source, and it is left".to_owned(),
                    circumstances,
                );
            }
        }
    }

    /// Checks that the APIServiceNamespaces of a binding that syncs end when they are deleted and nothing of a user or an operator
    /// is left in their provider namespaces.
    fn hanging(&mut self) {
        let hanging: Vec<_> = of(self.provider, "kube-bind.io", "apiservicenamespaces")
            .filter(|(key, object)| key.namespace == self.contract && has_our_finalizer(object))
            .filter(|(_, object)| marks::is_deleting(object))
            .collect();
        for (key, _) in hanging {
            let place = names::provider_namespace(&self.contract, &key.name);
            let group = group(self.relation.provider);
            let kinds = [(&*group, PLURAL), ("", "secrets"), ("", "configmaps")];
            let is_in_place = |key: &ObjectKey| key.namespace == place && key.name != ROOT_CERTIFICATES;
            let is_used = kinds
                .iter()
                .any(|(group, resource)| of(self.provider, group, resource).any(|(key, _)| is_in_place(key)));
            if !is_used {
                self.not_converged(key, "its deletion does not end".to_owned());
            }
        }
    }

    /// Checks claimed objects against their copies, where the offer's objects have namespaces.
    fn claimed(&mut self) {
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
            if marks::is_copy_on_consumer(source) || !self.is_mapped(&key.namespace) {
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
            if !exists && !released {
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
            if !self.selects(claim, &own, source) || !self.is_mapped(namespace) {
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
            if marks::annotation(copy, annotations::PAUSED).is_some() || !self.is_mapped(&key.namespace) {
                continue;
            }
            let of_copy = marks::annotation(copy, annotations::PROVIDER_UID);
            let source = of(self.provider, "", resource).find(|(_, object)| Some(marks::uid(object)) == of_copy);
            match source {
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

    /// Whether a claim selects an object that is not being deleted.
    fn selects(&self, claim: Claim, key: &ObjectKey, object: &Value) -> bool {
        if marks::is_deleting(object) || marks::annotation(object, annotations::PAUSED).is_some() {
            return false;
        }
        match claim.selection {
            Selection::Named => key.name == object_name(0),
            Selection::Labelled => marks::label(object, CLAIMED) == Some("true"),
            Selection::Referenced => of(self.consumer, &group(self.relation.provider), PLURAL).any(|(of, source)| {
                of.namespace == key.namespace && !marks::is_deleting(source) && refers_to(source, &key.name)
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
            // A reference of an object that is being deleted counts until the object is gone.
            Selection::Referenced => !of(self.consumer, &group(self.relation.provider), PLURAL)
                .any(|(of, source)| of.namespace == key.namespace && refers_to(source, &key.name)),
        }
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

/// Whether an object has a finalizer of the product.
fn has_our_finalizer(object: &Value) -> bool {
    let all = object["metadata"]["finalizers"].as_array();
    let is_ours = |one: &Value| one.as_str().is_some_and(|one| one.starts_with("kube-bind.io/"));
    all.is_some_and(|all| all.iter().any(is_ours))
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

/// Whether a copy has the spec of its source, and no other field but the one that operators add.
fn has_same_spec(source: &Value, copy: &Value) -> bool {
    let mut spec = copy["spec"].clone();
    if let Some(fields) = spec.as_object_mut().filter(|_| source["spec"].get(ADDED).is_none()) {
        fields.remove(ADDED);
    }
    spec == source["spec"]
}

/// The objects of one resource.
fn of<'a>(objects: &'a Objects, group: &str, resource: &str) -> impl Iterator<Item = (&'a ObjectKey, &'a Value)> {
    let first = ObjectKey::new(group, resource, "", "");
    let (group, resource) = (group.to_owned(), resource.to_owned());
    objects
        .range(first..)
        .take_while(move |(key, _)| key.group == group && key.resource == resource)
        .map(|(key, object)| (key, &**object))
}

/// Reason and message of a condition.
fn said(condition: Option<&Value>) -> String {
    condition.map_or_else(
        || "there is no such condition".to_owned(),
        |condition| {
            let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            format!("{}: {}", text("reason"), text("message"))
        },
    )
}
