use bindery_runtime::cache::ObjectKey;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    claims::{
        pair::Both,
        rules::ClaimRules,
        testing::{object, rules, secret, wanted},
    },
    index::Known as _,
    model::{object::Version, projection},
    references::References,
};

/// One pair, and the rules and mode that it is planned with.
struct Scene {
    rules: Arc<ClaimRules>,
    pair: Pair,
    mode: Mode,
    choice: ClaimChoice,
}

impl Scene {
    fn new() -> Self {
        let all = wanted(&[json!({"labelSelector": {}})]);
        Self {
            rules: rules(&[all], &References::default()),
            pair: Pair::default(),
            mode: Mode {
                room: Both {
                    consumer: true,
                    provider: true,
                },
                ..Mode::default()
            },
            choice: ClaimChoice::Selected,
        }
    }

    fn consumer(mut self, value: &Value) -> Self {
        self.pair.see_consumer(&key(), object(value), &mut self.rules);
        self
    }

    fn provider(mut self, value: &Value) -> Self {
        self.pair.see_provider(&key(), object(value), &mut self.rules);
        self
    }

    fn choice(mut self, choice: ClaimChoice) -> Self {
        self.choice = choice;
        self
    }

    fn mode(mut self, change: impl FnOnce(&mut Mode)) -> Self {
        change(&mut self.mode);
        self
    }

    fn plan(&mut self) -> Plan {
        let choice = self.choice;
        plan(&self.pair, self.mode, &|_, _| choice)
    }

    #[track_caller]
    fn expect(mut self, expect: &str) -> Self {
        let plan = self.plan();
        assert_eq!(told(&plan), expect);
        self
    }
}

fn key() -> ObjectKey {
    ObjectKey::new("west", "colt")
}

fn told(plan: &Plan) -> String {
    let op = |op: &Op| match op {
        Op::Read { on } => format!("read {on}"),
        Op::Create { on, .. } => format!("create {on}"),
        Op::Update {
            on,
            uid,
            last,
            transferred,
            ..
        } => {
            let take = if *transferred { "take over and " } else { "" };
            format!("{take}update {on} {uid}{}", if last.corrected { " again" } else { "" })
        }
        Op::Delete { on, uid, guarded } => format!("delete {on} {uid}{}", if *guarded { " guarded" } else { "" }),
        Op::DeleteOrphan { on, uid, source_uid } => format!("confirm {source_uid} gone, delete {on} {uid}"),
    };
    let ops: Vec<_> = plan.ops.iter().map(op).collect();
    match &plan.blocked {
        Some(blocked) => format!("{}! {}", blocked.reason(), ops.join(", "))
            .trim_end()
            .to_owned(),
        None => ops.join(", "),
    }
}

/// The consumer's own Secret, or the provider's.
fn source(on: Cluster) -> Value {
    match on {
        Cluster::Consumer => secret("west", "colt", "c", 5),
        Cluster::Provider => secret("kube-bind-x-west", "colt", "p", 5),
    }
}

/// The copy of `source`, as the konnector writes it.
fn copy(of: Cluster) -> Value {
    let from = source(of);
    let print = projection::fingerprint(&object(&from));
    let (mut copy, owner) = match of {
        Cluster::Consumer => (secret("kube-bind-x-west", "colt", "pc", 7), "consumer"),
        Cluster::Provider => (secret("west", "colt", "cp", 7), "provider"),
    };
    let meta = &mut copy["metadata"];
    meta["labels"] = json!({"kube-bind.io/owner": owner, "kube-bind.io/contract-uid": "contract-uid"});
    meta["annotations"] = json!({
        "kube-bind.io/cluster-namespace": "kube-bind-x",
        format!("kube-bind.io/{owner}-uid"): from["metadata"]["uid"],
        format!("kube-bind.io/{owner}-namespace"): from["metadata"]["namespace"],
        "kube-bind.io/projection-hash": print.to_string(),
    });
    copy
}

fn with(mut value: Value, path: &str, to: Value) -> Value {
    let (parent, field) = path.rsplit_once('/').unwrap();
    let parent = value.pointer_mut(parent).unwrap();
    if parent.is_null() {
        *parent = json!({});
    }
    parent[field] = to;
    value
}

