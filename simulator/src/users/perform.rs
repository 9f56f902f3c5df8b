//! Carries the actions of users and operators out on the clusters, and records what they said by them.

use std::collections::BTreeSet;

use bindery_api::{
    annotations,
    conditions::{OBJECTS_IN_SYNC, ORPHANED_OBJECTS},
    holder::{HELD, HolderDigest, HolderOrder},
    names,
    orphans::{OrphanAction, OrphanOrder, OrphanSet},
    retention::{RetentionAction, RetentionOrder},
    v1alpha2::GroupResource,
};
use bindery_simulator_apiserver::{ApiServer, ObjectKey};
use serde_json::{Value, json};

use super::{
    Action, Circumstance, Consent, Ending, Kind, Ledger, ObjectName, Propagation, Relation, Said, Word,
    bind::{self, WantedBind},
    hands::{BINDINGS, BUNDLES, DEFINITIONS, Hands, NAMESPACES, Resource, core},
    install, namespace_name, object_name,
};
use crate::{
    invariants::{
        BESIDE, STEADY,
        convergence::{ADDED, CLAIMED},
        marks,
    },
    topology::{
        BoundBy, ClaimedResource, Cluster, DeletionPolicy, PLURAL, Selection, Topology, definition_name, group,
        offer_name,
    },
    world::World,
};

/// All people of a seed.
#[derive(Debug)]
pub struct Users {
    topology: Topology,
    /// What users said, and what happened to clusters.
    pub ledger: Ledger,
    pending: Vec<WantedBind>,
}

impl Users {
    /// Installs what administrators install, and begins the binds of the topology.
    pub fn start(world: &mut World, topology: &Topology) -> Self {
        install::install(world, topology);
        Self {
            topology: topology.clone(),
            ledger: Ledger::default(),
            pending: Vec::new(),
        }
    }

    /// Whether the servers have installed what offers and binds need.
    pub fn may_bind(&self, world: &mut World) -> bool {
        install::is_ready(world, &self.topology)
    }

    /// Offers the APIs of the topology, and begins its binds. The servers have to be ready.
    pub fn bind_all(&mut self, world: &mut World) {
        install::offer_all(world, &self.topology);
        for (consumer, setup) in self.topology.consumer_numbers().zip(self.topology.consumers.clone()) {
            for binding in setup.bindings {
                let relation = Relation {
                    consumer,
                    provider: binding.provider,
                };
                self.begin(world, relation, binding.by, binding.policy);
            }
        }
    }

    fn begin(&mut self, world: &mut World, relation: Relation, by: BoundBy, policy: DeletionPolicy) {
        let wanted = WantedBind { relation, by, policy };
        self.pending.retain(|pending| pending.relation != relation);
        if !self.bind(world, &wanted) {
            self.pending.push(wanted);
        }
        self.note_binding(world, relation);
    }

    /// Tells the ledger which binding there is, if there is one.
    fn note_binding(&mut self, world: &mut World, relation: Relation) {
        if let Some(binding) = binding(world, relation) {
            self.ledger.bound(relation, marks::uid(&binding));
        }
    }

    /// The uses of APIs that the topology begins with and that have no binding.
    pub fn unbound(&self, world: &mut World) -> Vec<Relation> {
        let mut missing = Vec::new();
        for (consumer, setup) in self.topology.consumer_numbers().zip(&self.topology.consumers) {
            let provider = |binding: &crate::topology::BindingSetup| binding.provider;
            for provider in setup.bindings.iter().map(provider) {
                let relation = Relation { consumer, provider };
                if binding(world, relation).is_none() {
                    missing.push(relation);
                }
            }
        }
        missing
    }

    /// Tries binds again that failed. Returns whether some have still failed.
    pub fn bind_again(&mut self, world: &mut World) -> bool {
        let pending = std::mem::take(&mut self.pending);
        let left = pending.into_iter().filter(|wanted| !self.bind(world, wanted));
        self.pending = left.collect();
        !self.pending.is_empty()
    }

