//! Tables of writes, and the violations that they are.

use std::collections::BTreeMap;

use bindery_simulator_apiserver::Actor;
use serde_json::json;

use super::*;
use crate::{
    topology::{Claim, ClaimedResource, Owner, Selection, Topology, group},
    users::{Said, Word},
};

const CONTRACT: &str = "kube-bind-c1";
const BINDER: &str = "system:serviceaccount:kube-bind-c1:kube-binder";
const KONNECTOR: &str = "system:serviceaccount:kube-bind:konnector";
const SERVER: &str = "system:serviceaccount:kube-bind:bindery-server";
const ON_CONSUMER: Cluster = Cluster::Consumer(1);
const ON_PROVIDER: Cluster = Cluster::Provider(1);
const CLONE: Cluster = Cluster::Clone(1);
const RELATION: Relation = Relation {
    consumer: 1,
    provider: 1,
};

/// Two clusters whose objects are set by hand, and the invariants that see each write.
#[derive(Default)]
struct World {
    objects: BTreeMap<Cluster, BTreeMap<ObjectKey, Arc<Value>>>,
    invariants: Invariants,
    ledger: Ledger,
    now: u64,
    /// When the process that writes got its last answer from the consumer; when it sends, if not set.
    informed: Option<u64>,
}

impl Clusters for BTreeMap<Cluster, BTreeMap<ObjectKey, Arc<Value>>> {
    fn object(&self, on: Cluster, key: &ObjectKey) -> Option<Arc<Value>> {
        self.get(&on)?.get(key).cloned()
    }

    fn objects(&self, on: Cluster) -> Vec<(ObjectKey, Arc<Value>)> {
        let objects = self.get(&on).into_iter().flatten();
        objects.map(|(key, object)| (key.clone(), Arc::clone(object))).collect()
    }
}

impl World {
    fn new() -> Self {
        let mut world = Self::default();
        world.invariants.identify(1, "identity-1");
        let namespace =
            json!({"metadata": {"uid": "n", "annotations": {"backend.kube-bind.io/identity": "identity-1"}}});
        world.user(
            ON_PROVIDER,
            &ObjectKey::new("", "namespaces", "", CONTRACT),
            Some(namespace),
        );
        world
    }

    fn write(&mut self, on: Cluster, by: Actor, process: Option<ProcessName>, key: &ObjectKey, after: Option<Value>) {
        self.now += 1_000;
        self.write_sent(on, by, process, key, after, (self.now, false));
    }

    /// Writes with a request that was sent at a time; `sent` has this time, and whether the network disturbed the request.
    fn write_sent(
        &mut self,
        on: Cluster,
        by: Actor,
        process: Option<ProcessName>,
        key: &ObjectKey,
        after: Option<Value>,
        (sent, is_disturbed): (u64, bool),
    ) {
        let after = after.map(Arc::new);
        let objects = self.objects.entry(on).or_default();
        let before = match &after {
            Some(after) => objects.insert(key.clone(), Arc::clone(after)),
            None => objects.remove(key),
        };
        let change = Change {
            revision: self.now,
            key: key.clone(),
            before,
            after,
            by,
            request: None,
        };
        let written = Written {
            on,
            at: self.now,
            change: &change,
            process,
            incarnation: 1,
            sent,
            informed: self.informed.unwrap_or(sent),
            is_disturbed,
        };
        self.invariants.written(&self.ledger, &self.objects, &written);
    }

    fn user(&mut self, on: Cluster, key: &ObjectKey, after: Option<Value>) {
        self.write(on, Actor::User("alice".to_owned()), None, key, after);
    }

    fn product(&mut self, account: &str, on: Cluster, key: &ObjectKey, after: Option<Value>) {
        self.write(
            on,
            Actor::User(account.to_owned()),
            Some(konnector(ON_CONSUMER, 1)),
            key,
            after,
        );
    }

    fn control_plane(&mut self, on: Cluster, key: &ObjectKey, after: Option<Value>) {
        self.write(on, Actor::Controller("any"), None, key, after);
    }

    /// A source with its copy.
    fn synced(&mut self) {
        self.user(ON_CONSUMER, &source_key(), Some(source(3)));
        self.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(3)));
    }

    /// A binding with its CRD, and its export.
    fn in_use(&mut self) {
        let definition = ObjectKey::new(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "",
            &definition_name(1),
        );
        let binding = ObjectKey::new("kube-bind.io", "apiservicebindings", "", "widgets-1");
        let export = ObjectKey::new("kube-bind.io", "apiserviceexports", CONTRACT, "widgets-1");
        let object = |uid: &str| Some(json!({"metadata": {"uid": uid, "name": "widgets-1"}, "spec": {}}));
        self.user(ON_CONSUMER, &definition, object("d"));
        self.user(ON_CONSUMER, &binding, object("b"));
        self.user(ON_PROVIDER, &export, object("e"));
    }

    #[track_caller]
    fn check(&self, expect: &[Invariant]) -> &Violation {
        let found: Vec<_> = self
            .invariants
            .violations()
            .iter()
            .map(|found| found.invariant)
            .collect();
        assert_eq!(found, expect, "{:#?}", self.invariants.violations());
        self.invariants.violations().first().unwrap_or(&NONE)
    }
}

static NONE: Violation = Violation {
    invariant: Invariant::Hang,
    at: 0,
    subject: String::new(),
    message: String::new(),
    circumstances: BTreeSet::new(),
};

fn konnector(of: Cluster, replica: u8) -> ProcessName {
    ProcessName::Konnector { of, replica }
}

fn source_key() -> ObjectKey {
    ObjectKey::new(&group(1), "widgets", "team-1", "object-1")
}

fn copy_key() -> ObjectKey {
    ObjectKey::new(&group(1), "widgets", "kube-bind-c1-team-1", "object-1")
}

fn source(serial: u64) -> Value {
    json!({"metadata": {"uid": "s", "name": "object-1", "annotations": {"kube-bind.io/provider-uid": "c"}}, "spec": {"serial": serial}})
}

fn copy(serial: u64) -> Value {
    json!({"metadata": {"uid": "c", "annotations": {
        "kube-bind.io/cluster-namespace": CONTRACT, "kube-bind.io/consumer-uid": "s", "kube-bind.io/consumer-namespace": "team-1",
    }}, "spec": {"serial": serial}})
}

/// The copy, retained, with more annotations.
fn retained(more: &[(&str, &str)]) -> Value {
    let mut object = copy(3);
    let mark = format!("s/{CONTRACT}/2026-01-01T00:00:00Z");
    object["metadata"]["annotations"][bindery_api::annotations::RETAINED] = json!(mark);
    for (key, value) in more {
        object["metadata"]["annotations"][*key] = json!(value);
    }
    object
}

/// The ClusterBinding of the contract, with a step of its holder.
fn held_contract() -> (ObjectKey, Value) {
    let key = ObjectKey::new("kube-bind.io", "clusterbindings", CONTRACT, "cluster");
    let held = json!({
        "metadata": {"name": "cluster", "namespace": CONTRACT, "uid": "cluster-binding"},
        "status": {"conditions": [{"type": "Held", "status": "True", "message": "i/7/n"}]},
    });
    (key, held)
}