fn annotated(value: Value, key: &str, to: &str) -> Value {
    let value = if value["metadata"]["annotations"].is_null() {
        with(value, "/metadata/annotations", json!({}))
    } else {
        value
    };
    let mut value = value;
    value["metadata"]["annotations"][key] = json!(to);
    value
}

const BOTH: [Cluster; 2] = [Cluster::Consumer, Cluster::Provider];

/// A scene with an object on a cluster.
fn on(scene: Scene, cluster: Cluster, value: &Value) -> Scene {
    match cluster {
        Cluster::Consumer => scene.consumer(value),
        Cluster::Provider => scene.provider(value),
    }
}

fn alone(of: Cluster) -> Scene {
    on(Scene::new(), of, &source(of))
}

fn paired(of: Cluster) -> Scene {
    on(alone(of), of.other(), &copy(of))
}

#[test]
fn a_copy_that_another_program_made_is_taken_over_with_its_fields() {
    for (of, uid) in [(Cluster::Consumer, "pc"), (Cluster::Provider, "cp")] {
        let mut theirs = copy(of);
        let marks = theirs["metadata"]["annotations"].as_object_mut().unwrap();
        marks.remove("kube-bind.io/projection-hash");
        let there = of.other();
        on(alone(of), there, &theirs).expect(&format!("take over and update {there} {uid}"));
    }
}