    /// Binds, and notes what the user says by it of a binding or a CRD that ends already. Returns whether the bind succeeded.
    fn bind(&mut self, world: &mut World, wanted: &WantedBind) -> bool {
        let relation = wanted.relation;
        let before = binding(world, relation);
        if !bind::bind(world, wanted) {
            return false;
        }
        if wanted.policy != DeletionPolicy::Delete {
            if let Some(before) = before.filter(|before| before["spec"]["deletionPolicy"] == "Delete") {
                self.ledger.took_back(relation, marks::uid(&before), world.elapsed());
            }
            return true;
        }
        let ends = |object: Option<Value>| object.is_some_and(|object| marks::is_deleting(&object));
        if ends(binding(world, relation)) {
            self.note_end(world, relation, None);
        } else if ends(definition(world, relation)) {
            // The konnector has not let the objects go yet, and what the binding says by then is about them too.
            let only = sources(world, relation);
            self.note_end(world, relation, Some(&only));
        }
        true
    }

    /// Does one action. Returns whether it changed something.
    pub fn perform(&mut self, world: &mut World, action: Action) -> bool {
        let before = world.changed_by_people();
        self.act(world, action);
        world.changed_by_people() != before
    }

    fn act(&mut self, world: &mut World, action: Action) {
        world.note(&action.to_string());
        match action {
            Action::Create { on, object } => self.create(world, on, object),
            Action::Edit { on, object } => self.edit(world, on, object),
            Action::Refer { on, object, to } => {
                let serial = self.ledger.next_serial();
                let references: Vec<_> = to.iter().map(|to| json!({"name": object_name(*to)})).collect();
                let patch = json!({"spec": {"serial": serial, "references": references}});
                self.merge(world, on, object, &patch);
            }
            Action::Label { on, object, claimed } => {
                let label = if claimed { json!("true") } else { Value::Null };
                self.merge(world, on, object, &json!({"metadata": {"labels": {(CLAIMED): label}}}));
            }
            Action::Delete {
                on,
                object,
                propagation,
            } => {
                let (group, namespace, name) = self.place(object);
                if let Some(mut hands) = Hands::on(world, on) {
                    hands.delete(resource(object, &group), (&namespace, &name), propagation);
                }
            }
            Action::StripFinalizers { on, object } => {
                let is_deleting = self
                    .find(world, on, object)
                    .is_some_and(|object| marks::is_deleting(&object));
                if is_deleting {
                    self.merge(world, on, object, &json!({"metadata": {"finalizers": null}}));
                }
            }
            Action::Pause { on, object, paused } => {
                let value = if paused { json!("true") } else { Value::Null };
                let patch = json!({"metadata": {"annotations": {(annotations::PAUSED): value}}});
                self.merge(world, on, object, &patch);
            }
            Action::SetStatus { relation, object } => {
                let serial = self.ledger.next_serial();
                let patch = json!({"status": {"serial": serial, "phase": format!("phase-{serial}")}});
                if let Some((key, mut hands)) = self.copy(world, relation, object) {
                    let group = key.group.clone();
                    hands.merge_sub(resource(object, &group), (&key.namespace, &key.name), "status", &patch);
                }
            }
            Action::EditCopy {
                relation,
                object,
                overwrite,
            } => {
                let serial = self.ledger.next_serial();
                let field = if overwrite { "note" } else { ADDED };
                let patch = json!({"spec": {(field): format!("operator-{serial}")}});
                if let Some((key, mut hands)) = self.copy(world, relation, object) {
                    let group = key.group.clone();
                    hands.merge(resource(object, &group), &key.namespace, &key.name, &patch);
                    if overwrite {
                        self.ledger.overwrote(relation.provider, key);
                    }
                }
            }
            Action::DeleteCopy { relation, object } => {
                if let Some((key, mut hands)) = self.copy(world, relation, object) {
                    let group = key.group.clone();
                    hands.delete(
                        resource(object, &group),
                        (&key.namespace, &key.name),
                        Propagation::Background,
                    );
                }
            }
            Action::Provide {
                relation,
                object,
                delete,
            } => self.provide(world, relation, object, delete),
            Action::PutBeside { relation, namespace } => Self::put_beside(world, relation, namespace),
            _ => self.act_on_more(world, action),
        }
    }