/// An object that the operator put into a provider namespace.
fn operators_own() -> Value {
    let labels = json!({"example.dev/operators-own": "true"});
    json!({"metadata": {"uid": "k", "namespace": "kube-bind-c1-team-1", "labels": labels}})
}

/// An object with the konnector's finalizer.
fn held(mut object: Value) -> Value {
    object["metadata"]["finalizers"] = json!([bindery_api::finalizers::SYNCER]);
    object
}

/// A consent to deletions that was given while these sources were missing.
fn consent(missing: &[&str]) -> Said {
    Said {
        word: Word::OrphansDeleted,
        binding: String::new(),
        only: Some(missing.iter().map(|uid| (*uid).to_owned()).collect()),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as the object after a write is given")]
fn deleting(mut object: Value) -> Option<Value> {
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    Some(object)
}

#[test]
fn a_copy_goes_after_a_user_deleted_its_source() {
    let mut world = World::new();
    world.synced();
    world.user(ON_CONSUMER, &source_key(), deleting(source(3)));
    world.product(BINDER, ON_PROVIDER, &copy_key(), None);
    world.product(KONNECTOR, ON_CONSUMER, &source_key(), None);
    world.check(&[]);
}

#[test]
fn a_copy_goes_after_a_user_deleted_the_namespace_of_its_source() {
    let mut world = World::new();
    let namespace = ObjectKey::new("", "namespaces", "", "team-1");
    let object = json!({"metadata": {"uid": "n1", "name": "team-1"}});
    world.user(ON_CONSUMER, &namespace, Some(object.clone()));
    world.synced();
    world.user(ON_CONSUMER, &namespace, deleting(object));
    world.control_plane(ON_CONSUMER, &source_key(), deleting(source(3)));
    world.product(BINDER, ON_PROVIDER, &copy_key(), deleting(copy(3)));
    world.check(&[]);
}

#[test]
fn a_copy_whose_source_lives_does_not_go() {
    let mut world = World::new();
    world.synced();
    world.product(BINDER, ON_PROVIDER, &copy_key(), None);
    let found = world.check(&[Invariant::CopyEndedWithoutEvidence]);
    assert!(found.circumstances.contains(&Circumstance::SourceLives), "{found}");
    // The operator may delete it.
    let mut world = World::new();
    world.synced();
    world.user(ON_PROVIDER, &copy_key(), None);
    world.check(&[]);
}

#[test]
fn a_lost_source_is_no_evidence() {
    let mut world = World::new();
    world.synced();
    world.objects.get_mut(&ON_CONSUMER).unwrap().clear();
    world.invariants.rewound(&world.objects, ON_CONSUMER);
    world.product(BINDER, ON_PROVIDER, &copy_key(), None);
    let found = world.check(&[Invariant::CopyEndedWithoutEvidence]);
    assert!(found.circumstances.contains(&Circumstance::SourceLost), "{found}");
    // Where the user consents, the copy may go.
    let mut world = World::new();
    world.synced();
    world.objects.get_mut(&ON_CONSUMER).unwrap().clear();
    world.invariants.rewound(&world.objects, ON_CONSUMER);
    world.ledger.say(RELATION, consent(&["s"]));
    world.product(BINDER, ON_PROVIDER, &copy_key(), None);
    world.check(&[]);
    // The consent is not about sources that are made or lost later.
    let mut world = World::new();
    world.synced();
    world.ledger.say(RELATION, consent(&["t"]));
    world.objects.get_mut(&ON_CONSUMER).unwrap().clear();
    world.invariants.rewound(&world.objects, ON_CONSUMER);
    world.product(BINDER, ON_PROVIDER, &copy_key(), None);
    world.check(&[Invariant::CopyEndedWithoutEvidence]);
}

#[test]
fn a_deletion_that_a_restore_took_back_is_no_evidence() {
    let mut world = World::new();
    world.synced();
    world.user(ON_CONSUMER, &source_key(), deleting(source(3)));
    let objects = world.objects.get_mut(&ON_CONSUMER).unwrap();
    objects.insert(source_key(), Arc::new(source(3)));
    world.invariants.rewound(&world.objects, ON_CONSUMER);
    world.product(BINDER, ON_PROVIDER, &copy_key(), None);
    let found = world.check(&[Invariant::CopyEndedWithoutEvidence]);
    assert!(found.circumstances.contains(&Circumstance::SourceRevived), "{found}");
    // Where the user deletes it again, there is evidence.
    let mut world = World::new();
    world.synced();
    world.user(ON_CONSUMER, &source_key(), deleting(source(3)));
    let objects = world.objects.get_mut(&ON_CONSUMER).unwrap();
    objects.insert(source_key(), Arc::new(source(3)));
    world.invariants.rewound(&world.objects, ON_CONSUMER);
    world.user(ON_CONSUMER, &source_key(), deleting(source(3)));
    world.product(BINDER, ON_PROVIDER, &copy_key(), None);
    world.check(&[]);
}

#[test]
fn a_request_that_a_restore_overtakes_had_its_evidence() {
    let overtaken = |after: u64, informed: Option<u64>| {
        let mut world = World::new();
        world.synced();
        world.user(ON_CONSUMER, &source_key(), deleting(source(3)));
        let objects = world.objects.get_mut(&ON_CONSUMER).unwrap();
        objects.insert(source_key(), Arc::new(source(3)));
        world.invariants.pass(world.now + 500);
        world.invariants.rewound(&world.objects, ON_CONSUMER);
        let sent = (world.now + after, true);
        world.informed = informed.map(|after| world.now + after);
        world.now += 1_000;
        let (by, process) = (Actor::User(BINDER.to_owned()), Some(konnector(ON_CONSUMER, 1)));
        world.write_sent(ON_PROVIDER, by, process, &copy_key(), None, sent);
        world
    };
    overtaken(100, None).check(&[]);
    overtaken(600, None).check(&[Invariant::CopyEndedWithoutEvidence]);
    overtaken(600, Some(400)).check(&[]);
    overtaken(600, Some(550)).check(&[Invariant::CopyEndedWithoutEvidence]);
}

#[test]
fn a_deletion_on_the_clone_is_no_evidence() {
    let mut world = World::new();
    world.synced();
    let clone = Cluster::Clone(1);
    world.user(clone, &source_key(), Some(source(3)));
    world.user(clone, &source_key(), deleting(source(3)));
    world.product(BINDER, ON_PROVIDER, &copy_key(), None);
    world.check(&[Invariant::CopyEndedWithoutEvidence]);
}

#[test]
fn a_deletion_on_a_clone_that_holds_the_contract_is_evidence() {
    let write = |world: &mut World, key: &ObjectKey, after: Option<Value>| {
        let (by, process) = (Actor::User(BINDER.to_owned()), konnector(Cluster::Clone(1), 1));
        world.write(ON_PROVIDER, by, Some(process), key, after);
    };
    let ended = |is_deleted: bool| {
        let mut world = World::new();
        world.synced();
        let clone = Cluster::Clone(1);
        world.user(clone, &source_key(), Some(source(3)));
        if is_deleted {
            world.user(clone, &source_key(), deleting(source(3)));
        }
        let (key, held) = held_contract();
        write(&mut world, &key, Some(held));
        write(&mut world, &copy_key(), None);
        world
    };
    ended(true).check(&[]);
    ended(false).check(&[Invariant::CopyEndedWithoutEvidence]);
}

#[test]
fn a_copy_is_retained_only_with_evidence() {
    let until = [(bindery_api::annotations::RETAINED_UNTIL, "2026-01-04T00:00:00Z")];
    let mut world = World::new();
    world.synced();
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(retained(&until)));
    let found = world.check(&[Invariant::CopyEndedWithoutEvidence]);
    assert!(found.message.contains("was retained"), "{found}");
    // The server ends it at its time, though a restore of the consumer took the deletion back.
    let mut world = World::new();
    world.synced();
    world.user(ON_CONSUMER, &source_key(), deleting(source(3)));
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(retained(&until)));
    let objects = world.objects.get_mut(&ON_CONSUMER).unwrap();
    objects.insert(source_key(), Arc::new(source(3)));
    world.invariants.rewound(&world.objects, ON_CONSUMER);
    world.product(SERVER, ON_PROVIDER, &copy_key(), None);
    world.check(&[]);
}

