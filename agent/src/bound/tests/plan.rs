#[path = "plan/adoption.rs"]
mod adoption;
#[path = "plan/retained.rs"]
mod retained;

use bindery_api::annotations;
use bindery_runtime::cache::ObjectKey;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    bound::{learn::Learned, retention::resumed},
    index::{Index, PlannedUids},
    model::{
        Placement,
        object::{Names, Object, Version},
        projection,
    },
};

const CONTRACT: &str = "kube-bind-abc";
const PLACE: &str = "kube-bind-abc-wild-west";
const MODE: Mode = Mode {
    draining: false,
    status_subresource: true,
    closing: false,
    assumed: false,
    last_wins: false,
    relink: false,
    keeps: false,
    older_source: false,
    order: None,
    retains: false,
    suspends: false,
    ends_retention: None,
    adoption: Adoption::Off,
    since: None,
    installed: None,
};

/// Two clusters with one object at most, which do what an API server would.
#[derive(Debug)]
struct World {
    consumer: Option<Value>,
    provider: Option<Value>,
    version: u64,
    uids: u32,
    writes: Vec<&'static str>,
    index: Index<Pair>,
    /// The CRD is being deleted.
    crd_ends: bool,
    /// Contracts share names, so that each records its last write in an annotation of its own.
    last_wins: bool,
}

impl World {
    fn new() -> Self {
        let mut index = Index::new(CONTRACT.into(), Placement::Mapped);
        index.set_place(&"wild-west".into(), Some(PLACE.into()), false);
        let mut listing = index.begin();
        index.consumer_listed(&mut listing, Version(0));
        index.provider_listed(&"wild-west".into(), &mut listing, Version(0));
        Self {
            consumer: None,
            provider: None,
            version: 1,
            uids: 0,
            writes: Vec::new(),
            index,
            crd_ends: false,
            last_wins: false,
        }
    }