    /// Does an action that is about more than one object: a namespace, or the use of an API.
    fn act_on_more(&mut self, world: &mut World, action: Action) {
        match action {
            Action::CreateNamespace { on, namespace } => {
                if let Some(mut hands) = Hands::on(world, on) {
                    hands.create(NAMESPACES, "", &install::namespace(&namespace_name(namespace)));
                }
            }
            Action::DeleteNamespace { on, namespace } => {
                if let Some(mut hands) = Hands::on(world, on) {
                    hands.delete(NAMESPACES, ("", &namespace_name(namespace)), Propagation::Background);
                }
            }
            Action::ForceNamespace { on, namespace } => {
                let name = namespace_name(namespace);
                let Some(mut hands) = Hands::on(world, on) else { return };
                let is_deleting = hands
                    .get(NAMESPACES, "", &name)
                    .is_some_and(|object| marks::is_deleting(&object));
                if is_deleting {
                    hands.finalize(&name);
                    if let Some(consumer) = on.consumer() {
                        self.ledger.of_consumer(consumer, Circumstance::NamespaceForced);
                    }
                }
            }
            Action::Unbind { relation, force } => {
                self.note_binding(world, relation);
                self.ledger.of_relation(relation, Circumstance::UnboundByCall);
                bind::unbind(world, relation, force);
            }
            Action::End {
                relation,
                what,
                propagation,
            } => self.end(world, relation, what, propagation),
            Action::Prune { relation } => self.prune(world, relation),
            Action::Bind { relation, by, policy } => self.begin(world, relation, by, policy),
            Action::PauseBinding { relation, paused } => {
                let value = if paused { json!("true") } else { Value::Null };
                annotate_binding(world, relation, annotations::PAUSED, &value);
            }
            Action::EndRetention {
                relation,
                object,
                discard,
            } => self.end_retention(world, relation, object, discard),
            Action::Consent { relation, to } => {
                self.consent(world, relation, Some(to));
            }
            _ => {}
        }
    }

    /// Orders what becomes of the retained copy of a deleted object, as `kubectl bind restore` and `discard` do.
    fn end_retention(&mut self, world: &mut World, relation: Relation, object: ObjectName, discard: bool) {
        let Some(binding) = binding(world, relation) else {
            return;
        };
        let (group, namespace, name) = self.place(object);
        let on = Cluster::Consumer(relation.consumer);
        let is_there = namespace.is_empty()
            || Hands::on(world, on).is_some_and(|hands| hands.get(NAMESPACES, "", &namespace).is_some());
        if !discard && !is_there {
            // The page on the command says that the namespace has to exist.
            return;
        }
        if discard {
            let said = Said {
                word: Word::Discarded,
                binding: marks::uid(&binding).to_owned(),
                only: None,
            };
            self.ledger.bound(relation, marks::uid(&binding));
            self.ledger.say(relation, said);
        }
        let order = RetentionOrder {
            action: if discard {
                RetentionAction::Discard
            } else {
                RetentionAction::Restore
            },
            resource: GroupResource::new(group, PLURAL),
            namespace,
            name,
        };
        annotate_binding(world, relation, annotations::END_RETENTION, &json!(order.to_string()));
    }