#[test]
fn the_end_of_a_crd_is_no_evidence() {
    let mut world = World::new();
    world.synced();
    // There is no CRD in this world, which counts as one that is gone.
    world.control_plane(ON_CONSUMER, &source_key(), deleting(source(3)));
    world.product(BINDER, ON_PROVIDER, &copy_key(), None);
    let found = world.check(&[Invariant::CopyEndedWithoutEvidence]);
    assert!(
        found.circumstances.contains(&Circumstance::SourceEndedWithDefinition),
        "{found}"
    );
}

#[test]
fn the_konnector_deletes_nothing_of_the_users() {
    let mut world = World::new();
    world.synced();
    world.product(KONNECTOR, ON_CONSUMER, &source_key(), deleting(source(3)));
    world.product(BINDER, ON_PROVIDER, &copy_key(), None);
    world.check(&[Invariant::ConsumerObjectDeleted, Invariant::CopyEndedWithoutEvidence]);
    let mut world = World::new();
    let secret = ObjectKey::new("", "secrets", "team-1", "mine");
    world.user(ON_CONSUMER, &secret, Some(json!({"metadata": {"uid": "1"}})));
    world.product(KONNECTOR, ON_CONSUMER, &secret, None);
    world.check(&[Invariant::ConsumerObjectDeleted]);
    // A copy of a provider's object is the konnector's own.
    let mut world = World::new();
    let object = json!({"metadata": {"uid": "1", "labels": {"kube-bind.io/owner": "provider"},
        "annotations": {"kube-bind.io/provider-uid": "2"}}});
    world.product(KONNECTOR, ON_CONSUMER, &secret, Some(object));
    world.product(KONNECTOR, ON_CONSUMER, &secret, None);
    world.check(&[]);
}

#[test]
fn the_konnector_overwrites_nothing_of_the_users() {
    let secret = |namespace: &str| ObjectKey::new("", "secrets", namespace, "mine");
    let object = |data: &str| Some(json!({"metadata": {"uid": "1"}, "data": {"value": data}}));
    let mut world = World::new();
    world.user(ON_CONSUMER, &secret("team-1"), object("a"));
    world.product(KONNECTOR, ON_CONSUMER, &secret("team-1"), object("a"));
    world.user(ON_CONSUMER, &secret("team-1"), object("b"));
    // The konnector renews the credentials in its own namespace.
    world.user(ON_CONSUMER, &secret("kube-bind"), object("a"));
    world.product(KONNECTOR, ON_CONSUMER, &secret("kube-bind"), object("b"));
    world.check(&[]);
    world.product(KONNECTOR, ON_CONSUMER, &secret("team-1"), object("c"));
    world.check(&[Invariant::ConsumerObjectOverwritten]);
}

#[test]
fn an_older_state_never_replaces_a_newer_one() {
    let mut world = World::new();
    world.synced();
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(5)));
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(5)));
    world.check(&[]);
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(4)));
    world.check(&[Invariant::SpecRewound]);
    // After the provider itself went back in time, only what it has now counts.
    let mut world = World::new();
    world.synced();
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(5)));
    let objects = world.objects.get_mut(&ON_PROVIDER).unwrap();
    objects.insert(copy_key(), Arc::new(copy(3)));
    world.invariants.rewound(&world.objects, ON_PROVIDER);
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(4)));
    world.check(&[]);
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(2)));
    world.check(&[Invariant::SpecRewound]);
}

#[test]
fn only_a_disturbed_request_is_overtaken() {
    let overtaken = |is_disturbed: bool, process: ProcessName| -> bool {
        let mut world = World::new();
        world.synced();
        world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(5)));
        let (by, sent) = (Actor::User(BINDER.to_owned()), (world.now - 10, is_disturbed));
        world.write_sent(ON_PROVIDER, by, Some(process), &copy_key(), Some(copy(4)), sent);
        let found = world.check(&[Invariant::SpecRewound]);
        found.circumstances.contains(&Circumstance::RequestOvertaken)
    };
    assert!(overtaken(true, konnector(ON_CONSUMER, 1)));
    assert!(!overtaken(false, konnector(ON_CONSUMER, 1)));
    assert!(overtaken(false, konnector(ON_CONSUMER, 2)));
}

#[test]
fn a_creation_that_is_overtaken_replaces_nothing() {
    let created_again = |is_disturbed: bool| -> World {
        let mut world = World::new();
        world.synced();
        let sent = (world.now, is_disturbed);
        world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(5)));
        world.user(ON_CONSUMER, &source_key(), None);
        world.product(BINDER, ON_PROVIDER, &copy_key(), None);
        let (by, process) = (Actor::User(BINDER.to_owned()), Some(konnector(ON_CONSUMER, 1)));
        world.write_sent(ON_PROVIDER, by, process, &copy_key(), Some(copy(3)), sent);
        world
    };
    created_again(false).check(&[Invariant::SpecRewound]);
    let mut world = created_again(true);
    world.check(&[]);
    // A write that leaves the state of the copy as it is replaces nothing either.
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(3)));
    world.check(&[]);
    // The newest state is still the one before it.
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(5)));
    world.check(&[]);
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(4)));
    world.check(&[Invariant::SpecRewound]);
}

#[test]
fn only_its_binding_lets_a_copy_change_its_source() {
    let accepting = |provider: u8| {
        let binding = ObjectKey::new("kube-bind.io", "apiservicebindings", "", &offer_name(provider));
        let mut world = World::new();
        world.synced();
        let object = json!({"metadata": {"uid": "b", "annotations": {"kube-bind.io/accept-provider-change": "any"}}});
        world.user(ON_CONSUMER, &binding, Some(object));
        let mut other = copy(3);
        other["metadata"]["annotations"]["kube-bind.io/consumer-uid"] = json!("t");
        world.product(BINDER, ON_PROVIDER, &copy_key(), Some(other));
        world
    };
    accepting(1).check(&[]);
    accepting(2).check(&[Invariant::CopyOverwritten]);
}