    fn key() -> ObjectKey {
        ObjectKey::new("wild-west", "billy")
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn next_uid(&mut self) -> String {
        self.uids += 1;
        format!("uid-{}", self.uids)
    }

    fn create_consumer(&mut self, spec: u8) {
        let (uid, version) = (self.next_uid(), self.next_version());
        self.consumer = Some(json!({
            "metadata": {"name": "billy", "namespace": "wild-west", "uid": uid, "resourceVersion": version},
            "spec": {"intent": spec},
        }));
        self.show_consumer();
    }

    fn create_foreign(&mut self, annotations: &Value) {
        let (uid, version) = (self.next_uid(), self.next_version());
        self.provider = Some(json!({
            "metadata": {
                "name": "billy", "namespace": PLACE, "uid": uid, "resourceVersion": version, "annotations": annotations,
            },
            "spec": {"intent": "theirs"},
        }));
        self.show_provider();
    }

    fn set_consumer(&mut self, pointer: &str, value: Value) {
        let version = self.next_version();
        set(self.consumer.as_mut().unwrap(), pointer, value);
        set(
            self.consumer.as_mut().unwrap(),
            "/metadata/resourceVersion",
            json!(version),
        );
        self.end_if_released();
        self.show_consumer();
    }

    fn set_provider(&mut self, pointer: &str, value: Value) {
        let version = self.next_version();
        set(self.provider.as_mut().unwrap(), pointer, value);
        set(
            self.provider.as_mut().unwrap(),
            "/metadata/resourceVersion",
            json!(version),
        );
        self.show_provider();
    }

    fn delete_consumer(&mut self) {
        self.set_consumer("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    }

    fn delete_provider(&mut self) {
        self.provider = None;
        self.show_provider();
    }

    fn end_if_released(&mut self) {
        let meta = &self.consumer.as_ref().unwrap()["metadata"];
        let held = meta["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        if !meta["deletionTimestamp"].is_null() && !held {
            self.consumer = None;
        }
    }

    fn show_consumer(&mut self) {
        match &self.consumer {
            Some(value) => drop(self.index.consumer_seen(&Self::key(), parse(value))),
            None => self.index.consumer_deleted(&Self::key(), None),
        }
    }

    fn show_provider(&mut self) {
        match &self.provider {
            Some(value) => drop(self.index.provider_seen(&Self::key(), parse(value))),
            None => self.index.provider_deleted(&Self::key(), None),
        }
    }

    fn holds_content(&self) -> bool {
        let pair = self.index.pair(&Self::key()).unwrap();
        let consumer = pair.consumer.as_ref().is_some_and(|side| side.content.is_some());
        consumer || pair.provider.as_ref().is_some_and(|side| side.content.is_some())
    }

    fn plan(&mut self, mode: Mode) -> Plan {
        let Some((pair, place)) = self.index.known(&Self::key()) else {
            return Plan::default();
        };
        let mode = Mode {
            closing: place.closing || mode.closing,
            ..mode
        };
        let plan = plan(pair, &place.namespace, mode);
        if is_at_rest(pair, &place.namespace, mode) {
            assert!(
                plan.ops.is_empty() && plan.blocked.is_none(),
                "at rest, with a plan: {plan:?}"
            );
        }
        if plan.ops.is_empty() {
            pair.forget_content();
        }
        plan
    }

    /// Plans and runs operations until nothing is left to do; returns what was written.
    fn settle(&mut self, mode: Mode) -> (Vec<&'static str>, Option<Blocked>) {
        self.writes.clear();
        self.last_wins = mode.last_wins;
        for _ in 0..12 {
            let plan = self.plan(mode);
            if plan.ops.is_empty() {
                return (std::mem::take(&mut self.writes), plan.blocked);
            }
            for op in plan.ops {
                self.apply(&op);
            }
        }
        panic!("does not settle: {self:#?}");
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    fn apply(&mut self, op: &Op) {
        if !matches!(op, Op::ReadConsumer | Op::ReadProvider) {
            self.writes.push(op.name());
        }
        match op {
            Op::ReadConsumer => {
                let read = self.consumer.as_ref().map(parse);
                let planned = self.planned();
                self.index.learn(&Self::key(), Learned::Consumer(read), &planned);
            }
            Op::ReadProvider => {
                let read = self.provider.as_ref().map(parse);
                let planned = self.planned();
                self.index.learn(&Self::key(), Learned::Provider(read), &planned);
            }
            Op::Adopt { source, place } => {
                assert!(self.consumer.is_none(), "would take over an object");
                self.adopt(&resumed(source).unwrap(), place);
            }
            Op::TransferOwnership { uid, .. } => {
                assert_eq!(self.provider.as_ref().unwrap()["metadata"]["uid"], json!(uid));
                let version = self.next_version();
                set(
                    self.provider.as_mut().unwrap(),
                    "/metadata/resourceVersion",
                    json!(version),
                );
                let learned = Learned::Transferred {
                    version: Version(self.version),
                };
                let planned = self.planned();
                self.index.learn(&Self::key(), learned, &planned);
                // The watch shows the transfer after its answer.
                self.show_provider();
            }
            Op::Hold {
                version,
                finalizers,
                namespace,
                provider_uid,
            } => {
                assert_eq!(
                    json!(version.to_string()),
                    self.consumer.as_ref().unwrap()["metadata"]["resourceVersion"]
                );
                self.set_consumer("/metadata/finalizers", json!(finalizers));
                self.annotate_consumer(annotations::PROVIDER_NAMESPACE, namespace);
                self.annotate_consumer(annotations::PROVIDER_UID, provider_uid);
            }
            Op::Create { source, last } => {
                assert!(self.provider.is_none(), "would take over an object");
                let uid = self.next_uid();
                self.write_copy(source, uid, *last, &[], false);
            }
            Op::Update {
                source,
                uid,
                version,
                last,
                projections,
                has_release,
            } => {
                assert_eq!(self.provider.as_ref().unwrap()["metadata"]["uid"], json!(uid));
                assert_eq!(*version, self.copy_version());
                self.write_copy(source, uid.to_string(), *last, projections, *has_release);
            }
            Op::Status { source, .. } => {
                let status = source.as_ref().and_then(|source| source.status.as_ref());
                let status = status.map_or(Value::Null, |text| serde_json::from_str(text.get()).unwrap());
                self.set_consumer("/status", status);
            }
            Op::DeleteProvider { uid, version } => {
                assert_eq!(self.provider.as_ref().unwrap()["metadata"]["uid"], json!(uid));
                if let Some(version) = version.filter(|_| self.crd_ends) {
                    let released = Op::ReleaseProvider {
                        uid: Arc::clone(uid),
                        version,
                    };
                    return self.apply(&released);
                }
                self.delete_provider();
            }
            Op::Discard { uid, version } => {
                let meta = &self.provider.as_ref().unwrap()["metadata"];
                assert_eq!(
                    (&meta["uid"], &meta["resourceVersion"]),
                    (&json!(uid), &json!(version.to_string()))
                );
                self.delete_provider();
            }
            Op::ReleaseProvider { uid, version } => {
                let meta = &self.provider.as_ref().unwrap()["metadata"];
                assert_eq!(
                    (&meta["uid"], &meta["resourceVersion"]),
                    (&json!(uid), &json!(version.to_string()))
                );
                let at: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
                let mut marks = meta["annotations"].clone();
                marks[annotations::RELEASED] = json!(annotations::released(at, CONTRACT));
                let (planned, version) = (self.planned(), Version(self.version + 1));
                let learned = Learned::ProviderReleased {
                    uid: Arc::clone(uid),
                    version,
                    at,
                };
                self.index.learn(&Self::key(), learned, &planned);
                assert!(self.index.pair(&Self::key()).is_none_or(|pair| pair.orphan().is_none()));
                self.set_provider("/metadata/annotations", marks);
            }
            Op::Retain { .. } | Op::Restore { .. } | Op::Relink { .. } => self.mark_copy(op),
            Op::DeleteOrphan { uid } => {
                assert_eq!(self.provider.as_ref().unwrap()["metadata"]["uid"], json!(uid));
                assert!(self.consumer.is_none(), "has a source");
                self.delete_provider();
            }
            Op::DeleteConsumer { .. } => self.delete_consumer(),
            Op::Release { finalizers, .. } => {
                assert!(
                    self.provider
                        .as_ref()
                        .is_none_or(|copy| !is_copy_of(copy, self.consumer.as_ref().unwrap()))
                );
                self.set_consumer("/metadata/finalizers", json!(finalizers));
            }
        }
    }

    fn copy_version(&self) -> Version {
        parse(self.provider.as_ref().unwrap()).meta.resource_version
    }

    fn planned(&self) -> PlannedUids {
        self.index.pair(&Self::key()).map(PlannedUids::of).unwrap_or_default()
    }

    fn annotate_consumer(&mut self, key: &str, value: &str) {
        let mut annotations = self.consumer.as_ref().unwrap()["metadata"]["annotations"].clone();
        if annotations.is_null() {
            annotations = json!({});
        }
        annotations[key] = json!(value);
        self.set_consumer("/metadata/annotations", annotations);
    }

    /// Writes the copy as server-side apply does: the status and the fields of other writers stay.
    fn write_copy(
        &mut self,
        source: &Object,
        uid: String,
        last: LastProjection,
        projections: &[(Box<str>, Box<str>)],
        has_release: bool,
    ) {
        let spec = source
            .body
            .iter()
            .find(|(key, _)| &**key == "spec")
            .map(|(_, text)| text.get())
            .unwrap();
        let mut spec: Value = serde_json::from_str(spec).unwrap();
        let status = self
            .provider
            .as_ref()
            .map(|copy| copy["status"].clone())
            .unwrap_or_default();
        if let Some(added) = self
            .provider
            .as_ref()
            .map(|copy| &copy["spec"]["added"])
            .filter(|added| !added.is_null())
        {
            spec["added"] = added.clone();
        }
        let version = self.next_version();
        let mut marks = json!({
            annotations::CLUSTER_NAMESPACE: CONTRACT,
            annotations::CONSUMER_UID: source.meta.uid,
            annotations::BOUND: annotations::TRUE,
            annotations::PROJECTION_HASH: last.to_string(),
        });
        for (key, value) in projections {
            marks[&**key] = json!(value);
        }
        if has_release {
            marks[annotations::RELEASED] = json!("");
        }
        if self.last_wins {
            marks[projection::key_of(CONTRACT)] = json!(last.to_string());
        }
        self.provider = Some(json!({
            "metadata": {
                "name": "billy", "namespace": PLACE, "uid": uid, "resourceVersion": version,
                "labels": source.meta.labels, "annotations": marks,
            },
            "spec": spec,
        }));
        if !status.is_null() {
            set(self.provider.as_mut().unwrap(), "/status", status);
        }
        let learned = Learned::Written {
            uid: uid.into(),
            source_uid: Arc::clone(&source.meta.uid),
            version: Version(self.version),
            last,
            generation: None,
        };
        let planned = self.planned();
        self.index.learn(&Self::key(), learned, &planned);
        // The watch shows the write after its answer.
        self.show_provider();
    }
}

fn is_copy_of(copy: &Value, source: &Value) -> bool {
    let released = &copy["metadata"]["annotations"][annotations::RELEASED];
    copy["metadata"]["annotations"][annotations::RETAINED].is_null()
        && copy["metadata"]["annotations"][annotations::CONSUMER_UID] == source["metadata"]["uid"]
        && (released.is_null() || released == "")
        && copy["metadata"]["annotations"][annotations::CLUSTER_NAMESPACE] == json!(CONTRACT)
}

fn parse(value: &Value) -> Object {
    serde_json::from_str(&value.to_string()).unwrap()
}

fn set(target: &mut Value, pointer: &str, value: Value) {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = target.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    if value.is_null() {
        parent.remove(field);
    } else {
        parent.insert(field.to_owned(), value);
    }
}

#[test]
fn an_older_state_of_a_source_is_not_written_over_a_newer_one() {
    let mut world = World::new();
    world.create_consumer(1);
    world.settle(MODE);
    world.set_consumer("/spec/intent", json!(2));
    let older = Mode {
        older_source: true,
        ..MODE
    };
    let (wrote, blocked) = world.settle(older);
    assert_eq!((wrote.as_slice(), blocked), (&[][..], Some(Blocked::OlderSource)));
    let (wrote, blocked) = world.settle(MODE);
    assert_eq!((wrote.as_slice(), blocked), (&["update"][..], None));
    // What was written from that very content is in sync, whatever its generation.
    let (wrote, blocked) = world.settle(older);
    assert_eq!((wrote.as_slice(), blocked), (&[][..], None));
    world.delete_consumer();
    let (wrote, _) = world.settle(older);
    assert_eq!(
        wrote,
        ["delete_provider", "release"],
        "a deletion that was seen is carried out"
    );
}

#[test]
fn a_life_costs_as_few_writes_as_it_can() {
    let mut world = World::new();
    world.create_consumer(1);
    assert_eq!(world.settle(MODE).0, ["create", "hold"]);
    assert_eq!(world.settle(MODE).0, [""; 0]);
    world.set_consumer("/spec/intent", json!(2));
    assert_eq!(world.settle(MODE).0, ["update"]);
    world.set_provider("/status", json!({"result": "done"}));
    assert_eq!(world.settle(MODE).0, ["status"]);
    world.set_consumer("/status", json!({"result": "edited"}));
    assert_eq!(world.settle(MODE).0, ["status"]);
    assert_eq!(world.consumer.as_ref().unwrap()["status"], json!({"result": "done"}));
    world.set_consumer("/metadata/labels", json!({"team": "a"}));
    assert_eq!(world.settle(MODE).0, ["update"]);
    world.delete_consumer();
    assert_eq!(world.settle(MODE).0, ["delete_provider", "release"]);
    assert!(world.consumer.is_none() && world.provider.is_none());
}

#[test]
fn an_update_names_the_version_that_was_shown_or_answered_last() {
    let mut world = World::new();
    world.create_consumer(1);
    world.settle(MODE);
    let version = |world: &mut World| {
        world.plan(MODE).ops.iter().find_map(|op| match op {
            Op::Update { version, .. } => Some(*version),
            _ => None,
        })
    };
    world.set_consumer("/spec/intent", json!(2));
    assert_eq!(version(&mut world), Some(world.copy_version()));
    world.set_provider("/status", json!({"result": "done"}));
    assert_eq!(version(&mut world), Some(world.copy_version()));
    let learned = Learned::Written {
        uid: parse(world.provider.as_ref().unwrap()).meta.uid,
        source_uid: parse(world.consumer.as_ref().unwrap()).meta.uid,
        version: Version(100),
        last: LastProjection {
            fingerprint: projection::fingerprint(&parse(world.consumer.as_ref().unwrap())),
            corrected: false,
        },
        generation: None,
    };
    let planned = world.planned();
    world.index.learn(&World::key(), learned, &planned);
    assert_eq!(version(&mut world), None, "the watch has not shown the write yet");
    world.set_consumer("/spec/intent", json!(3));
    assert_eq!(version(&mut world), Some(Version(100)));
    // A provider that went back in time has other versions.
    world.index.provider_rewound(&"wild-west".into());
    assert!(matches!(world.plan(MODE).ops[..], [Op::ReadProvider]));
    world.show_provider();
    assert_eq!(version(&mut world), Some(world.copy_version()));
}

#[test]
fn an_object_is_read_before_its_finalizer_is_written_after_the_consumer_went_back_in_time() {
    let mut world = World::new();
    world.create_consumer(1);
    world.index.consumer_rewound(None);
    assert_eq!(world.settle(MODE).0, ["create", "hold"]);
    world.delete_consumer();
    world.delete_provider();
    world.index.consumer_rewound(None);
    assert!(matches!(world.plan(MODE).ops[..], [Op::ReadConsumer]));
    assert_eq!(world.settle(MODE).0, ["release"]);
}

#[test]
fn a_restart_with_all_in_sync_writes_nothing() {
    let mut world = World::new();
    world.create_consumer(1);
    world.settle(MODE);
    world.set_provider("/status", json!({"result": "done"}));
    world.settle(MODE);
    let mut after = World::new();
    (after.consumer, after.provider, after.version) = (world.consumer, world.provider, world.version);
    after.show_consumer();
    after.show_provider();
    assert_eq!(after.settle(MODE).0, [""; 0]);
}

#[test]
fn a_value_the_provider_changes_is_written_back_once_then_left() {
    let mut world = World::new();
    world.create_consumer(1);
    world.settle(MODE);
    world.set_provider("/spec/added", json!("by the provider"));
    assert_eq!(world.settle(MODE), (vec![], None), "an addition is no drift");
    world.set_provider("/spec/intent", json!(9));
    assert_eq!(world.settle(MODE), (vec!["update"], None));
    world.set_provider("/spec/intent", json!(9));
    assert_eq!(world.settle(MODE), (vec![], Some(Blocked::Drift)));
    world.set_consumer("/spec/intent", json!(3));
    assert_eq!(world.settle(MODE), (vec!["update"], None), "a new wish is written");
}

#[test]
fn what_is_not_ours_is_left_and_shown() {
    for (marks, expect) in [
        (json!({}), Blocked::Unmarked),
        (
            json!({annotations::CLUSTER_NAMESPACE: "kube-bind-abcd"}),
            Blocked::OtherContract("kube-bind-abcd".into()),
        ),
    ] {
        let mut world = World::new();
        world.create_foreign(&marks);
        let foreign = world.provider.clone();
        world.create_consumer(1);
        assert_eq!(world.settle(MODE), (vec![], Some(expect.clone())));
        world.delete_consumer();
        world.settle(MODE);
        assert_eq!(world.provider, foreign, "{expect}");
    }
}

#[test]
fn a_copy_of_an_earlier_object_is_left_while_its_name_is_in_use() {
    let mut world = World::new();
    world.create_foreign(&json!({annotations::CLUSTER_NAMESPACE: CONTRACT, annotations::CONSUMER_UID: "before"}));
    world.create_consumer(1);
    assert_eq!(
        world.settle(MODE),
        (vec![], Some(Blocked::OtherSource("before".into())))
    );
    // The name is free again, and still nobody was seen to delete the source of the copy.
    world.delete_consumer();
    assert_eq!(world.settle(MODE), (vec![], Some(Blocked::Orphan)));
}

#[test]
fn a_deletion_that_was_seen_is_evidence_enough() {
    let mut world = World::new();
    world.create_consumer(1);
    world.settle(MODE);
    let uid = world.consumer.take().unwrap()["metadata"]["uid"].clone();
    world.index.consumer_deleted(&World::key(), uid.as_str());
    assert_eq!(world.settle(MODE).0, ["delete_provider"]);
    // The copy goes also where another object has taken the name.
    let mut world = World::new();
    world.create_consumer(1);
    world.settle(MODE);
    let uid = world.consumer.take().unwrap()["metadata"]["uid"].clone();
    world.create_consumer(2);
    world.index.consumer_deleted(&World::key(), uid.as_str());
    assert_eq!(world.settle(MODE).0, ["delete_provider", "create", "hold"]);
}

#[test]
fn with_consent_a_copy_goes_to_the_object_that_has_its_name_now() {
    let mut world = World::new();
    world.create_foreign(&json!({annotations::CLUSTER_NAMESPACE: CONTRACT, annotations::CONSUMER_UID: "before"}));
    world.create_consumer(1);
    let relink = Mode { relink: true, ..MODE };
    assert_eq!(
        world.settle(relink),
        (vec!["transfer_ownership", "update", "hold"], None)
    );
    assert_eq!(world.settle(MODE), (vec![], None));
}

/// Or a field that the consumer removes later would stay on the provider, where its writer owns it.
#[test]
fn fields_that_another_program_wrote_are_taken_over_once() {
    // A copy with our annotations that we never wrote.
    let mut world = World::new();
    world.create_consumer(1);
    let uid = world.consumer.as_ref().unwrap()["metadata"]["uid"].clone();
    world.create_foreign(&json!({annotations::CLUSTER_NAMESPACE: CONTRACT, annotations::CONSUMER_UID: uid}));
    assert_eq!(world.settle(MODE), (vec!["transfer_ownership", "update", "hold"], None));
    world.set_consumer("/spec/intent", json!(2));
    assert_eq!(world.settle(MODE), (vec!["update"], None), "it is ours now");
    // Another konnector wrote a later content of the source while ours was away.
    world.set_provider("/spec/intent", json!(3));
    world.set_consumer("/spec/intent", json!(3));
    assert_eq!(world.settle(MODE), (vec!["transfer_ownership", "update"], None));
    assert_eq!(world.settle(MODE), (vec![], None));
}

#[test]
fn what_contracts_share_is_not_taken_from_the_others() {
    let mut world = World::new();
    world.create_consumer(1);
    let uid = world.consumer.as_ref().unwrap()["metadata"]["uid"].clone();
    let theirs = projection::key_of(OTHER);
    world.create_foreign(
        &json!({annotations::CLUSTER_NAMESPACE: CONTRACT, annotations::CONSUMER_UID: uid, theirs: "theirs"}),
    );
    assert_eq!(world.settle(LAST_WINS), (vec!["update", "hold"], None));
}

#[test]
fn a_paused_object_is_left_alone() {
    let mut world = World::new();
    world.create_consumer(1);
    world.settle(MODE);
    world.annotate_consumer(annotations::PAUSED, "true");
    world.set_consumer("/spec/intent", json!(2));
    world.set_provider("/status", json!({"result": "done"}));
    assert_eq!(world.settle(MODE), (vec![], None));
    let draining = Mode { draining: true, ..MODE };
    assert_eq!(world.settle(draining), (vec![], Some(Blocked::Paused)));
    world.delete_consumer();
    assert_eq!(world.settle(MODE), (vec![], Some(Blocked::Paused)));
    world.annotate_consumer(annotations::PAUSED, "false");
    assert_eq!(world.settle(MODE).0, ["delete_provider", "release"]);
}

const OTHER: &str = "kube-bind-other";
const LAST_WINS: Mode = Mode {
    last_wins: true,
    ..MODE
};

/// Leaves on the provider what another consumer's write of the same name would.
fn written_by_other(world: &mut World, intent: u8) {
    let mut marks = world.provider.as_ref().unwrap()["metadata"]["annotations"].clone();
    marks[annotations::CLUSTER_NAMESPACE] = json!(OTHER);
    marks[annotations::CONSUMER_UID] = json!("theirs");
    world.set_provider("/metadata/annotations", marks);
    world.set_provider("/spec/intent", json!(intent));
}

#[test]
fn under_last_wins_each_change_takes_the_object_over_and_nobody_fights() {
    let mut world = World::new();
    let theirs = projection::key_of(OTHER);
    world.create_foreign(&json!({annotations::CLUSTER_NAMESPACE: OTHER, &theirs: "theirs"}));
    world.create_consumer(1);
    assert_eq!(world.settle(LAST_WINS), (vec!["update", "hold"], None));
    let marks = &world.provider.as_ref().unwrap()["metadata"]["annotations"];
    assert_eq!(marks[&theirs], "theirs", "what the other wrote is remembered for it");
    written_by_other(&mut world, 7);
    assert_eq!(world.settle(LAST_WINS), (vec![], None));
    world.set_provider("/status", json!({"result": "shared"}));
    assert_eq!(world.settle(LAST_WINS), (vec!["status"], None));
    world.set_consumer("/spec/intent", json!(2));
    assert_eq!(world.settle(LAST_WINS).0, ["update"]);
    written_by_other(&mut world, 8);
    world.delete_consumer();
    assert_eq!(world.settle(LAST_WINS).0, ["release"], "it is the other's now");
    assert!(world.provider.is_some());
}

/// One of several contracts that share an object ends: the others go on, and so does that one when it comes back.
#[test]
fn under_last_wins_what_one_contract_let_go_is_still_the_others() {
    for let_go_by in [OTHER, CONTRACT] {
        let mut world = World::new();
        let released = annotations::released("2026-01-01T00:00:00Z", let_go_by);
        let note = projection::key_of("kube-bind-third");
        world.create_foreign(
            &json!({annotations::CLUSTER_NAMESPACE: OTHER, annotations::RELEASED: released, note: "written"}),
        );
        world.create_consumer(1);
        assert_eq!(world.settle(LAST_WINS), (vec!["update", "hold"], None), "{let_go_by}");
        let marks = |world: &World| world.provider.as_ref().unwrap()["metadata"]["annotations"].clone();
        assert_eq!(marks(&world)[annotations::CLUSTER_NAMESPACE], CONTRACT);
        assert_eq!(marks(&world)[annotations::RELEASED], "", "in use again");
        world.set_consumer("/spec/intent", json!(2));
        assert_eq!(world.settle(LAST_WINS), (vec!["update"], None), "{let_go_by}");
        assert_eq!(marks(&world)[annotations::RELEASED], Value::Null, "no more of it");
    }
}

#[test]
fn under_last_wins_nobody_takes_what_is_no_consumers() {
    let mut world = World::new();
    world.create_foreign(&json!({}));
    world.create_consumer(1);
    assert_eq!(world.settle(LAST_WINS), (vec![], Some(Blocked::Unmarked)));
}

#[test]
fn under_last_wins_nobody_takes_what_another_does_not_share() {
    let released = annotations::released("2026-01-01T00:00:00Z", OTHER);
    for marks in [
        json!({annotations::CLUSTER_NAMESPACE: OTHER, annotations::CONSUMER_UID: "theirs"}),
        json!({annotations::CLUSTER_NAMESPACE: OTHER, annotations::RELEASED: released}),
    ] {
        let mut world = World::new();
        world.create_foreign(&marks);
        world.create_consumer(1);
        let blocked = Blocked::OtherContract(OTHER.into());
        assert_eq!(world.settle(LAST_WINS), (vec![], Some(blocked)), "{marks}");
    }
}

#[test]
fn what_an_earlier_binding_let_go_stays() {
    let mut world = World::new();
    world.create_foreign(&json!({
        annotations::CLUSTER_NAMESPACE: CONTRACT, annotations::CONSUMER_UID: "before", annotations::RELEASED: "true",
    }));
    let kept = world.provider.clone();
    assert_eq!(world.settle(MODE).0, [""; 0], "no orphan of ours");
    world.create_consumer(1);
    assert_eq!(world.settle(MODE), (vec![], Some(Blocked::Released)));
    world.delete_consumer();
    world.settle(MODE);
    assert_eq!(world.provider, kept);
}

/// The export of a released copy was deleted, and is there again.
#[test]
fn what_was_let_go_is_taken_into_use_again_by_the_object_it_was_made_of() {
    let mut world = World::new();
    world.create_consumer(1);
    world.settle(MODE);
    let mut marks = world.provider.as_ref().unwrap()["metadata"]["annotations"].clone();
    marks[annotations::RELEASED] = json!(annotations::released("2026-01-01T00:00:00.5Z", CONTRACT));
    world.set_provider("/metadata/annotations", marks);
    let since = |text: &str| Mode {
        since: Some(text.parse().unwrap()),
        ..MODE
    };
    // An export that existed before the release has not come back since.
    let before = since("2025-12-31T23:59:59Z");
    assert_eq!(world.settle(before), (vec![], Some(Blocked::Released)));
    let after = since("2026-01-01T00:00:00Z");
    assert_eq!(world.settle(after), (vec!["update"], None));
    let marks = &world.provider.as_ref().unwrap()["metadata"]["annotations"];
    assert_eq!(marks[annotations::RELEASED], "", "in use again");
    world.delete_consumer();
    assert_eq!(world.settle(after).0, ["delete_provider", "release"]);
}

#[test]
fn a_place_that_is_being_taken_away_gets_nothing_new_and_is_emptied() {
    let mut world = World::new();
    world.create_consumer(1);
    world.settle(MODE);
    let closing = Mode { closing: true, ..MODE };
    world.set_consumer("/spec/intent", json!(2));
    assert_eq!(world.settle(closing).0, ["update"]);
    world.delete_provider();
    assert_eq!(world.settle(closing).0, [""; 0]);
    world.delete_consumer();
    assert_eq!(world.settle(closing).0, ["release"]);
}

#[test]
fn a_status_that_the_consumer_cannot_hold_is_written_once() {
    let mut world = World::new();
    world.create_consumer(1);
    world.settle(MODE);
    world.set_provider("/status", json!({"result": "done", "unknown": 1}));
    let plan = world.plan(MODE);
    let [Op::Status { fingerprint, .. }] = plan.ops[..] else {
        panic!("{plan:?}");
    };
    // The API server prunes unknown fields, so the object and its version stay what they were.
    let (planned, version) = (world.planned(), world.version);
    let consumer = world.consumer.as_ref().unwrap()["metadata"]["resourceVersion"].clone();
    assert!(consumer.as_str().unwrap().parse::<u64>().unwrap() <= version);
    let version = Version(consumer.as_str().unwrap().parse().unwrap());
    let learned = Learned::StatusWritten {
        version,
        status: fingerprint,
    };
    world.index.learn(&World::key(), learned, &planned);
    assert!(world.plan(MODE).ops.is_empty());
}

#[test]
fn the_finalizer_waits_for_the_provider() {
    let mut world = World::new();
    world.create_consumer(1);
    world.settle(MODE);
    world.delete_consumer();
    // The provider's own finalizers hold its copy.
    world.set_provider("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    assert_eq!(world.settle(MODE).0, [""; 0]);
    world.set_provider("/status", json!({"result": "saying farewell"}));
    assert_eq!(world.settle(MODE).0, ["status"]);
    world.delete_provider();
    assert_eq!(world.settle(MODE).0, ["release"]);
}

#[test]
fn a_copy_deleted_on_the_provider_is_made_again() {
    let mut world = World::new();
    world.create_consumer(1);
    world.settle(MODE);
    world.delete_provider();
    assert_eq!(world.settle(MODE).0, ["create", "hold"]);
}

#[test]
fn without_a_place_only_what_was_never_synced_goes_and_nothing_that_is_paused() {
    let mut world = World::new();
    let draining = Mode { draining: true, ..MODE };
    world.create_consumer(1);
    let plan = |world: &World, mode| unplaced(world.index.pair(&World::key()).unwrap(), mode);
    assert!(plan(&world, MODE).is_none());
    let [Op::DeleteConsumer { .. }] = plan(&world, draining).unwrap().ops[..] else {
        panic!("it was never synced");
    };
    world.annotate_consumer(annotations::PAUSED, "true");
    let paused = plan(&world, draining).unwrap();
    assert!(paused.ops.is_empty() && paused.blocked == Some(Blocked::Paused));
    world.annotate_consumer(annotations::PAUSED, "false");
    world.settle(MODE);
    assert!(plan(&world, draining).is_none(), "its copy has to go first");
}

#[test]
fn a_copy_of_an_object_of_another_namespace_is_not_this_ones() {
    let mut world = World::new();
    world.create_foreign(&json!({
        annotations::CLUSTER_NAMESPACE: CONTRACT, annotations::CONSUMER_UID: "x", annotations::CONSUMER_NAMESPACE: "elsewhere",
    }));
    assert_eq!(world.settle(MODE).0, [""; 0], "no orphan of this namespace");
    world.create_consumer(1);
    assert_eq!(world.settle(MODE), (vec![], Some(Blocked::Unmarked)));
}

#[test]
fn draining_leaves_nothing() {
    let mut world = World::new();
    let draining = Mode { draining: true, ..MODE };
    world.create_consumer(1);
    world.settle(MODE);
    assert_eq!(
        world.settle(draining).0,
        ["delete_consumer", "delete_provider", "release"]
    );
    assert_eq!(world.index.remaining(), 0);
}

fn ordered(action: OrphanAction) -> Mode {
    Mode {
        order: Some(action),
        ..MODE
    }
}

/// A copy whose source is missing, although nobody was seen to delete it.
fn orphaned() -> World {
    let mut world = World::new();
    world.create_consumer(1);
    world.settle(MODE);
    world.consumer = None;
    world.show_consumer();
    world
}

#[test]
fn a_copy_whose_source_vanished_without_a_word_stays_until_the_user_ends_it() {
    let mut world = orphaned();
    assert_eq!(world.settle(MODE), (vec![], Some(Blocked::Orphan)));
    assert_eq!(world.index.orphans().set.count, 1);
    assert_eq!(
        world.settle(ordered(OrphanAction::Relink)),
        (vec![], Some(Blocked::Orphan)),
        "there is no object to link it to"
    );
    assert_eq!(
        world.settle(ordered(OrphanAction::Delete)),
        (vec!["delete_orphan"], None)
    );
    assert_eq!(world.index.orphans().set.count, 0);

    let mut world = orphaned();
    assert_eq!(
        world.settle(ordered(OrphanAction::Release)),
        (vec!["release_provider"], None)
    );
    assert_eq!(world.settle(MODE), (vec![], None), "it is no copy any more");
    assert_eq!(world.index.orphans().set.count, 0);

    let mut world = orphaned();
    let draining = Mode { draining: true, ..MODE };
    assert_eq!(
        world.settle(draining),
        (vec!["release_provider"], None),
        "the end of a binding is no evidence"
    );
    assert_eq!(world.index.remaining(), 0);
}

#[test]
fn a_copy_whose_source_is_made_anew_goes_where_the_user_says() {
    let replaced = || {
        let mut world = orphaned();
        world.create_consumer(2);
        world
    };
    let conflict = || (vec![], Some(Blocked::OtherSource("uid-1".into())));
    let mut world = replaced();
    assert_eq!(world.settle(MODE), conflict());
    assert_eq!(
        (world.index.orphans().set.count, world.index.orphans().replaced),
        (1, 1)
    );
    assert_eq!(
        world.settle(ordered(OrphanAction::Relink)),
        (vec!["hold", "update"], None)
    );
    assert_eq!(world.settle(MODE), (vec![], None));

    let mut world = replaced();
    assert_eq!(
        world.settle(ordered(OrphanAction::Delete)).0,
        ["delete_provider", "create", "hold"]
    );

    let mut world = replaced();
    let release = ordered(OrphanAction::Release);
    assert_eq!(
        world.settle(release),
        (vec!["release_provider"], Some(Blocked::Released))
    );
}

/// The end of a source is seen while the creation of its copy is on the way, or before the provider shows the copy.
#[test]
fn an_end_that_was_seen_before_the_copy_was_known_is_evidence() {
    let mut world = World::new();
    world.create_consumer(1);
    let plan = world.plan(MODE);
    let uid = world.consumer.take().unwrap()["metadata"]["uid"].clone();
    world.index.consumer_deleted(&World::key(), uid.as_str());
    assert!(world.index.pair(&World::key()).is_none(), "nothing is known of it");
    plan.ops.iter().for_each(|op| world.apply(op));
    assert_eq!(world.settle(MODE), (vec!["delete_provider"], None));
}

/// A restore brings an object back whose end was seen, and another takes it away again.
#[test]
fn an_end_is_no_evidence_once_the_object_is_there_again() {
    let mut world = World::new();
    world.create_consumer(1);
    world.settle(MODE);
    let before = world.consumer.take().unwrap();
    world
        .index
        .consumer_deleted(&World::key(), before["metadata"]["uid"].as_str());
    world.consumer = Some(before);
    world.show_consumer();
    assert_eq!(world.settle(MODE), (vec![], None));
    world.consumer = None;
    world.show_consumer();
    assert_eq!(world.settle(MODE), (vec![], Some(Blocked::Orphan)));
}

#[test]
fn where_objects_are_kept_the_end_of_the_crd_deletes_none() {
    let keeps = Mode { keeps: true, ..MODE };
    let mut world = World::new();
    world.create_consumer(1);
    world.settle(keeps);
    world.delete_consumer();
    assert_eq!(world.settle(keeps).0, ["delete_provider", "release"], "the CRD stays");
    assert!(world.provider.is_none());

    let mut world = World::new();
    world.create_consumer(1);
    world.settle(keeps);
    world.crd_ends = true;
    world.delete_consumer();
    assert_eq!(
        world.settle(keeps).0,
        ["delete_provider", "release_provider", "release"]
    );
    assert!(world.consumer.is_none() && world.provider.is_some());
}

#[test]
fn where_objects_are_kept_the_end_of_the_binding_deletes_none() {
    let ends = Mode {
        keeps: true,
        draining: true,
        // A clock that is ahead does not make the copy usable again.
        since: Some("2026-01-03T00:00:00Z".parse().unwrap()),
        ..MODE
    };
    let mut world = World::new();
    world.create_consumer(1);
    world.settle(MODE);
    assert_eq!(world.settle(ends).0, ["delete_consumer", "release_provider", "release"]);
    assert!(world.consumer.is_none() && world.provider.is_some());
    assert_eq!(world.index.remaining(), 0);
}

#[test]
fn what_was_let_go_becomes_the_copy_of_a_new_object_that_says_the_same() {
    let check = |spec: u8, change: fn(&mut World), mode: Mode, expect: (Vec<&'static str>, Option<Blocked>)| {
        let mut world = World::new();
        world.create_consumer(1);
        world.settle(MODE);
        world.settle(Mode {
            keeps: true,
            draining: true,
            ..MODE
        });
        change(&mut world);
        world.create_consumer(spec);
        assert_eq!(world.settle(mode), expect, "{spec} {mode:?}");
    };
    let at = |text: &str| Some(text.parse::<Timestamp>().unwrap());
    let anew = Mode {
        installed: at("2026-01-02T00:00:00Z"),
        ..MODE
    };
    let exported_anew = Mode {
        since: anew.installed,
        ..MODE
    };
    let before = Mode {
        installed: at("2026-01-01T00:00:00Z"),
        ..MODE
    };
    let nothing = |_: &mut World| {};
    let added = |world: &mut World| world.set_provider("/spec/added", json!("by the provider"));
    let changed = |world: &mut World| world.set_provider("/spec/intent", json!(7));
    check(1, nothing, anew, (vec!["update", "hold"], None));
    check(1, nothing, exported_anew, (vec!["update", "hold"], None));
    check(1, added, anew, (vec!["update", "hold"], None));
    check(1, changed, anew, (vec![], Some(Blocked::ReleasedDiffers)));
    check(2, nothing, anew, (vec![], Some(Blocked::ReleasedDiffers)));
    check(1, nothing, before, (vec![], Some(Blocked::Released)));
    check(1, nothing, MODE, (vec![], Some(Blocked::Released)));
}

#[derive(Clone, Debug)]
enum Event {
    Create(u8),
    Edit(u8),
    Label(bool),
    EditStatus,
    Delete,
    ProviderStatus(u8),
    ProviderEdit(u8),
    ProviderDelete,
    Foreign,
    Restart,
    Settle,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..3_u8).prop_map(Event::Create),
        (0..3_u8).prop_map(Event::Edit),
        any::<bool>().prop_map(Event::Label),
        Just(Event::EditStatus),
        Just(Event::Delete),
        (0..3_u8).prop_map(Event::ProviderStatus),
        (0..3_u8).prop_map(Event::ProviderEdit),
        Just(Event::ProviderDelete),
        Just(Event::Foreign),
        Just(Event::Restart),
        Just(Event::Settle),
    ]
}

impl World {
    fn happen(&mut self, event: &Event) {
        let live = self
            .consumer
            .as_ref()
            .is_some_and(|object| object["metadata"]["deletionTimestamp"].is_null());
        match event {
            Event::Create(spec) if self.consumer.is_none() => self.create_consumer(*spec),
            Event::Edit(spec) if live => self.set_consumer("/spec/intent", json!(spec)),
            Event::Label(on) if live => self.set_consumer("/metadata/labels", json!({"on": on.to_string()})),
            Event::EditStatus if live => self.set_consumer("/status", json!({"result": "forged"})),
            Event::Delete if live => self.delete_consumer(),
            Event::ProviderStatus(status) if self.provider.is_some() => {
                self.set_provider("/status", json!({"result": status}));
            }
            Event::ProviderEdit(spec) if self.provider.is_some() => self.set_provider("/spec/intent", json!(spec)),
            Event::ProviderDelete if self.provider.is_some() => self.delete_provider(),
            Event::Foreign if self.provider.is_none() && self.consumer.is_none() => self.create_foreign(&json!({})),
            Event::Restart => {
                let mut after = Self::new();
                (after.consumer, after.provider) = (self.consumer.take(), self.provider.take());
                (after.version, after.uids) = (self.version, self.uids);
                *self = after;
                self.show_consumer();
                self.show_provider();
            }
            Event::Settle => drop(self.settle(MODE)),
            _ => {}
        }
    }
}

/// A consumer's object and the provider's object of its name, in any state that plans tell apart.
fn any_pair() -> impl Strategy<Value = (Value, Value)> {
    let flags = prop::collection::vec(any::<bool>(), 9);
    (flags, 0..3_u8, 0..3_u8, 0..5_usize, 0..3_usize).prop_map(|(flags, intent, theirs, owner, last)| {
        let [deleting, held, paused, adopted, provider_deleting, bound, added, status, corrected] = flags[..] else {
            unreachable!("as many as were asked for");
        };
        let mut source = json!({
            "metadata": {"name": "billy", "namespace": "wild-west", "uid": "u", "resourceVersion": "5", "annotations": {}},
            "spec": {"intent": intent}, "status": {"result": 1},
        });
        let last = match last {
            0 => String::new(),
            1 => projection::fingerprint(&parse(&source)).to_string(),
            _ => projection::fingerprint(&parse(&json!({"metadata": {"resourceVersion": "1"}}))).to_string(),
        };
        let mut copy = json!({
            "metadata": {"name": "billy", "namespace": PLACE, "uid": "p", "resourceVersion": "5"},
            "spec": {"intent": if theirs == 0 { intent } else { theirs }}, "status": {"result": i32::from(status)},
        });
        let marks = match owner {
            0 => json!({annotations::CLUSTER_NAMESPACE: CONTRACT, annotations::CONSUMER_UID: "u"}),
            1 => json!({annotations::CLUSTER_NAMESPACE: CONTRACT, annotations::CONSUMER_UID: "before"}),
            2 => json!({annotations::CLUSTER_NAMESPACE: "kube-bind-x", annotations::CONSUMER_UID: "u"}),
            3 => json!({annotations::CLUSTER_NAMESPACE: CONTRACT, annotations::CONSUMER_UID: "u", annotations::RELEASED: "true"}),
            _ => json!({}),
        };
        set(&mut copy, "/metadata/annotations", marks);
        let end = json!("2026-01-01T00:00:00Z");
        let put = |on: bool, object: &mut Value, pointer: &str, value: Value| if on { set(object, pointer, value) };
        put(deleting, &mut source, "/metadata/deletionTimestamp", end.clone());
        put(held, &mut source, "/metadata/finalizers", json!([bindery_api::finalizers::SYNCER]));
        put(paused, &mut source, "/metadata/annotations", json!({annotations::PAUSED: "true"}));
        put(adopted, &mut source, "/metadata/annotations", json!({annotations::ADOPTED: "p"}));
        put(provider_deleting, &mut copy, "/metadata/deletionTimestamp", end);
        put(added, &mut copy, "/spec/added", json!("by the provider"));
        let marks = copy["metadata"]["annotations"].as_object_mut().unwrap();
        if bound {
            marks.insert(annotations::BOUND.to_owned(), json!("true"));
        }
        marks.insert(annotations::PROJECTION_HASH.to_owned(), json!(format!("{last}{}", if corrected { "+" } else { "" })));
        (source, copy)
    })
}

fn any_mode() -> impl Strategy<Value = Mode> {
    let adoption = prop_oneof![Just(Adoption::Off), Just(Adoption::OptIn), Just(Adoption::All)];
    let flags = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    let order = prop::option::of(prop::sample::select(&OrphanAction::ALL[..]));
    (flags, order, adoption).prop_map(
        |((draining, closing, last_wins, relink, keeps, retains, suspends), order, adoption)| Mode {
            draining,
            closing,
            last_wins,
            relink,
            keeps,
            order,
            retains,
            suspends,
            adoption,
            ..MODE
        },
    )
}

proptest! {
    #[test]
    fn no_plan_wants_the_contents_that_are_let_go((source, copy) in any_pair(), mode in any_mode()) {
        let mut pair = Pair {
            consumer: Some(Consumer::of(parse(&source), &mut Names::default())),
            provider: Some(Provider::of(parse(&copy), CONTRACT, "wild-west", false)),
            ..Pair::default()
        };
        pair.compare();
        let names = |pair: &Pair| {
            let plan = plan(pair, &PLACE.into(), mode);
            (plan.ops.iter().map(Op::name).collect::<Vec<_>>(), plan.blocked)
        };
        let before = names(&pair);
        let is_at_rest = is_at_rest(&pair, &PLACE.into(), mode);
        prop_assert!(!is_at_rest || before == (Vec::new(), None), "at rest, with a plan: {:?}", before);
        pair.settle();
        prop_assert_eq!(names(&pair), before);
    }

    #[test]
    fn any_history_settles_in_sync_and_then_writes_nothing(events in prop::collection::vec(event(), 0..24)) {
        let mut world = World::new();
        for event in &events {
            world.happen(event);
        }
        let (_, blocked) = world.settle(MODE);
        let (again, _) = world.settle(MODE);
        prop_assert!(again.is_empty(), "not idempotent: {again:?}");
        if let (Some(source), Some(copy), None) = (&world.consumer, &world.provider, &blocked) {
            for consumer_first in [true, false] {
                let mut after = World::new();
                (after.consumer, after.provider) = (Some(source.clone()), Some(copy.clone()));
                if consumer_first {
                    after.show_consumer();
                }
                after.show_provider();
                after.show_consumer();
                prop_assert!(!after.holds_content(), "what is settled needs no content");
                let plan = after.plan(MODE);
                prop_assert!(plan.ops.is_empty() && plan.blocked.is_none(), "after a restart: {plan:?}");
            }
        }
        match (&world.consumer, &world.provider) {
            (None, None) => {}
            (None, Some(copy)) => prop_assert!(
                copy["metadata"]["annotations"] == json!({}) || blocked == Some(Blocked::Orphan),
                "a copy is left in silence"
            ),
            (Some(source), Some(copy)) if blocked.is_none() => {
                prop_assert!(is_copy_of(copy, source));
                prop_assert_eq!(&copy["spec"]["intent"], &source["spec"]["intent"]);
                prop_assert_eq!(&copy["status"], &source["status"]);
                prop_assert_eq!(&source["metadata"]["annotations"][annotations::PROVIDER_UID], &copy["metadata"]["uid"]);
            }
            (Some(_), Some(copy)) => prop_assert!(
                blocked == Some(Blocked::Drift) || copy["metadata"]["annotations"] == json!({}),
                "blocked without a cause"
            ),
            (Some(_), None) => prop_assert!(false, "not created"),
        }
    }
}

#[test]
fn in_an_assumed_place_nothing_is_done_for_an_object_that_notes_another() {
    let assumed = Mode { assumed: true, ..MODE };
    let mut world = World::new();
    world.create_consumer(1);
    assert_eq!(world.settle(assumed), (vec!["create", "hold"], None), "it notes none");
    world.set_consumer("/spec/intent", json!(2));
    assert_eq!(world.settle(assumed), (vec!["update"], None), "it notes this one");

    world.annotate_consumer(annotations::PROVIDER_NAMESPACE, "elsewhere");
    world.delete_provider();
    let waits = (vec![], Some(Blocked::Elsewhere));
    assert_eq!(world.settle(assumed), waits, "no second copy is made");
    assert_eq!(
        world.settle(Mode {
            draining: true,
            ..assumed
        }),
        waits
    );
    world.delete_consumer();
    assert_eq!(world.settle(assumed), waits, "the copy may exist elsewhere");
    assert_eq!(world.settle(MODE), (vec!["release"], None), "this is the place");
}