    fn create(&mut self, world: &mut World, on: Cluster, object: ObjectName) {
        let serial = self.ledger.next_serial();
        let (group, namespace, name) = self.place(object);
        let mut metadata = json!({"name": name});
        if !namespace.is_empty() {
            metadata["namespace"] = json!(namespace);
        }
        let document = match object.kind {
            Kind::Bound(_) => json!({
                "apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": metadata,
                "spec": {"serial": serial, "note": format!("note-{serial}")},
            }),
            Kind::Claimed(provider, resource) => {
                metadata["labels"] = json!({(CLAIMED): "true"});
                metadata["annotations"] = json!({(marks::SERIAL): serial.to_string()});
                let claim = self.topology.offer(provider).and_then(|offer| offer.claim(resource));
                if object.name == 0 && claim.is_some_and(|claim| claim.selection == Selection::Named) {
                    metadata["annotations"][STEADY] = json!(provider.to_string());
                }
                let (kind, data) = content(object, serial);
                json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data})
            }
        };
        if let Some(mut hands) = Hands::on(world, on) {
            hands.create(resource(object, &group), &namespace, &document);
        }
    }

    fn edit(&mut self, world: &mut World, on: Cluster, object: ObjectName) {
        let serial = self.ledger.next_serial();
        let patch = match object.kind {
            Kind::Bound(_) => json!({"spec": {"serial": serial, "note": format!("note-{serial}")}}),
            Kind::Claimed(..) => {
                let (_, data) = content(object, serial);
                json!({"metadata": {"annotations": {(marks::SERIAL): serial.to_string()}}, "data": data})
            }
        };
        self.merge(world, on, object, &patch);
    }

    fn merge(&self, world: &mut World, on: Cluster, object: ObjectName, patch: &Value) {
        let (group, namespace, name) = self.place(object);
        if let Some(mut hands) = Hands::on(world, on) {
            hands.merge(resource(object, &group), &namespace, &name, patch);
        }
    }

    fn find(&self, world: &mut World, on: Cluster, object: ObjectName) -> Option<Value> {
        let (group, namespace, name) = self.place(object);
        Hands::on(world, on)?.get(resource(object, &group), &namespace, &name)
    }

    /// API group, namespace and name of an object of a consumer.
    fn place(&self, object: ObjectName) -> (String, String, String) {
        let group = match object.kind {
            Kind::Bound(provider) => group(provider),
            Kind::Claimed(..) => String::new(),
        };
        let namespace = if object.is_namespaced(&self.topology) {
            namespace_name(object.namespace)
        } else {
            String::new()
        };
        (group, namespace, object_name(object.name))
    }

    /// The copy of an object on a provider.
    fn copy<'w>(&self, world: &'w mut World, relation: Relation, object: ObjectName) -> Option<(ObjectKey, Hands<'w>)> {
        let source = self.find(world, Cluster::Consumer(relation.consumer), object)?;
        let uid = marks::uid(&source).to_owned();
        let on = Cluster::Provider(relation.provider);
        let group = group(relation.provider);
        let is_its = |copy: &Value| marks::copy_on_provider(copy).is_some_and(|copy| copy.source == uid);
        let found = world
            .api(on)?
            .objects()
            .find(|(key, copy)| key.group == group && key.resource == PLURAL && is_its(copy));
        let key = found?.0.clone();
        Some((key, Hands::on(world, on)?))
    }

    /// The provider namespace of a consumer's namespace.
    fn provider_namespace(world: &mut World, relation: Relation, namespace: u8) -> Option<String> {
        let contract = bind::contract(world, relation.consumer)?;
        let name = names::provider_namespace(&contract, &namespace_name(namespace));
        let hands = Hands::on(world, Cluster::Provider(relation.provider))?;
        hands.get(NAMESPACES, "", &name).map(|_| name)
    }

    fn provide(&mut self, world: &mut World, relation: Relation, object: ObjectName, delete: bool) {
        let serial = self.ledger.next_serial();
        let Some(place) = Self::provider_namespace(world, relation, object.namespace) else {
            return;
        };
        let name = object_name(object.name);
        let resource = resource(object, "");
        let Some(mut hands) = Hands::on(world, Cluster::Provider(relation.provider)) else {
            return;
        };
        if delete {
            hands.delete(resource, (&place, &name), Propagation::Background);
            return;
        }
        let (kind, data) = content(object, serial);
        let metadata = json!({
            "name": name, "namespace": place, "labels": {(CLAIMED): "true"},
            "annotations": {(marks::SERIAL): serial.to_string()},
        });
        if let Some(object) = hands.get(resource, &place, &name) {
            if marks::copy_on_provider(&object).is_some() {
                let key = ObjectKey::new(resource.group, resource.plural, &place, &name);
                self.ledger.overwrote(relation.provider, key);
            }
            hands.merge(resource, &place, &name, &json!({"data": data}));
        } else {
            let document = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data});
            hands.create(resource, &place, &document);
        }
    }

    fn put_beside(world: &mut World, relation: Relation, namespace: u8) {
        let Some(place) = Self::provider_namespace(world, relation, namespace) else {
            return;
        };
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "operators-own", "namespace": place, "labels": {(BESIDE): "true"}},
            "data": {"keep": "this"},
        });
        if let Some(mut hands) = Hands::on(world, Cluster::Provider(relation.provider)) {
            hands.create(core("configmaps"), &place, &object);
        }
    }

    /// Notes that a user ended the use of an API, and what they said by it. `only` has the UIDs of the sources that this is
    /// about, if it is not about all.
    fn note_end(&mut self, world: &mut World, relation: Relation, only: Option<&BTreeSet<String>>) {
        let Some(binding) = binding(world, relation) else {
            // A bundle may have bound nothing yet.
            self.ledger.of_relation(relation, Circumstance::Unbound);
            return;
        };
        self.ledger.bound(relation, marks::uid(&binding));
        let taken_back = self
            .ledger
            .has_lately_taken_back(relation, marks::uid(&binding), world.elapsed());
        let mut say = |word| {
            let said = Said {
                word,
                binding: marks::uid(&binding).to_owned(),
                only: only.cloned(),
            };
            self.ledger.say(relation, said);
        };
        let circumstance = match binding["spec"]["deletionPolicy"].as_str() {
            Some("Delete") => {
                say(Word::DeletePolicy);
                Circumstance::UnboundDeleting
            }
            Some("Orphan") => {
                say(Word::KeepsCopies);
                Circumstance::UnboundKeeping
            }
            _ => {
                say(Word::KeepsCopies);
                Circumstance::Unbound
            }
        };
        if taken_back {
            say(Word::DeletePolicy);
        }
        self.ledger.of_relation(relation, circumstance);
    }

    fn end(&mut self, world: &mut World, relation: Relation, what: Ending, propagation: Propagation) {
        let provider = relation.provider;
        let (resource, name) = match what {
            Ending::Binding => (BINDINGS, offer_name(provider)),
            Ending::Bundle => (BUNDLES, bind::bundle_name(provider)),
            Ending::Definition => (DEFINITIONS, definition_name(provider)),
        };
        let on = Cluster::Consumer(relation.consumer);
        let exists = Hands::on(world, on).is_some_and(|hands| hands.get(resource, "", &name).is_some());
        if !exists {
            return;
        }
        let only = (what == Ending::Definition).then(|| sources(world, relation));
        self.note_end(world, relation, only.as_ref());
        if what != Ending::Definition && propagation == Propagation::Orphan {
            let binding = binding(world, relation);
            self.ledger.orphan(relation, binding.as_ref().map_or("", marks::uid));
        }
        if let Some(mut hands) = Hands::on(world, on) {
            hands.delete(resource, ("", &name), propagation);
        }
    }

    fn prune(&mut self, world: &mut World, relation: Relation) {
        self.note_end(world, relation, None);
        let Some(mut hands) = Hands::on(world, Cluster::Consumer(relation.consumer)) else {
            return;
        };
        let provider = relation.provider;
        let bundle = bind::bundle_name(provider);
        let (resource, name, by) = match hands.get(BUNDLES, "", &bundle) {
            Some(_) => (BUNDLES, bundle, BoundBy::Bundle),
            None => (BINDINGS, offer_name(provider), BoundBy::Binding),
        };
        let secret = bind::secret_name(provider, by);
        hands.delete(resource, ("", &name), Propagation::Foreground);
        hands.delete(
            core("secrets"),
            (names::KUBE_BIND_NAMESPACE, &secret),
            Propagation::Foreground,
        );
    }

    /// Consents to what a condition of the binding asks, if it asks: only to this, or to anything. Returns whether it asked.
    pub fn consent(&mut self, world: &mut World, relation: Relation, only: Option<Consent>) -> bool {
        let Some(binding) = binding(world, relation) else {
            return false;
        };
        let Some(asked) = asked(&binding).filter(|asked| only.is_none_or(|only| only == *asked)) else {
            return false;
        };
        // Where nothing was restored or lost, nobody knows why the konnector asks.
        if asked == Consent::Holder && !self.ledger.may_ask_for_holder(relation) {
            return false;
        }
        self.ledger.bound(relation, marks::uid(&binding));
        let until = world.now() + jiff::SignedDuration::from_hours(1);
        let mut say = |word, only| {
            let said = Said {
                word,
                binding: marks::uid(&binding).to_owned(),
                only,
            };
            self.ledger.say(relation, said);
        };
        let (key, value) = match asked {
            Consent::Orphans => {
                // The user speaks of sources that are missing now.
                say(Word::OrphansDeleted, Some(missing(world, relation)));
                let order = OrphanOrder {
                    action: OrphanAction::Delete,
                    orphans: orphans(&binding).unwrap_or_default(),
                };
                (annotations::END_ORPHANS, order.to_string())
            }
            Consent::Unbind => {
                say(Word::ConsentUnbind, None);
                (annotations::ALLOW_UNBIND, until.to_string())
            }
            Consent::ProviderChange => (annotations::ACCEPT_PROVIDER_CHANGE, until.to_string()),
            Consent::Force => (annotations::FORCE_UNBIND, annotations::TRUE.to_owned()),
            Consent::Holder => {
                self.ledger.accept(relation);
                let order = holder_asked(&binding).unwrap_or(HolderOrder::BeginAnew);
                (annotations::ACCEPT_HOLDER, order.to_string())
            }
            Consent::Adopt => (annotations::ADOPT_BY, offer_name(relation.provider)),
        };
        world.note(&format!("  {relation} asks for consent: {asked:?}"));
        if asked == Consent::Adopt {
            let name = definition_name(relation.provider);
            if let Some(mut hands) = Hands::on(world, Cluster::Consumer(relation.consumer)) {
                hands.merge(
                    DEFINITIONS,
                    "",
                    &name,
                    &json!({"metadata": {"annotations": {(key): value}}}),
                );
            }
            return true;
        }
        annotate_binding(world, relation, key, &json!(value));
        true
    }

    /// Consents to whatever conditions ask, on all consumers. Returns whether any asked.
    pub fn consent_to_all(&mut self, world: &mut World) -> bool {
        let topology = self.topology.clone();
        let mut any = false;
        for consumer in topology.consumer_numbers() {
            for provider in topology.provider_numbers() {
                any |= self.consent(world, Relation { consumer, provider }, None);
            }
        }
        any
    }
}