#[test]
fn a_retained_copy_becomes_that_of_what_was_restored_from_it() {
    let restored = |by: &str, of: &str| {
        let mut object = source(3);
        object["metadata"]["uid"] = json!("t");
        object["metadata"]["annotations"][bindery_api::annotations::ADOPTED] = json!(of);
        let mut linked = copy(3);
        linked["metadata"]["annotations"]["kube-bind.io/consumer-uid"] = json!("t");
        let mut world = World::new();
        world.synced();
        world.user(ON_CONSUMER, &source_key(), deleting(source(3)));
        world.product(BINDER, ON_PROVIDER, &copy_key(), Some(retained(&[])));
        world.product(KONNECTOR, ON_CONSUMER, &source_key(), None);
        world.product(by, ON_CONSUMER, &source_key(), Some(object));
        world.product(BINDER, ON_PROVIDER, &copy_key(), Some(linked));
        world
    };
    restored(KONNECTOR, "c").check(&[]);
    restored(KONNECTOR, "d").check(&[Invariant::CopyOverwritten]);
    restored("alice", "c").check(&[Invariant::CopyOverwritten]);
}

#[test]
fn a_contract_writes_only_what_is_its_own() {
    let mut world = World::new();
    world.synced();
    let other = "system:serviceaccount:kube-bind-c2:kube-binder";
    world.product(other, ON_PROVIDER, &copy_key(), Some(copy(4)));
    world.check(&[Invariant::WriteAcrossContracts]);
    let mut world = World::new();
    let namespace = ObjectKey::new("", "namespaces", "", "kube-bind-c2-team-1");
    let object = json!({"metadata": {"uid": "x", "labels": {"kube-bind.io/contract": "kube-bind-c2"}}});
    world.product(SERVER, ON_PROVIDER, &namespace, Some(object));
    let key = ObjectKey::new("", "secrets", "kube-bind-c2-team-1", "any");
    world.product(BINDER, ON_PROVIDER, &key, Some(json!({"metadata": {"uid": "y"}})));
    world.check(&[Invariant::WriteAcrossContracts]);
    // Its own mark does not make an object its own in the namespace of another contract.
    let mut world = World::new();
    let object = json!({"metadata": {"uid": "x", "labels": {"kube-bind.io/contract": "kube-bind-c2"}}});
    world.product(SERVER, ON_PROVIDER, &namespace, Some(object));
    world.product(BINDER, ON_PROVIDER, &key, Some(copy(3)));
    world.check(&[Invariant::WriteAcrossContracts]);
}

#[test]
fn a_contract_creates_nothing_for_another_contract() {
    let other = "system:serviceaccount:kube-bind-c2:kube-binder";
    let mut world = World::new();
    world.product(other, ON_PROVIDER, &copy_key(), Some(copy(3)));
    world.check(&[Invariant::WriteAcrossContracts]);
    let mut world = World::new();
    world.synced();
    let key = ObjectKey::new(&group(1), "widgets", "", "kube-bind-c1-object-1");
    world.product(other, ON_PROVIDER, &key, Some(json!({"metadata": {"uid": "y"}})));
    world.check(&[Invariant::WriteAcrossContracts]);
}

#[test]
fn a_contract_does_not_take_copies_of_another_on_the_consumer() {
    let key = ObjectKey::new("", "secrets", "team-1", "given");
    let object = |contract: &str| {
        Some(
            json!({"metadata": {"uid": "g", "annotations": {"kube-bind.io/provider-uid": "p"},
            "labels": {"kube-bind.io/owner": "provider", "kube-bind.io/contract-uid": contract}}}),
        )
    };
    // `n` is the UID of the contract's namespace; its contract is known after its first write.
    let mut world = World::new();
    world.synced();
    world.product(KONNECTOR, ON_CONSUMER, &key, object("n"));
    world.product(KONNECTOR, ON_CONSUMER, &key, object("n"));
    world.check(&[]);
    world.product(KONNECTOR, ON_CONSUMER, &key, object("other"));
    world.check(&[Invariant::WriteAcrossContracts]);
    // A contract that has ended may be replaced.
    let mut world = World::new();
    world.synced();
    world.product(KONNECTOR, ON_CONSUMER, &key, object("ended"));
    world.product(KONNECTOR, ON_CONSUMER, &key, object("n"));
    world.check(&[]);
}

#[test]
fn a_source_is_held_until_its_copy_is_gone() {
    // Whether the provider was restored, and whether that brought the copy back, which had ended.
    let is_early = |is_restored: bool, is_revived: bool| {
        let mut world = World::new();
        world.in_use();
        world.user(ON_CONSUMER, &source_key(), Some(held(source(3))));
        world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(3)));
        if is_revived {
            world.user(ON_PROVIDER, &copy_key(), None);
            let objects = world.objects.get_mut(&ON_PROVIDER).unwrap();
            objects.insert(copy_key(), Arc::new(copy(3)));
        }
        if is_restored {
            world.ledger.of_provider(1, Circumstance::ProviderRestoredInPlace);
            world.invariants.rewound(&world.objects, ON_PROVIDER);
        }
        world.product(KONNECTOR, ON_CONSUMER, &source_key(), Some(source(3)));
        let found = world.invariants.violations().iter();
        let found: Vec<_> = found.map(|found| found.invariant).collect();
        found.contains(&Invariant::SourceReleasedEarly)
    };
    assert!(is_early(false, false));
    assert!(is_early(true, false), "the restore did nothing to this copy");
    assert!(
        !is_early(true, true),
        "the konnector may have seen that the copy was gone"
    );
}

#[test]
fn a_source_does_not_wait_for_a_copy_that_a_clone_made_again() {
    let is_early = |has_ended: bool| {
        let mut world = World::new();
        world.in_use();
        world.user(ON_CONSUMER, &source_key(), Some(held(source(3))));
        if has_ended {
            world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(3)));
            world.product(BINDER, ON_PROVIDER, &copy_key(), None);
        }
        clone_writes(&mut world, 3);
        world.product(KONNECTOR, ON_CONSUMER, &source_key(), Some(source(3)));
        world.invariants.has(Invariant::SourceReleasedEarly)
    };
    assert!(is_early(false), "the clone made it when there was none");
    assert!(!is_early(true), "the konnector saw that it was gone");
}

#[test]
fn a_former_leader_does_not_write() {
    let lease = |name: &str| Some(json!({"metadata": {"uid": "l"}, "spec": {"holderIdentity": name}}));
    let key = ObjectKey::new("coordination.k8s.io", "leases", "kube-bind", "kube-bind");
    let (first, second) = (Some(konnector(ON_CONSUMER, 1)), Some(konnector(ON_CONSUMER, 2)));
    let konnector = || Actor::User(KONNECTOR.to_owned());
    let mut world = World::new();
    world.write(ON_CONSUMER, konnector(), first, &key, lease("a"));
    world.synced();
    world.check(&[]);
    world.write(ON_CONSUMER, konnector(), second, &key, lease("b"));
    world.write(
        ON_PROVIDER,
        Actor::User(BINDER.to_owned()),
        second,
        &copy_key(),
        Some(copy(4)),
    );
    world.check(&[]);
    world.write(
        ON_PROVIDER,
        Actor::User(BINDER.to_owned()),
        first,
        &copy_key(),
        Some(copy(5)),
    );
    world.check(&[Invariant::WriteByFormerLeader]);
}