#[test]
fn a_claimed_source_gets_a_copy() {
    for of in BOTH {
        let there = of.other();
        alone(of).expect(&format!("create {there}"));
        alone(of).choice(ClaimChoice::Unselected).expect("");
        alone(of).choice(ClaimChoice::Unknown).expect("");
        alone(of).choice(ClaimChoice::Kept).expect("");
        alone(of).mode(|mode| *mode.room.of_mut(there) = false).expect("");
        let deleting = with(source(of), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        on(Scene::new(), of, &deleting).expect("");
        let mut forgotten = alone(of);
        forgotten.pair.forget_content();
        forgotten.expect(&format!("read {of}"));
    }
    alone(Cluster::Provider)
        .mode(|mode| mode.room.consumer = false)
        .expect("");
    alone(Cluster::Consumer)
        .mode(|mode| mode.room.consumer = false)
        .expect("create provider");
}

#[test]
fn a_copy_says_what_its_source_says() {
    for of in BOTH {
        let (there, uid) = (of.other(), copy(of)["metadata"]["uid"].as_str().unwrap().to_owned());
        paired(of).expect("");
        let changed = with(source(of), "/data", json!({"k": "djI="}));
        on(paired(of), of, &changed).expect(&format!("update {there} {uid}"));
        let mut forgotten = on(paired(of), of, &changed);
        forgotten.pair.sides.of_mut(of).as_mut().unwrap().content = None;
        forgotten.expect(&format!("read {of}"));
        let mut unseen = on(paired(of), of, &changed);
        let print = unseen.pair.sides.of(of).as_ref().unwrap().print.unwrap();
        let last = LastProjection {
            fingerprint: print,
            corrected: false,
        };
        let written = Side::copy(&object(&changed), uid.as_str(), Version(9), last);
        unseen.pair.written(there, written);
        unseen.expect("");
    }
}

#[test]
fn an_update_names_the_version_that_was_shown_or_answered_last() {
    for of in BOTH {
        let (there, uid) = (of.other(), copy(of)["metadata"]["uid"].as_str().unwrap().to_owned());
        let version = |scene: &mut Scene| match scene.plan().ops[..] {
            [Op::Update { version, .. }] => version,
            ref ops => panic!("{ops:?}"),
        };
        let changed = with(source(of), "/data", json!({"k": "djI="}));
        let mut scene = on(paired(of), of, &changed);
        assert_eq!(version(&mut scene), Version(7));
        let touched = with(copy(of), "/metadata/resourceVersion", json!("8"));
        let mut scene = on(scene, there, &touched);
        assert_eq!(version(&mut scene), Version(8));
        let last = LastProjection {
            fingerprint: projection::fingerprint(&object(&changed)),
            corrected: false,
        };
        let written = Side::copy(&object(&changed), uid.as_str(), Version(9), last);
        scene.pair.written(there, written);
        let mut scene = on(scene, of, &with(source(of), "/data", json!({"k": "djM="})));
        assert_eq!(version(&mut scene), Version(9));
        // A cluster that went back in time has other versions.
        match there {
            Cluster::Consumer => scene.pair.rewind_consumer(),
            Cluster::Provider => scene.pair.rewind_provider(),
        }
        scene.expect(&format!("read {there}"));
    }
}

#[test]
fn a_foreign_change_is_written_back_once() {
    for of in BOTH {
        let (there, uid) = (of.other(), copy(of)["metadata"]["uid"].as_str().unwrap().to_owned());
        let more = with(copy(of), "/data", json!({"k": "djE=", "other": "djM="}));
        on(alone(of), there, &more).expect("");
        let changed = with(copy(of), "/data", json!({"k": "djM="}));
        let print = projection::fingerprint(&object(&source(of)));
        on(alone(of), there, &changed).expect(&format!("update {there} {uid} again"));
        let again = annotated(changed.clone(), "kube-bind.io/projection-hash", &format!("{print}+"));
        on(alone(of), there, &again).expect("CopyOverridden!");
        let mut forgotten = on(alone(of), there, &changed);
        forgotten.pair.forget_content();
        let mut forgotten = forgotten.expect(&format!("read {of}"));
        forgotten.pair.compared = None;
        forgotten.expect(&format!("read {of}, read {there}"));
    }
}

#[test]
fn what_cannot_be_changed_is_replaced() {
    for of in BOTH {
        let (there, uid) = (of.other(), copy(of)["metadata"]["uid"].as_str().unwrap().to_owned());
        let delete = format!("delete {there} {uid}");
        let tls = with(source(of), "/type", json!("kubernetes.io/tls"));
        on(paired(of), of, &tls).expect(&delete);
        let immutable = with(copy(of), "/immutable", json!(true));
        let locked = on(
            on(Scene::new(), there, &immutable),
            of,
            &with(source(of), "/data", json!({"k": "djI="})),
        );
        locked.expect(&delete);
        let labelled = with(
            with(source(of), "/immutable", json!(true)),
            "/metadata/labels",
            json!({"app": "saloon"}),
        );
        let mut scene = on(on(Scene::new(), there, &immutable), of, &labelled).expect(&format!("update {there} {uid}"));
        scene.pair.sides.of_mut(there).as_mut().unwrap().content = None;
        scene.expect(&format!("read {there}"));
    }
}

#[test]
fn a_copy_in_a_namespace_that_was_forced_to_end_is_only_deleted() {
    for of in BOTH {
        let (there, uid) = (of.other(), copy(of)["metadata"]["uid"].as_str().unwrap().to_owned());
        let changed = with(source(of), "/data", json!({"k": "djI="}));
        let locked = with(copy(of), "/immutable", json!(true));
        let successor = with(source(of), "/metadata/uid", json!("successor"));
        let gone = |scene: Scene| {
            scene.mode(|mode| {
                mode.room.consumer = false;
                mode.namespace_is_gone = true;
            })
        };
        let written = |what: String| {
            if there == Cluster::Consumer {
                String::new()
            } else {
                what
            }
        };
        let update = format!("update {there} {uid}");
        gone(on(paired(of), of, &changed)).expect(&written(update.clone()));
        gone(on(on(Scene::new(), there, &locked), of, &changed)).expect(&written(format!("delete {there} {uid}")));
        gone(on(paired(of), of, &successor))
            .mode(|mode| mode.relink = true)
            .expect(&written(update.clone()));
        // The namespace is created again.
        on(paired(of), of, &changed).expect(&update);
        gone(paired(of))
            .choice(ClaimChoice::Unselected)
            .expect(&format!("delete {there} {uid} guarded"));
    }
}

#[test]
fn a_copy_goes_with_its_claim_or_its_source() {
    for of in BOTH {
        let (there, uid) = (of.other(), copy(of)["metadata"]["uid"].as_str().unwrap().to_owned());
        let source_uid = source(of)["metadata"]["uid"].as_str().unwrap().to_owned();
        paired(of)
            .choice(ClaimChoice::Unselected)
            .expect(&format!("delete {there} {uid} guarded"));
        paired(of).choice(ClaimChoice::Unknown).expect("");
        paired(of).choice(ClaimChoice::Kept).expect("");
        paired(of)
            .choice(ClaimChoice::Unselected)
            .mode(|mode| mode.withdrawn = true)
            .expect(&format!("delete {there} {uid}"));
        let deleting = with(source(of), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        let scene = on(on(Scene::new(), there, &copy(of)), of, &deleting).expect(&format!("delete {there} {uid}"));
        scene.choice(ClaimChoice::Kept).expect("");
        let orphan = || on(Scene::new(), there, &copy(of));
        orphan().expect(&format!("confirm {source_uid} gone, delete {there} {uid}"));
        orphan().choice(ClaimChoice::Kept).expect("");
        let mut seen = orphan();
        *seen.pair.ended.of_mut(of) = Some(source_uid.as_str().into());
        seen.expect(&format!("delete {there} {uid}"));
        let mut another = orphan();
        *another.pair.ended.of_mut(of) = Some("another".into());
        another.expect(&format!("confirm {source_uid} gone, delete {there} {uid}"));
        orphan()
            .choice(ClaimChoice::Unselected)
            .mode(|mode| mode.withdrawn = true)
            .expect(&format!("delete {there} {uid}"));
        let going = with(copy(of), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        on(Scene::new(), there, &going).expect("");
        on(alone(of), there, &going).expect("");
    }
}

#[test]
fn what_may_not_come_down_is_refused_and_withdrawn() {
    let refusals = [
        (Refusal::NotListed, "NamespaceNotClaimed! "),
        (Refusal::NoBoundObject, "NamespaceNotClaimed! "),
        (Refusal::SecretType, "SecretTypeNotClaimed! "),
    ];
    for (refusal, told) in refusals {
        let refuse = |mode: &mut Mode| mode.descent = Descent::Refused(refusal);
        alone(Cluster::Provider).mode(refuse).expect(told.trim_end());
        paired(Cluster::Provider)
            .mode(refuse)
            .expect("delete consumer cp guarded");
        // The refusal concerns objects of the provider: those of the consumer go up.
        alone(Cluster::Consumer).mode(refuse).expect("create provider");
        paired(Cluster::Consumer).mode(refuse).expect("");
        let scene = paired(Cluster::Provider);
        let rests = |descent| is_at_rest(&scene.pair, &|_, _| ClaimChoice::Selected, || descent);
        assert!(!rests(Descent::Refused(refusal)), "a copy that agrees is looked at too");
    }
    let unknown = |mode: &mut Mode| mode.descent = Descent::Unknown;
    alone(Cluster::Provider).mode(unknown).expect("");
    paired(Cluster::Provider).mode(unknown).expect("");
    alone(Cluster::Provider).expect("create consumer");
}

#[test]
fn labels_and_annotations_that_tools_believe_stay_with_the_provider() {
    let labels = json!({
        "argocd.argoproj.io/secret-type": "repository", "owner": "helm", "app.kubernetes.io/name": "colt",
        "app.kubernetes.io/managed-by": "Helm",
    });
    let planted = with(source(Cluster::Provider), "/metadata/labels", labels);
    let planted = annotated(planted, "replicator.v1.mittwald.de/replicate-from", "kube-system/root");
    let scene = Scene::new().provider(&planted);
    let side = scene.pair.sides.provider.as_ref().unwrap();
    let content = side.content.as_ref().unwrap();
    let keys = |marks: &crate::model::labels::Marks| marks.iter().map(|(key, _)| key.to_owned()).collect::<Vec<_>>();
    assert_eq!(keys(&content.meta.labels), ["app.kubernetes.io/name"]);
    assert!(keys(&content.meta.annotations).is_empty());
    assert_eq!(side.print, Some(projection::fingerprint(content)));
    assert!(
        side.left_out.is_some() && side.labels.get("owner").is_some(),
        "it is selected by all its labels"
    );
    // The consumer's own object goes up with all of them.
    let scene = Scene::new().consumer(&with(
        source(Cluster::Consumer),
        "/metadata/labels",
        json!({"owner": "me"}),
    ));
    let content = scene.pair.sides.consumer.as_ref().unwrap().content.as_ref().unwrap();
    assert_eq!(keys(&content.meta.labels), ["owner"]);
}

#[test]
fn a_copy_stays_that_lost_its_source_when_a_cluster_went_back_in_time() {
    for of in BOTH {
        let (there, uid) = (of.other(), copy(of)["metadata"]["uid"].as_str().unwrap().to_owned());
        let source_uid = source(of)["metadata"]["uid"].as_str().unwrap().to_owned();
        let rewound = |on: Cluster| {
            let mut scene = paired(of);
            match on {
                Cluster::Consumer => scene.pair.rewind_consumer(),
                Cluster::Provider => scene.pair.rewind_provider(),
            }
            match of {
                Cluster::Consumer => scene.pair.lose_consumer(),
                Cluster::Provider => scene.pair.lose_provider(None),
            }
            scene
        };
        let delete = format!("confirm {source_uid} gone, delete {there} {uid}");
        let kept = rewound(of).expect("Orphaned!");
        assert_eq!(
            kept.pair.orphan().map(|orphan| orphan.copy.to_string()),
            Some(uid.clone())
        );
        rewound(there).expect(&delete);
        rewound(of)
            .mode(|mode| mode.order = Some(OrphanAction::Release))
            .expect("Orphaned!");
        rewound(of)
            .mode(|mode| mode.order = Some(OrphanAction::Delete))
            .expect(&delete);
        rewound(of)
            .choice(ClaimChoice::Unselected)
            .mode(|mode| mode.withdrawn = true)
            .expect(&format!("delete {there} {uid}"));
        let back = on(rewound(of), of, &source(of)).expect("");
        assert_eq!(back.pair.orphan(), None);
    }
}

#[test]
fn a_namesake_of_the_source_takes_nothing_over() {
    for of in BOTH {
        let (there, uid) = (of.other(), copy(of)["metadata"]["uid"].as_str().unwrap().to_owned());
        let source_uid = source(of)["metadata"]["uid"].as_str().unwrap().to_owned();
        let successor = with(source(of), "/metadata/uid", json!("successor"));
        let scene = || on(on(Scene::new(), there, &copy(of)), of, &successor);
        scene().expect("Conflict!");
        let mut seen = scene();
        *seen.pair.ended.of_mut(of) = Some(source_uid.as_str().into());
        seen.expect(&format!("delete {there} {uid}"));
        scene()
            .mode(|mode| mode.relink = true)
            .expect(&format!("update {there} {uid}"));
        scene()
            .choice(ClaimChoice::Unselected)
            .expect(&format!("confirm {source_uid} gone, delete {there} {uid}"));
    }
}

#[test]
fn what_is_not_ours_is_left_and_shown_where_it_is_in_the_way() {
    let rival = Scene::new()
        .consumer(&source(Cluster::Consumer))
        .provider(&source(Cluster::Provider))
        .expect("Conflict!");
    rival.choice(ClaimChoice::Unselected).expect("");
    for of in BOTH {
        let there = of.other();
        let others = [
            annotated(copy(of), "kube-bind.io/cluster-namespace", "kube-bind-y"),
            annotated(copy(of), &format!("kube-bind.io/{of}-uid"), ""),
            annotated(copy(of), "kube-bind.io/released", "2026-01-01T00:00:00Z"),
        ];
        for taken in &others {
            on(alone(of), there, taken).expect("Conflict!");
            on(alone(of), there, taken).choice(ClaimChoice::Unselected).expect("");
            on(Scene::new(), there, taken).expect("");
            on(Scene::new(), there, taken)
                .choice(ClaimChoice::Unselected)
                .mode(|mode| mode.withdrawn = true)
                .expect("");
        }
    }
    let other_uid = with(
        copy(Cluster::Provider),
        "/metadata/labels/kube-bind.io~1contract-uid",
        json!("another"),
    );
    let mut other_uid = other_uid;
    other_uid["metadata"]["labels"]["kube-bind.io/contract-uid"] = json!("another");
    Scene::new().consumer(&other_uid).expect("");
    let bound = with(
        source(Cluster::Consumer),
        "/metadata/finalizers",
        json!(["kubebind.io/syncer"]),
    );
    Scene::new().consumer(&bound).expect("");
    Scene::new()
        .consumer(&bound)
        .provider(&source(Cluster::Provider))
        .expect("Conflict!");
}

#[test]
fn two_copies_have_no_source() {
    let consumer = copy(Cluster::Provider);
    let provider = copy(Cluster::Consumer);
    let scene = || Scene::new().consumer(&consumer).provider(&provider);
    scene().expect("confirm c gone, delete provider pc, confirm p gone, delete consumer cp");
    let of_each_other = Scene::new()
        .consumer(&annotated(consumer.clone(), "kube-bind.io/provider-uid", "pc"))
        .provider(&annotated(provider.clone(), "kube-bind.io/consumer-uid", "cp"));
    of_each_other
        .expect("Conflict!")
        .choice(ClaimChoice::Unselected)
        .mode(|mode| mode.withdrawn = true)
        .expect("delete provider pc, delete consumer cp");
}

#[test]
fn nothing_of_a_paused_object_is_written() {
    for of in BOTH {
        let there = of.other();
        let paused = annotated(source(of), "kube-bind.io/paused", "true");
        on(Scene::new(), of, &paused).expect("");
        let changed = with(paused.clone(), "/data", json!({"k": "djI="}));
        on(on(Scene::new(), there, &copy(of)), of, &changed).expect("");
        on(on(Scene::new(), there, &copy(of)), of, &paused)
            .choice(ClaimChoice::Unselected)
            .expect("Paused!");
        let copy = annotated(copy(of), "kube-bind.io/paused", "true");
        on(alone(of), there, &copy).expect("");
        let no = annotated(source(of), "kube-bind.io/paused", "no");
        on(Scene::new(), of, &no).expect(&format!("create {there}"));
    }
}

/// The objects of two clusters, changed by the operations of plans.
#[derive(Clone, Debug)]
struct World {
    objects: Both<Option<Value>>,
    next: u64,
    writes: usize,
}

impl World {
    fn pair(&self, rules: &Arc<ClaimRules>, ended: &Both<Option<crate::model::uid::Uid>>) -> Pair {
        let mut pair = Pair::default();
        if let Some(value) = &self.objects.consumer {
            pair.see_consumer(&key(), object(value), &mut Arc::clone(rules));
        }
        if let Some(value) = &self.objects.provider {
            pair.see_provider(&key(), object(value), &mut Arc::clone(rules));
        }
        pair.ended = ended.clone();
        pair
    }

    fn uid(&self, on: Cluster) -> Option<String> {
        let value = self.objects.of(on).as_ref()?;
        value["metadata"]["uid"].as_str().map(str::to_owned)
    }

    fn write(&mut self, on: Cluster, from: &Object, uid: Option<&str>, last: LastProjection) {
        self.next += 1;
        self.writes += 1;
        let fresh = format!("copy-{}", self.next);
        let mut made = copy(on.other());
        made["metadata"]["uid"] = json!(uid.unwrap_or(&fresh));
        made["metadata"]["resourceVersion"] = json!((100 + self.next).to_string());
        let body: serde_json::Map<_, _> = from
            .body
            .iter()
            .map(|(key, text)| (key.to_string(), serde_json::from_str(text.get()).unwrap()))
            .collect();
        for (key, value) in body {
            made[key] = value;
        }
        let made = annotated(made, &format!("kube-bind.io/{}-uid", on.other()), &from.meta.uid);
        let made = annotated(made, "kube-bind.io/projection-hash", &last.to_string());
        *self.objects.of_mut(on) = Some(made);
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Read { .. } => {}
            Op::Create { on, source, last } => {
                assert!(self.objects.of(*on).is_none(), "a creation takes nothing over");
                self.write(*on, source, None, *last);
            }
            Op::Update {
                on,
                source,
                uid,
                version,
                last,
                ..
            } => {
                assert_eq!(self.uid(*on).as_deref(), Some(&**uid));
                let known = &self.objects.of(*on).as_ref().unwrap()["metadata"]["resourceVersion"];
                assert_eq!(*known, version.to_string());
                self.write(*on, source, Some(uid), *last);
            }
            Op::Delete { on, uid, .. } => {
                assert_eq!(self.uid(*on).as_deref(), Some(&**uid));
                assert!(self.is_copy(*on), "a source is never deleted");
                self.writes += 1;
                *self.objects.of_mut(*on) = None;
            }
            Op::DeleteOrphan { on, uid, source_uid } => {
                assert_eq!(self.uid(*on).as_deref(), Some(&**uid));
                if self.uid(on.other()).as_deref() != Some(&**source_uid) {
                    assert!(self.is_copy(*on), "a source is never deleted");
                    self.writes += 1;
                    *self.objects.of_mut(*on) = None;
                }
            }
        }
    }

    fn is_copy(&self, on: Cluster) -> bool {
        let value = self.objects.of(on).as_ref().unwrap();
        !value["metadata"]["labels"]["kube-bind.io/owner"].is_null()
    }
}

fn any_object(on: Cluster) -> impl Strategy<Value = Option<Value>> {
    let plain = (0..3_u8).prop_map(move |data| with(source(on), "/data", json!({"k": data.to_string()})));
    let copied = (0..3_u8, any::<bool>(), any::<bool>()).prop_map(move |(data, own, stale)| {
        let made = with(copy(on.other()), "/data", json!({"k": data.to_string()}));
        let made = if own {
            made
        } else {
            annotated(made, &format!("kube-bind.io/{}-uid", on.other()), "someone")
        };
        if stale {
            annotated(made, "kube-bind.io/projection-hash", "")
        } else {
            made
        }
    });
    prop_oneof![
        Just(None),
        plain.prop_map(Some),
        copied.clone().prop_map(Some),
        copied.prop_map(|made| Some(annotated(made, "kube-bind.io/cluster-namespace", "kube-bind-y"))),
    ]
}

proptest! {
    /// From any state, a few rounds lead to one in which nothing is written, no source was touched, and each claimed object
    /// has its copy unless a conflict blocks that.
    #[test]
    fn it_comes_to_rest(
        consumer in any_object(Cluster::Consumer),
        provider in any_object(Cluster::Provider),
        selected: bool, withdrawn: bool, relink: bool, forget: bool,
    ) {
        let scene = Scene::new();
        let mode = Mode { withdrawn: withdrawn && !selected, relink, ..scene.mode };
        let choice = if selected { ClaimChoice::Selected } else { ClaimChoice::Unselected };
        let mut world = World { objects: Both { consumer, provider }, next: 0, writes: 0 };
        let before = world.clone();
        let mut rounds = 0;
        let last = loop {
            let mut pair = world.pair(&scene.rules, &Both::default());
            pair.compare();
            if forget {
                pair.forget_content();
                let reads = plan(&pair, mode, &|_, _| choice).ops;
                let content = reads.iter().all(|op| !matches!(op, Op::Create { .. } | Op::Update { .. }));
                prop_assert!(content, "no content, no write");
                pair = world.pair(&scene.rules, &Both::default());
                pair.compare();
            }
            let plan = plan(&pair, mode, &|_, _| choice);
            let is_at_rest = is_at_rest(&pair, &|_, _| choice, || mode.descent);
            prop_assert!(!is_at_rest || (plan.ops.is_empty() && plan.blocked.is_none()), "at rest, with a plan: {plan:?}");
            if plan.ops.is_empty() {
                break plan;
            }
            plan.ops.iter().for_each(|op| world.apply(op));
            rounds += 1;
            prop_assert!(rounds < 6, "it does not come to rest");
        };
        prop_assert!(world.writes <= 3);
        for on in BOTH {
            let was_source = before.objects.of(on).as_ref()
                .is_some_and(|value| value["metadata"]["labels"]["kube-bind.io/owner"].is_null());
            if was_source {
                prop_assert_eq!(world.objects.of(on), before.objects.of(on), "a source was written");
            }
        }
        if selected && last.blocked.is_none() {
            let pair = world.pair(&scene.rules, &Both::default());
            let sources = BOTH.iter().filter(|on| pair.sides.of(**on).as_ref().is_some_and(Side::is_source)).count();
            prop_assert!(sources == 0 || pair.parts().is_some(), "a claimed source has no copy");
        }
        if mode.withdrawn {
            let pair = world.pair(&scene.rules, &Both::default());
            prop_assert_eq!(pair.copies().count(), 0, "a copy was left behind");
        }
    }
}