/// UIDs of the sources that a relation has on its consumer: bound objects, and those that may be claimed.
fn sources(world: &mut World, relation: Relation) -> BTreeSet<String> {
    let group = group(relation.provider);
    let is_source = |key: &ObjectKey| key.group == group || matches!(&*key.resource, "secrets" | "configmaps");
    let api = world.api(Cluster::Consumer(relation.consumer));
    let objects = api.into_iter().flat_map(ApiServer::objects);
    objects
        .filter(|(key, _)| is_source(key))
        .map(|(_, object)| marks::uid(object).to_owned())
        .collect()
}

/// UIDs of the sources of a consumer's copies on a provider that do not exist.
fn missing(world: &mut World, relation: Relation) -> BTreeSet<String> {
    let Some(contract) = bind::contract(world, relation.consumer) else {
        return BTreeSet::new();
    };
    let exist = sources(world, relation);
    let api = world.api(Cluster::Provider(relation.provider));
    let copies = api.into_iter().flat_map(ApiServer::objects);
    let copies = copies.filter_map(|(_, object)| marks::copy_on_provider(object));
    copies
        .filter(|copy| copy.contract == contract && !exist.contains(copy.source))
        .map(|copy| copy.source.to_owned())
        .collect()
}

/// What the conditions of a binding ask the user to consent to.
fn asked(binding: &Value) -> Option<Consent> {
    let conditions = binding["status"]["conditions"].as_array()?;
    let messages = conditions
        .iter()
        .filter(|condition| condition["status"] != "True" || condition["type"] == "Draining")
        .filter_map(|condition| condition["message"].as_str());
    if holder_asked(binding).is_some() {
        return Some(Consent::Holder);
    }
    let mut asked = messages.filter_map(|message| {
        [
            (annotations::ALLOW_UNBIND, Consent::Unbind),
            (annotations::ACCEPT_PROVIDER_CHANGE, Consent::ProviderChange),
            (annotations::FORCE_UNBIND, Consent::Force),
            (annotations::ADOPT_BY, Consent::Adopt),
        ]
        .into_iter()
        .find(|(key, _)| message.contains(key))
        .map(|(_, consent)| consent)
    });
    asked.next().or_else(|| orphans(binding).map(|_| Consent::Orphans))
}