#[test]
fn a_leader_whose_lease_a_restore_took_back_learns_it_at_its_next_renewal() {
    let lease = |name: &str| Some(json!({"metadata": {"uid": "l"}, "spec": {"holderIdentity": name}}));
    let key = ObjectKey::new("coordination.k8s.io", "leases", "kube-bind", "kube-bind");
    let (first, second) = (Some(konnector(ON_CONSUMER, 1)), Some(konnector(ON_CONSUMER, 2)));
    let writes_after = |millis: u64, writer: Option<ProcessName>| {
        let mut world = World::new();
        world.synced();
        let konnector = || Actor::User(KONNECTOR.to_owned());
        world.write(ON_CONSUMER, konnector(), first, &key, lease("a"));
        world.invariants.rewound(&world.objects, ON_CONSUMER);
        world.write(ON_CONSUMER, konnector(), second, &key, lease("b"));
        world.now += millis;
        world.write(
            ON_PROVIDER,
            Actor::User(BINDER.to_owned()),
            writer,
            &copy_key(),
            Some(copy(4)),
        );
        world.invariants.has(Invariant::WriteByFormerLeader)
    };
    assert!(!writes_after(4_000, first));
    assert!(writes_after(60_000, first));
    assert!(!writes_after(60_000, second));
}

#[test]
fn a_former_leader_writes_no_other_object_either() {
    let lease = |name: &str| Some(json!({"metadata": {"uid": "l"}, "spec": {"holderIdentity": name}}));
    let lease_key = ObjectKey::new("coordination.k8s.io", "leases", "kube-bind", "kube-bind");
    let (first, second) = (Some(konnector(ON_CONSUMER, 1)), Some(konnector(ON_CONSUMER, 2)));
    let writes = |key: &ObjectKey, before: Option<Value>, after: Option<Value>| {
        let mut world = World::new();
        let konnector = || Actor::User(KONNECTOR.to_owned());
        if before.is_some() {
            world.user(ON_CONSUMER, key, before);
        }
        world.write(ON_CONSUMER, konnector(), first, &lease_key, lease("a"));
        world.write(ON_CONSUMER, konnector(), second, &lease_key, lease("b"));
        world.write(ON_CONSUMER, konnector(), first, key, after);
        world.invariants.has(Invariant::WriteByFormerLeader)
    };
    let object = |status: u8| Some(json!({"metadata": {"uid": "x"}, "status": {"at": status}}));
    let binding = ObjectKey::new("kube-bind.io", "apiservicebindings", "", "widgets-1");
    assert!(writes(&binding, object(1), object(2)));
    assert!(writes(&binding, object(1), None));
    let event = ObjectKey::new("", "events", "kube-bind", "e");
    assert!(!writes(&event, None, object(1)));
    let heartbeat = ObjectKey::new("kube-bind.io", "clusterbindings", CONTRACT, "cluster");
    assert!(!writes(&heartbeat, object(1), object(2)));
    let own = ObjectKey::new(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "",
        "apiservicebindings.kube-bind.io",
    );
    assert!(!writes(&own, None, object(1)));
}

#[test]
fn a_former_leader_of_servers_does_not_write_as_a_controller() {
    let lease = |name: &str| Some(json!({"metadata": {"uid": "l"}, "spec": {"holderIdentity": name}}));
    let lease_key = ObjectKey::new("coordination.k8s.io", "leases", "kube-bind", "bindery-server");
    let server = |replica| Some(ProcessName::Server { provider: 1, replica });
    let writes = |resource: &str, group: &str| {
        let mut world = World::new();
        let by = || Actor::User(SERVER.to_owned());
        world.write(ON_PROVIDER, by(), server(1), &lease_key, lease("a"));
        world.write(ON_PROVIDER, by(), server(2), &lease_key, lease("b"));
        let key = ObjectKey::new(group, resource, CONTRACT, "any");
        let object = Some(json!({"metadata": {"uid": "x"}}));
        world.write(ON_PROVIDER, by(), server(1), &key, object);
        world.invariants.has(Invariant::WriteByFormerLeader)
    };
    assert!(writes("roles", "rbac.authorization.k8s.io"));
    assert!(writes("apiservicenamespaces", "kube-bind.io"));
    assert!(
        !writes("bindableresourcesrequests", "kube-bind.io"),
        "each replica answers calls"
    );
}

#[test]
fn the_konnector_of_a_clone_does_not_write() {
    let mut world = World::new();
    world.synced();
    let clone = Some(konnector(Cluster::Clone(1), 1));
    world.write(
        ON_PROVIDER,
        Actor::User(BINDER.to_owned()),
        clone,
        &copy_key(),
        Some(copy(3)),
    );
    let found = world.check(&[Invariant::WriteByClone]);
    assert!(found.circumstances.contains(&Circumstance::WriterIsClone), "{found}");
}

/// The konnector whose cluster is `of` writes the record of the contract's holder; with `contested` it contests it.
fn writes_record(world: &mut World, of: Cluster, record: &str, contested: bool) {
    let key = ObjectKey::new("kube-bind.io", "clusterbindings", CONTRACT, "cluster");
    let status = if contested { "False" } else { "True" };
    let held = json!({
        "metadata": {"name": "cluster", "namespace": CONTRACT, "uid": "cluster-binding"},
        "status": {"conditions": [{"type": "Held", "status": status, "message": record}]},
    });
    let by = Actor::User(BINDER.to_owned());
    world.write(ON_PROVIDER, by, Some(konnector(of, 1)), &key, Some(held));
}

/// The clone's konnector writes a state of the copy.
fn clone_writes(world: &mut World, serial: u64) {
    let by = Actor::User(BINDER.to_owned());
    let process = Some(konnector(CLONE, 1));
    world.write(ON_PROVIDER, by, process, &copy_key(), Some(copy(serial)));
}

/// A world with a clone whose backup has the step `i/7/n`.
fn with_clone() -> World {
    let mut world = World::new();
    world.synced();
    writes_record(&mut world, ON_CONSUMER, "i/7/n", false);
    let lease_key = ObjectKey::new("coordination.k8s.io", "leases", "kube-bind", "kube-bind");
    let note = format!("{}/n", bindery_api::annotations::HOLDER);
    let chain = json!({"current": "i/7/n"}).to_string();
    let lease = json!({"metadata": {"uid": "l", "annotations": {(note): chain}}});
    world.user(CLONE, &lease_key, Some(lease));
    world
}

#[test]
fn the_konnector_of_a_clone_that_holds_the_contract_may_write() {
    let mut world = with_clone();
    writes_record(&mut world, CLONE, "i/8/m", false);
    clone_writes(&mut world, 3);
    world.check(&[]);
    // Before that, it does not hold the contract.
    let mut world = with_clone();
    clone_writes(&mut world, 3);
    world.check(&[Invariant::WriteByClone]);
}

