//! Plans of adoption: objects that the provider made become the consumer's.

use super::*;

const ALL: Mode = Mode {
    adoption: Adoption::All,
    ..MODE
};
const OPT_IN: Mode = Mode {
    adoption: Adoption::OptIn,
    ..MODE
};
const ADOPTION: [&str; 3] = ["adopt", "transfer_ownership", "update"];

impl World {
    /// Creates the adopted object as the consumer's API server would.
    pub(super) fn adopt(&mut self, source: &Object, place: &str) {
        let (uid, version) = (self.next_uid(), self.next_version());
        let spec: Value = serde_json::from_str(source.body[0].1.get()).unwrap();
        self.consumer = Some(json!({
            "metadata": {
                "name": "billy", "namespace": "wild-west", "uid": uid, "resourceVersion": version,
                "finalizers": [bindery_api::finalizers::SYNCER],
                "annotations": {
                    annotations::PROVIDER_NAMESPACE: place, annotations::PROVIDER_UID: source.meta.uid,
                    annotations::ADOPTED: source.meta.uid,
                },
            },
            "spec": spec,
        }));
        self.show_consumer();
    }

    fn fresh(marks: &Value) -> Self {
        let mut world = Self::new();
        world.create_foreign(marks);
        world
    }

    fn owner(&self) -> Value {
        self.provider.as_ref().unwrap()["metadata"]["annotations"][annotations::CONSUMER_UID].clone()
    }
}

#[track_caller]
fn check(marks: &Value, expect: [bool; 3]) {
    for (adoption, expect) in [Adoption::Off, Adoption::OptIn, Adoption::All].into_iter().zip(expect) {
        let mut world = World::fresh(marks);
        let before = world.provider.clone();
        let (writes, blocked) = world.settle(Mode { adoption, ..MODE });
        assert_eq!(blocked, None, "{marks} {adoption}");
        if expect {
            assert_eq!(writes, ADOPTION, "{marks} {adoption}");
            assert_eq!(world.owner(), world.consumer.as_ref().unwrap()["metadata"]["uid"]);
            let other = Mode {
                adoption: Adoption::Off,
                ..MODE
            };
            assert_eq!(world.settle(other).0, [""; 0], "{marks} {adoption}");
        } else {
            assert_eq!(writes, [""; 0], "{marks} {adoption}");
            assert!(
                world.consumer.is_none() && world.provider == before,
                "{marks} {adoption}"
            );
        }
    }
}

#[test]
fn what_never_had_a_counterpart_is_adopted_where_it_is_wanted() {
    check(&json!({}), [false, false, true]);
    check(&json!({annotations::AUTOADOPT: "true"}), [false, true, true]);
    check(&json!({annotations::CLUSTER_NAMESPACE: CONTRACT}), [false, false, true]);
    check(&json!({annotations::CLUSTER_NAMESPACE: "kube-bind-x"}), [false; 3]);
    check(
        &json!({annotations::BOUND: "true", annotations::AUTOADOPT: "true"}),
        [false; 3],
    );
    check(
        &json!({annotations::CLUSTER_NAMESPACE: CONTRACT, annotations::RELEASED: "2026-01-01T00:00:00Z"}),
        [false; 3],
    );
}