/// What the conditions of a binding ask the user to accept: that this cluster goes on with the contract, or that older states of
/// objects are written.
fn holder_asked(binding: &Value) -> Option<HolderOrder> {
    let conditions = binding["status"]["conditions"].as_array()?;
    let is_false = |condition: &&Value, kind: &str| condition["type"] == kind && condition["status"] == "False";
    if let Some(held) = conditions.iter().find(|condition| is_false(condition, HELD)) {
        return HolderDigest::of_message(held["message"].as_str()?).map(HolderOrder::Accept);
    }
    let objects = conditions
        .iter()
        .find(|condition| is_false(condition, OBJECTS_IN_SYNC))?;
    let asks = objects["message"].as_str()?.contains("kubectl bind accept");
    asks.then_some(HolderOrder::BeginAnew)
}

/// The orphans that a binding tells.
fn orphans(binding: &Value) -> Option<OrphanSet> {
    let conditions = binding["status"]["conditions"].as_array()?;
    let told = conditions
        .iter()
        .find(|condition| condition["type"] == ORPHANED_OBJECTS && condition["status"] == "True")?;
    OrphanSet::of_message(told["message"].as_str()?)
}

fn resource(object: ObjectName, group: &str) -> Resource<'_> {
    match object.kind {
        Kind::Bound(_) => Resource {
            group,
            version: "v1",
            plural: PLURAL,
        },
        Kind::Claimed(_, resource) => core(resource.plural()),
    }
}