#[test]
fn the_clone_of_a_consumer_has_pauses_of_its_own() {
    let is_written = |on: Cluster, of: Cluster| {
        let mut world = World::new();
        world.synced();
        let mut paused = source(3);
        paused["metadata"]["annotations"] = json!({(bindery_api::annotations::PAUSED): "true"});
        world.user(on, &source_key(), Some(paused));
        let by = Actor::User(BINDER.to_owned());
        world.write(ON_PROVIDER, by, Some(konnector(of, 1)), &copy_key(), Some(copy(4)));
        world.invariants.has(Invariant::PausedObjectWritten)
    };
    assert!(is_written(ON_CONSUMER, ON_CONSUMER));
    assert!(is_written(CLONE, CLONE));
    assert!(!is_written(ON_CONSUMER, CLONE));
    assert!(!is_written(CLONE, ON_CONSUMER));
}

#[test]
fn a_clone_takes_a_contract_only_from_the_last_step_of_its_backup() {
    let mut world = with_clone();
    writes_record(&mut world, ON_CONSUMER, "i/8/o", false);
    writes_record(&mut world, CLONE, "i/9/m", false);
    world.check(&[Invariant::WriteByClone]);
    let mut world = with_clone();
    writes_record(&mut world, ON_CONSUMER, "i/7/n", true);
    writes_record(&mut world, CLONE, "i/8/m", false);
    world.check(&[Invariant::WriteByClone]);
}

#[test]
fn a_clone_stops_when_its_contract_is_contested() {
    let mut world = with_clone();
    writes_record(&mut world, CLONE, "i/8/m", false);
    writes_record(&mut world, ON_CONSUMER, "i/8/m", true);
    clone_writes(&mut world, 3);
    world.check(&[]);
    world.now += 120_000;
    clone_writes(&mut world, 3);
    world.check(&[Invariant::WriteByClone]);
}

#[test]
fn a_later_clone_does_not_hold_what_a_former_one_took() {
    let mut world = with_clone();
    writes_record(&mut world, CLONE, "i/8/m", false);
    world.invariants.rewound(&world.objects, CLONE);
    clone_writes(&mut world, 3);
    world.check(&[Invariant::WriteByClone]);
}

#[test]
fn a_clone_makes_a_copy_again_and_rewinds_none() {
    let mut world = with_clone();
    writes_record(&mut world, CLONE, "i/8/m", false);
    clone_writes(&mut world, 2);
    world.check(&[Invariant::SpecRewound]);
    let mut world = with_clone();
    world.user(ON_CONSUMER, &source_key(), deleting(source(3)));
    world.product(BINDER, ON_PROVIDER, &copy_key(), None);
    writes_record(&mut world, CLONE, "i/8/m", false);
    clone_writes(&mut world, 2);
    world.check(&[]);
}

#[test]
fn a_copy_that_had_gone_with_a_source_that_a_restore_brings_back_is_made_from_what_the_backup_has() {
    let mut world = World::new();
    world.synced();
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(5)));
    world.user(ON_CONSUMER, &source_key(), deleting(source(5)));
    world.product(BINDER, ON_PROVIDER, &copy_key(), None);
    let objects = world.objects.get_mut(&ON_CONSUMER).unwrap();
    objects.insert(source_key(), Arc::new(source(3)));
    world.invariants.rewound(&world.objects, ON_CONSUMER);
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(3)));
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(7)));
    world.check(&[]);
    // From then on its newest state counts again, also if the operator deletes it.
    world.user(ON_PROVIDER, &copy_key(), None);
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(3)));
    world.check(&[Invariant::SpecRewound]);
}

#[test]
fn a_retained_copy_ends_by_the_server_at_its_time() {
    let until = (bindery_api::annotations::RETAINED_UNTIL, "2026-01-04T00:00:00Z");
    let soon = (bindery_api::annotations::RETAINED_UNTIL, "2026-01-01T01:00:00Z");
    let restoring = (bindery_api::annotations::RESTORING, "true");
    for (by, marks, is_allowed) in [
        (SERVER, &[until][..], true),
        (SERVER, &[], false),
        (SERVER, &[until, restoring], true),
        (SERVER, &[soon, restoring], false),
        (SERVER, &[restoring], false),
        (BINDER, &[until], false),
    ] {
        let mut world = World::new();
        world.synced();
        world.user(ON_CONSUMER, &source_key(), deleting(source(3)));
        world.product(BINDER, ON_PROVIDER, &copy_key(), Some(retained(marks)));
        world.product(KONNECTOR, ON_CONSUMER, &source_key(), None);
        world.product(by, ON_PROVIDER, &copy_key(), None);
        world.check(if is_allowed {
            &[]
        } else {
            &[Invariant::RetainedCopyEnded]
        });
    }
}

#[test]
fn a_retained_copy_says_until_when_in_the_end() {
    let mut world = ready();
    let mark = format!("s/{CONTRACT}/2026-01-01T00:00:00Z");
    let released = format!("2026-01-02T00:00:00Z/{CONTRACT}");
    let retained = (bindery_api::annotations::RETAINED, mark.as_str());
    let until = (bindery_api::annotations::RETAINED_UNTIL, "2026-02-01T00:00:00Z");
    let released = (bindery_api::annotations::RELEASED, released.as_str());
    let mut check = |marks: &[(&str, &str)], expect: bool| {
        let mut object = copy(3);
        for (key, value) in marks {
            object["metadata"]["annotations"][*key] = json!(value);
        }
        world.product(SERVER, ON_PROVIDER, &copy_key(), Some(object));
        let found = differences(&mut world, &Topology::pair());
        let is_found = found
            .iter()
            .any(|found| found == "NotConverged: it is retained, and nothing says until when");
        assert_eq!(is_found, expect, "{marks:?}: {found:?}");
    };
    check(&[], false);
    check(&[retained], true);
    check(&[retained, until], false);
    check(&[retained, released], false);
}

#[test]
fn the_operators_own_objects_stay() {
    let mut world = World::new();
    let (place, key) = (
        ObjectKey::new("", "namespaces", "", "kube-bind-c1-team-1"),
        ObjectKey::new("", "configmaps", "kube-bind-c1-team-1", "keep"),
    );
    let namespace = json!({"metadata": {"uid": "p", "labels": {"kube-bind.io/contract": CONTRACT}}});
    let object = operators_own();
    world.product(SERVER, ON_PROVIDER, &place, Some(namespace.clone()));
    world.user(ON_PROVIDER, &key, Some(object.clone()));
    world.product(SERVER, ON_PROVIDER, &place, deleting(namespace.clone()));
    world.control_plane(ON_PROVIDER, &key, None);
    let found = world.check(&[Invariant::OperatorObjectDeleted]);
    assert!(found.circumstances.contains(&Circumstance::ObjectsBeside), "{found}");
    // Where the operator deletes the namespace, the objects go with it.
    let mut world = World::new();
    world.product(SERVER, ON_PROVIDER, &place, Some(namespace.clone()));
    world.user(ON_PROVIDER, &key, Some(object));
    world.user(ON_PROVIDER, &place, deleting(namespace.clone()));
    world.control_plane(ON_PROVIDER, &key, None);
    world.check(&[]);
    // While the konnector holds a bound object of the namespace, the product does not give it back.
    let mut world = World::new();
    world.in_use();
    world.product(SERVER, ON_PROVIDER, &place, Some(namespace.clone()));
    world.user(ON_PROVIDER, &key, Some(operators_own()));
    world.user(ON_CONSUMER, &source_key(), Some(held(source(3))));
    world.product(SERVER, ON_PROVIDER, &place, deleting(namespace));
    world.control_plane(ON_PROVIDER, &key, None);
    let found = world.check(&[Invariant::OperatorObjectDeleted]);
    assert!(!found.circumstances.contains(&Circumstance::ObjectsBeside), "{found}");
}