#[test]
fn nothing_is_adopted_by_who_ends() {
    for mode in [Mode { draining: true, ..ALL }, Mode { closing: true, ..ALL }] {
        assert_eq!(World::fresh(&json!({})).settle(mode).0, [""; 0]);
    }
    let mut world = World::fresh(&json!({}));
    world.set_provider("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    assert_eq!(world.settle(ALL).0, [""; 0]);
}

#[test]
fn status_follows_and_the_end_is_the_consumers() {
    let mut world = World::fresh(&json!({annotations::AUTOADOPT: "true"}));
    world.set_provider("/status", json!({"result": "done"}));
    assert_eq!(
        world.settle(OPT_IN).0,
        ["adopt", "transfer_ownership", "status", "update"]
    );
    assert_eq!(world.consumer.as_ref().unwrap()["status"], json!({"result": "done"}));
    world.delete_consumer();
    assert_eq!(world.settle(OPT_IN).0, ["delete_provider", "release"]);
}

#[test]
fn an_adoption_that_was_broken_off_is_finished_in_any_mode() {
    let begun = || {
        let mut world = World::fresh(&json!({}));
        for op in world.plan(ALL).ops {
            world.apply(&op);
        }
        world.writes.clear();
        world
    };
    assert_eq!(begun().settle(MODE).0, ["transfer_ownership", "update"]);
    // A change that the user made in between counts.
    let mut world = begun();
    world.set_consumer("/spec/intent", json!("edited"));
    world.settle(MODE);
    assert_eq!(world.provider.as_ref().unwrap()["spec"]["intent"], "edited");
    let mut world = begun();
    world.delete_consumer();
    assert_eq!(world.settle(MODE).0, ["delete_provider", "release"]);
    assert!(world.consumer.is_none() && world.provider.is_none());
}

#[test]
fn two_that_say_the_same_are_linked_and_others_are_a_conflict() {
    let both = |intent: Value| {
        let mut world = World::fresh(&json!({}));
        world.create_consumer(1);
        world.set_consumer("/spec/intent", intent);
        world
    };
    assert_eq!(
        both(json!("theirs")).settle(ALL),
        (vec!["transfer_ownership", "update", "hold"], None)
    );
    assert_eq!(both(json!("theirs")).settle(MODE), (vec![], Some(Blocked::Unmarked)));
    assert_eq!(both(json!("theirs")).settle(OPT_IN), (vec![], Some(Blocked::Unmarked)));
    let mut world = both(json!("ours"));
    let before = world.provider.clone();
    assert_eq!(world.settle(ALL), (vec![], Some(Blocked::Differs)));
    world.delete_consumer();
    world.settle(MODE);
    assert_eq!(world.provider, before);
}

#[test]
fn fields_are_transferred_anew_after_another_write() {
    let mut world = World::fresh(&json!({}));
    for expect in ["adopt", "transfer_ownership"] {
        for op in world.plan(ALL).ops {
            world.apply(&op);
        }
        assert_eq!(world.writes.pop(), Some(expect));
    }
    // The watch shows the transfer a second time, and then what the provider wrote.
    world.show_provider();
    assert!(matches!(world.plan(ALL).ops[..], [Op::Update { .. }]));
    world.set_provider("/metadata/labels", json!({"by": "the provider"}));
    assert_eq!(world.settle(ALL).0, ["transfer_ownership", "update"]);
}

#[test]
fn marks_that_are_taken_off_are_put_back_once_for_each_content() {
    let mut world = World::fresh(&json!({}));
    world.settle(ALL);
    let strip = |world: &mut World| world.set_provider("/metadata/annotations", json!({}));
    for _ in 0..2 {
        strip(&mut world);
        assert_eq!(world.settle(ALL), (vec![], Some(Blocked::Drift)));
    }
    world.set_consumer("/spec/intent", json!("edited"));
    assert_eq!(world.settle(ALL).0, ["transfer_ownership", "update"]);
    strip(&mut world);
    assert_eq!(world.settle(ALL).0, [""; 0]);
    world.delete_consumer();
    assert_eq!(world.settle(ALL).0, ["delete_provider", "release"]);
}

#[test]
fn a_mark_that_is_missing_is_laid_once() {
    let mut world = World::new();
    world.create_consumer(1);
    world.settle(MODE);
    let strip = |world: &mut World| {
        let mut marks = world.provider.as_ref().unwrap()["metadata"]["annotations"].clone();
        marks.as_object_mut().unwrap().remove(annotations::BOUND);
        world.set_provider("/metadata/annotations", marks);
    };
    strip(&mut world);
    assert_eq!(world.settle(MODE), (vec!["update"], None));
    strip(&mut world);
    assert_eq!(world.settle(MODE), (vec![], None), "somebody insists");
}