/// The binding of a relation.
fn binding(world: &mut World, relation: Relation) -> Option<Value> {
    let hands = Hands::on(world, Cluster::Consumer(relation.consumer))?;
    hands.get(BINDINGS, "", &offer_name(relation.provider))
}

/// The CRD of a relation on its consumer.
fn definition(world: &mut World, relation: Relation) -> Option<Value> {
    let hands = Hands::on(world, Cluster::Consumer(relation.consumer))?;
    hands.get(DEFINITIONS, "", &definition_name(relation.provider))
}

/// Sets an annotation of the binding of a relation.
fn annotate_binding(world: &mut World, relation: Relation, key: &str, value: &Value) {
    let name = offer_name(relation.provider);
    if let Some(mut hands) = Hands::on(world, Cluster::Consumer(relation.consumer)) {
        let patch = json!({"metadata": {"annotations": {(key): value}}});
        hands.merge(BINDINGS, "", &name, &patch);
    }
}

/// Kind and data of a claimed object.
fn content(object: ObjectName, serial: u64) -> (&'static str, Value) {
    use base64::Engine as _;
    let text = format!("value-{serial}");
    if matches!(object.kind, Kind::Claimed(_, ClaimedResource::ConfigMaps)) {
        return ("ConfigMap", json!({"value": text}));
    }
    let encoded = base64::engine::general_purpose::STANDARD.encode(text);
    ("Secret", json!({"value": encoded}))
}