#[test]
fn a_restore_is_told_of_the_objects_that_it_set_back() {
    // Two sources are restored, and only the state of one is another.
    let mut world = World::new();
    let with_version = |mut object: Value, version: &str| {
        object["metadata"]["resourceVersion"] = json!(version);
        object
    };
    world.user(ON_CONSUMER, &source_key(), Some(with_version(source(3), "1")));
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(3)));
    world.user(ON_CONSUMER, &source_key(), Some(with_version(source(5), "2")));
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(5)));
    let objects = world.objects.get_mut(&ON_CONSUMER).unwrap();
    objects.insert(source_key(), Arc::new(with_version(source(3), "1")));
    world.invariants.rewound(&world.objects, ON_CONSUMER);
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(3)));
    let found = world.check(&[Invariant::SpecRewound]);
    assert!(found.circumstances.contains(&Circumstance::SourceRewound), "{found}");
    // Also where the cluster had lost the source before.
    let mut world = World::new();
    world.user(ON_CONSUMER, &source_key(), Some(with_version(source(5), "2")));
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(5)));
    world.objects.get_mut(&ON_CONSUMER).unwrap().clear();
    world.invariants.rewound(&world.objects, ON_CONSUMER);
    let objects = world.objects.get_mut(&ON_CONSUMER).unwrap();
    objects.insert(source_key(), Arc::new(with_version(source(3), "1")));
    world.invariants.rewound(&world.objects, ON_CONSUMER);
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(3)));
    let found = world.check(&[Invariant::SpecRewound]);
    assert!(found.circumstances.contains(&Circumstance::SourceRewound), "{found}");
    // Without a restore the same is something else.
    let mut world = World::new();
    world.synced();
    world.product(BINDER, ON_PROVIDER, &copy_key(), Some(copy(2)));
    let found = world.check(&[Invariant::SpecRewound]);
    assert!(found.circumstances.is_empty(), "{found}");
}

#[test]
fn unrest_of_a_server_has_the_circumstances_of_the_consumer() {
    let mut world = World::new();
    world.synced();
    world.ledger.of_consumer(1, Circumstance::ConsumerRestoredBeside);
    let World {
        invariants,
        ledger,
        objects,
        ..
    } = &mut world;
    let mut check = |namespace: &str, contract: Option<&str>, expect: bool| {
        let labels = contract.map_or_else(|| json!({}), |contract| json!({"kube-bind.io/contract": contract}));
        let change = Change {
            revision: 1,
            key: ObjectKey::new("rbac.authorization.k8s.io", "roles", namespace, "role"),
            before: None,
            after: Some(Arc::new(json!({"metadata": {"uid": "r", "labels": labels}}))),
            by: Actor::User(SERVER.to_owned()),
            request: None,
        };
        let written = Written {
            on: ON_PROVIDER,
            at: 0,
            change: &change,
            process: None,
            incarnation: 1,
            sent: 0,
            informed: 0,
            is_disturbed: false,
        };
        let found = invariants.unrest(ledger, objects, &written).unwrap();
        let is_told = found.circumstances.contains(&Circumstance::ConsumerRestoredBeside);
        assert_eq!(is_told, expect, "{namespace}: {found}");
    };
    check("other", Some(CONTRACT), true);
    check(CONTRACT, None, true);
    check("kube-bind-c1-team-1", None, true);
    check("kube-bind-c12", None, false);
    check("other", None, false);
}

#[test]
fn a_binding_without_a_contract_is_not_ready() {
    let mut world = World::new();
    world.objects.get_mut(&ON_PROVIDER).unwrap().clear();
    world.invariants = Invariants::default();
    let binding = ObjectKey::new("kube-bind.io", "apiservicebindings", "", "widgets-1");
    world.user(
        ON_CONSUMER,
        &binding,
        Some(json!({"metadata": {"uid": "b", "name": "widgets-1"}, "spec": {}})),
    );
    let World {
        invariants,
        ledger,
        objects,
        ..
    } = &mut world;
    let found = invariants.differences(&Topology::pair(), ledger, objects, 0);
    let found: Vec<_> = found.iter().map(|found| found.invariant).collect();
    assert_eq!(found, [Invariant::NotReady]);
}

/// What is not as it has to be in the end, in words.
fn differences(world: &mut World, topology: &Topology) -> Vec<String> {
    let World {
        invariants,
        ledger,
        objects,
        ..
    } = world;
    let found = invariants.differences(topology, ledger, objects, 0);
    found
        .into_iter()
        .map(|found| format!("{}: {}", found.invariant, found.message))
        .collect()
}

/// A world with a binding that is ready, and a source with its copy.
fn ready() -> World {
    let mut world = World::new();
    world.in_use();
    let binding = ObjectKey::new("kube-bind.io", "apiservicebindings", "", "widgets-1");
    let object = json!({"metadata": {"uid": "b", "name": "widgets-1"}, "spec": {}, "status": {"conditions": [
        {"type": "Ready", "status": "True"},
    ]}});
    world.user(ON_CONSUMER, &binding, Some(object));
    world.synced();
    world
}

/// A pair whose offer claims Secrets with label `claimed=true`.
fn claiming(owner: Owner) -> Topology {
    let mut topology = Topology::pair();
    topology.providers[0].offer.claims = vec![Claim {
        resource: ClaimedResource::Secrets,
        selection: Selection::Labelled,
        owner,
    }];
    topology
}

#[test]
fn the_deletion_of_an_empty_provider_namespace_ends() {
    let mut world = ready();
    let differ = |world: &mut World| differences(world, &Topology::pair());
    let object = |finalizer: &str| deleting(json!({"metadata": {"uid": "ns", "finalizers": [finalizer]}}));
    let key = |name: &str| ObjectKey::new("kube-bind.io", "apiservicenamespaces", CONTRACT, name);
    world.user(ON_PROVIDER, &key("team-1"), object("kube-bind.io/namespace"));
    assert!(differ(&mut world).is_empty(), "a copy is left in the namespace");
    world.user(ON_PROVIDER, &key("team-2"), object("example.dev/other"));
    assert!(differ(&mut world).is_empty());
    world.user(ON_PROVIDER, &key("team-2"), object("kube-bind.io/namespace"));
    assert_eq!(differ(&mut world), ["NotConverged: its deletion does not end"]);
}

#[test]
fn a_bundle_makes_the_binding_of_its_export() {
    let mut world = ready();
    let binding = ObjectKey::new("kube-bind.io", "apiservicebindings", "", "widgets-1");
    let bundle = ObjectKey::new("kube-bind.io", "apiservicebindingbundles", "", "bundle-1");
    let object = |message: &str| {
        json!({"metadata": {"uid": "bundle", "name": "bundle-1"}, "status": {"conditions": [
            {"type": "Ready", "status": "False", "message": message},
        ]}})
    };
    let found = |world: &mut World| -> Vec<String> {
        let found = differences(world, &Topology::pair()).into_iter();
        found.filter(|found| found.starts_with("NotReady")).collect()
    };
    world.user(ON_CONSUMER, &bundle, Some(object("why")));
    assert!(found(&mut world).is_empty());
    world.user(ON_CONSUMER, &binding, None);
    assert_eq!(found(&mut world), ["NotReady: it has no binding for its export"]);
    world.user(
        ON_CONSUMER,
        &bundle,
        Some(object("set kube-bind.io/accept-provider-change")),
    );
    assert!(found(&mut world).is_empty(), "it waits for its user");
    world.user(ON_CONSUMER, &bundle, deleting(object("why")));
    assert_eq!(found(&mut world), ["NotReady: it is being deleted, and does not end"]);
}

#[test]
fn copies_of_the_consumers_objects_that_are_claimed_no_more_go() {
    let (mut world, topology) = (ready(), claiming(Owner::Consumer));
    let key = ObjectKey::new("", "secrets", "team-1", "object-2");
    let place = ObjectKey::new("", "secrets", "kube-bind-c1-team-1", "object-2");
    let object = |claimed: &str| {
        let labels = json!({"claimed": claimed});
        Some(json!({"metadata": {"uid": "x", "labels": labels}, "data": {"a": "b"}}))
    };
    let copy = json!({"metadata": {"uid": "y", "labels": {"kube-bind.io/owner": "consumer"}, "annotations": {
        "kube-bind.io/cluster-namespace": CONTRACT, "kube-bind.io/consumer-uid": "x",
    }}, "data": {"a": "b"}});
    world.user(ON_CONSUMER, &key, object("true"));
    world.product(BINDER, ON_PROVIDER, &place, Some(copy));
    assert!(differences(&mut world, &topology).is_empty());
    world.user(ON_CONSUMER, &key, object("false"));
    let expect = ["NotConverged: it is claimed no more, and its copy is left"];
    assert_eq!(differences(&mut world, &topology), expect);
    world.product(BINDER, ON_PROVIDER, &place, None);
    assert!(differences(&mut world, &topology).is_empty());
}

#[test]
fn copies_of_the_providers_objects_that_are_claimed_no_more_go() {
    let (mut world, topology) = (ready(), claiming(Owner::Provider));
    let key = ObjectKey::new("", "secrets", "kube-bind-c1-team-1", "object-2");
    let place = ObjectKey::new("", "secrets", "team-1", "object-2");
    let object = |claimed: &str| {
        let labels = json!({"claimed": claimed});
        Some(json!({"metadata": {"uid": "x", "labels": labels}, "data": {"a": "b"}}))
    };
    // `n` is the UID of the contract's namespace.
    let copy = json!({"metadata": {"uid": "y", "annotations": {"kube-bind.io/provider-uid": "x"},
        "labels": {"kube-bind.io/owner": "provider", "kube-bind.io/contract-uid": "n"}}, "data": {"a": "b"}});
    world.user(ON_PROVIDER, &key, object("true"));
    world.product(KONNECTOR, ON_CONSUMER, &place, Some(copy));
    assert!(differences(&mut world, &topology).is_empty());
    world.user(ON_PROVIDER, &key, object("false"));
    let expect = ["NotConverged: its source is claimed no more, and it is left"];
    assert_eq!(differences(&mut world, &topology), expect);
    world.user(ON_PROVIDER, &key, None);
    let expect = ["NotConverged: its claimed source on the provider is gone, and it is left"];
    assert_eq!(differences(&mut world, &topology), expect);
    // A provider that went back in time withdraws nothing.
    world.ledger.of_provider(1, Circumstance::ProviderRestoredInPlace);
    assert!(differences(&mut world, &topology).is_empty());
}

#[test]
fn the_copy_of_a_providers_object_that_was_replaced_waits_for_its_user() {
    let (mut world, topology) = (ready(), claiming(Owner::Provider));
    let key = ObjectKey::new("", "secrets", "kube-bind-c1-team-1", "object-2");
    let place = ObjectKey::new("", "secrets", "team-1", "object-2");
    let object = |claimed: &str| {
        let labels = json!({"claimed": claimed});
        json!({"metadata": {"uid": "successor", "labels": labels}, "data": {"a": "b"}})
    };
    // `n` is the UID of the contract's namespace.
    let copy = json!({"metadata": {"uid": "y", "annotations": {"kube-bind.io/provider-uid": "x"},
        "labels": {"kube-bind.io/owner": "provider", "kube-bind.io/contract-uid": "n"}}, "data": {"a": "b"}});
    world.product(KONNECTOR, ON_CONSUMER, &place, Some(copy));
    world.user(ON_PROVIDER, &key, Some(object("true")));
    assert!(differences(&mut world, &topology).is_empty());
    let expect = ["NotConverged: its claimed source on the provider is gone, and it is left"];
    world.user(ON_PROVIDER, &key, Some(object("false")));
    assert_eq!(differences(&mut world, &topology), expect);
    world.user(ON_PROVIDER, &key, deleting(object("true")));
    assert_eq!(differences(&mut world, &topology), expect);
}

#[test]
fn what_converged_has_no_differences() {
    let mut world = World::new();
    let differ = |world: &mut World| differences(world, &Topology::pair());
    world.synced();
    assert!(differ(&mut world).is_empty(), "nothing is bound");
    let binding = ObjectKey::new("kube-bind.io", "apiservicebindings", "", "widgets-1");
    let object = |status: &str| {
        json!({"metadata": {"uid": "b", "name": "widgets-1"}, "spec": {}, "status": {"conditions": [
            {"type": "Ready", "status": status, "reason": "Why", "message": "because"},
        ]}})
    };
    world.user(ON_CONSUMER, &binding, Some(object("False")));
    assert_eq!(differ(&mut world), ["NotReady: it is not ready: Why: because"]);
    world.user(ON_CONSUMER, &binding, Some(object("True")));
    assert!(differ(&mut world).is_empty());
    world.user(ON_CONSUMER, &source_key(), Some(source(4)));
    assert_eq!(
        differ(&mut world),
        ["NotConverged: its state is Some(4), that of its copy Some(3)"]
    );
    // The operator may add a field. All else is that of the source.
    let mut other = copy(4);
    other["spec"]["extra"] = json!("operator");
    world.user(ON_PROVIDER, &copy_key(), Some(other.clone()));
    assert!(differ(&mut world).is_empty());
    other["spec"]["note"] = json!("of an earlier state");
    world.user(ON_PROVIDER, &copy_key(), Some(other));
    let found = differ(&mut world);
    assert!(found[0].starts_with("NotConverged: its spec is "), "{found:?}");
    world.user(ON_PROVIDER, &copy_key(), Some(copy(4)));
    let second = ObjectKey::new(&group(1), "widgets", "kube-bind-c1-team-1", "object-2");
    world.user(ON_PROVIDER, &second, Some(copy(4)));
    assert_eq!(differ(&mut world), ["NotConverged: it is a second copy of its source"]);
    world.user(ON_PROVIDER, &second, None);
    world.user(ON_CONSUMER, &source_key(), None);
    assert_eq!(
        differ(&mut world),
        ["NotConverged: a user deleted its source, and it is left"]
    );
    world.product(BINDER, ON_PROVIDER, &copy_key(), None);
    assert!(differ(&mut world).is_empty());
}
