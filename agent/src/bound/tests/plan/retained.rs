//! Plans of retention: the copy of a deleted object stays, and the object is restored from it.

use super::*;
use crate::bound::retention::{Marks, mark, relink, restore, retain};

const RETAINS: Mode = Mode {
    retains: true,
    suspends: true,
    ..MODE
};
const RESTORES: Mode = Mode {
    ends_retention: Some(RetentionAction::Restore),
    ..RETAINS
};
const DISCARDS: Mode = Mode {
    ends_retention: Some(RetentionAction::Discard),
    ..RETAINS
};

impl World {
    /// Merges a patch of a copy's retention as the provider's API server would.
    pub(super) fn mark_copy(&mut self, op: &Op) {
        if let Op::Retain {
            uid,
            version,
            keeps: true,
            ..
        } = op
            && self.crd_ends
        {
            self.writes.pop();
            return self.apply(&Op::ReleaseProvider {
                uid: Arc::clone(uid),
                version: *version,
            });
        }
        let suspend = json!({"spec": {"intent": "suspended", "paused": true}});
        let (patch, owner) = match op {
            Op::Retain {
                uid,
                version,
                source_uid,
                content,
                ..
            } => {
                let marks = Marks {
                    uid,
                    version: *version,
                    namespace: "wild-west",
                    mark: mark(source_uid, CONTRACT),
                };
                (retain(&marks, content.as_deref(), Some(&suspend)), None)
            }
            Op::Restore { uid } => (restore(uid), None),
            Op::Relink {
                copy,
                version,
                source_uid,
            } => {
                let owner = Owner::Ours {
                    source_uid: source_uid.into(),
                };
                (relink(copy, *version, source_uid), Some(owner))
            }
            _ => unreachable!("it marks no copy"),
        };
        let copy = self.provider.as_mut().unwrap();
        let (meta, wanted) = (&copy["metadata"], &patch["metadata"]);
        assert_eq!(meta["uid"], wanted["uid"]);
        assert!(wanted["resourceVersion"].is_null() || meta["resourceVersion"] == wanted["resourceVersion"]);
        bindery_api::retention::merge(copy, &patch);
        let version = self.next_version();
        set(
            self.provider.as_mut().unwrap(),
            "/metadata/resourceVersion",
            json!(version),
        );
        let shown = Provider::of(parse(self.provider.as_ref().unwrap()), CONTRACT, "wild-west", false);
        let (uid, version) = (shown.uid.text(), Version(self.version));
        let learned = match op {
            Op::Restore { .. } => Learned::Restoring { uid, version },
            _ => Learned::Remarked {
                uid,
                version,
                owner: owner.unwrap_or(shown.owner),
            },
        };
        let planned = self.planned();
        self.index.learn(&Self::key(), learned, &planned);
        // The watch shows the write after its answer.
        self.show_provider();
    }

    /// An object in sync with its copy.
    fn in_sync() -> Self {
        let mut world = Self::new();
        world.create_consumer(1);
        world.settle(RETAINS);
        world.set_provider("/status", json!({"result": "tamed"}));
        world.settle(RETAINS);
        world
    }

    /// A copy that is retained.
    fn retained() -> Self {
        let mut world = Self::in_sync();
        world.delete_consumer();
        assert_eq!(world.settle(RETAINS), (vec!["retain", "release"], None));
        world
    }

    fn copy(&self) -> &Value {
        self.provider.as_ref().unwrap()
    }

    fn is_in_sync(&self) {
        let (source, copy) = (self.consumer.as_ref().unwrap(), self.copy());
        assert_eq!(source["spec"]["intent"], 1);
        assert_eq!(copy["spec"], source["spec"]);
        assert_eq!(source["status"]["result"], "tamed");
        assert!(copy["metadata"]["annotations"][annotations::RETAINED].is_null());
    }
}

#[test]
fn the_copy_of_a_deleted_object_stays_and_is_suspended() {
    let mut world = World::retained();
    assert!(world.consumer.is_none());
    assert_eq!(world.copy()["spec"], json!({"intent": "suspended", "paused": true}));
    let retained = world.index.retained();
    assert_eq!((retained.count, retained.first.len()), (1, 1));
    assert_eq!(world.index.orphan_count(), 0);
    assert!(world.index.may_hold_copies(&"wild-west".into()));
    assert_eq!(world.settle(RETAINS), (vec![], None));
    assert_eq!(world.index.remaining(), 0, "an unbind does not wait for it");
}

#[test]
fn a_crash_between_two_writes_repeats_none() {
    let mut world = World::in_sync();
    world.delete_consumer();
    loop {
        let op = world.plan(RETAINS).ops.remove(0);
        world.apply(&op);
        if matches!(op, Op::Retain { .. }) {
            break;
        }
    }
    world.happen(&Event::Restart);
    assert_eq!(world.settle(RETAINS), (vec!["release"], None));
}

#[test]
fn an_object_is_restored_with_its_status() {
    let mut world = World::retained();
    let (writes, blocked) = world.settle(RESTORES);
    assert_eq!((&writes[..3], blocked), (&["restore", "adopt", "relink"][..], None));
    world.is_in_sync();
    assert_eq!(world.settle(RETAINS), (vec![], None));
}

#[test]
fn a_restore_that_was_interrupted_is_finished_without_the_order() {
    for steps in 1..5 {
        let mut world = World::retained();
        let mut left = steps;
        while left > 0 {
            let op = world.plan(RESTORES).ops.remove(0);
            left -= usize::from(!matches!(op, Op::ReadConsumer | Op::ReadProvider));
            world.apply(&op);
        }
        world.happen(&Event::Restart);
        world.settle(RETAINS);
        world.is_in_sync();
    }
}

#[test]
fn a_restore_that_the_provider_went_back_from_is_finished_again() {
    let mut world = World::retained();
    let backup = world.provider.clone();
    world.settle(RESTORES);
    world.provider = backup;
    world.index.provider_rewound(&"wild-west".into());
    world.show_provider();
    let (writes, blocked) = world.settle(RETAINS);
    assert!(
        writes.contains(&"relink") && blocked.is_none(),
        "{writes:?} {blocked:?}"
    );
    world.is_in_sync();
}

#[test]
fn what_is_deleted_again_while_it_is_restored_is_retained_as_it_was() {
    let mut world = World::retained();
    while world.consumer.is_none() {
        let op = world.plan(RESTORES).ops.remove(0);
        world.apply(&op);
    }
    world.delete_consumer();
    assert_eq!(world.settle(RETAINS), (vec!["retain", "release"], None));
    assert!(world.consumer.is_none());
    world.settle(RESTORES);
    world.is_in_sync();
}

#[test]
fn the_name_is_blocked_until_the_copy_is_discarded() {
    let mut world = World::retained();
    world.create_consumer(2);
    assert_eq!(world.settle(RETAINS), (vec![], Some(Blocked::Retained(None))));
    let mut marks = world.copy()["metadata"]["annotations"].clone();
    marks[annotations::RETAINED_UNTIL] = json!("2026-02-01T00:00:00Z");
    world.set_provider("/metadata/annotations", marks);
    let until = "2026-02-01T00:00:00Z".parse().ok();
    assert_eq!(world.settle(RETAINS), (vec![], Some(Blocked::Retained(until))));
    assert_eq!(world.settle(DISCARDS), (vec!["discard", "create", "hold"], None));

    let mut world = World::retained();
    world.create_consumer(2);
    world.delete_consumer();
    assert!(world.consumer.is_none(), "it has no finalizer of ours");
    assert_eq!(world.settle(DISCARDS), (vec!["discard"], None));
}

#[test]
fn an_end_that_was_seen_without_our_finalizer_is_a_deletion_too() {
    let mut world = World::in_sync();
    let uid = world.consumer.take().unwrap()["metadata"]["uid"]
        .as_str()
        .unwrap()
        .to_owned();
    world.index.consumer_deleted(&World::key(), Some(&uid));
    assert_eq!(world.settle(RETAINS), (vec!["retain"], None));
}

#[test]
fn an_unbind_retains_and_a_crd_that_ends_releases() {
    let mut world = World::in_sync();
    let draining = Mode {
        draining: true,
        ..RETAINS
    };
    assert_eq!(
        world.settle(draining),
        (vec!["delete_consumer", "retain", "release"], None)
    );
    let mut world = World::in_sync();
    world.crd_ends = true;
    world.delete_consumer();
    let keeps = Mode { keeps: true, ..RETAINS };
    assert_eq!(world.settle(keeps), (vec!["release_provider", "release"], None));
}

#[test]
fn where_objects_are_kept_an_unbind_releases_and_retains_none() {
    let ends = Mode {
        keeps: true,
        draining: true,
        ..RETAINS
    };
    let mut world = World::in_sync();
    assert_eq!(world.settle(ends).0, ["delete_consumer", "release_provider", "release"]);
    let is_retained = |world: &World| !world.copy()["metadata"]["annotations"][annotations::RETAINED].is_null();
    assert!(!is_retained(&world));
    assert_eq!(world.copy()["spec"], json!({"intent": 1}));

    let mut world = World::retained();
    assert_eq!(
        world.settle(ends),
        (vec![], None),
        "what was deleted before ends as it would have"
    );
    while world.consumer.is_none() {
        let op = world.plan(RESTORES).ops.remove(0);
        world.apply(&op);
    }
    assert_eq!(
        world.settle(ends).0,
        ["delete_consumer", "relink", "release_provider", "release"],
        "what is restored is released as it was"
    );
    assert!(!is_retained(&world));
    assert_eq!(world.copy()["spec"], json!({"intent": 1}));
}

#[test]
fn a_source_that_is_back_has_its_copy_again() {
    let mut world = World::in_sync();
    let before = world.consumer.clone();
    world.delete_consumer();
    world.settle(RETAINS);
    world.consumer = before;
    world.index.consumer_rewound(None);
    world.show_consumer();
    world.settle(RETAINS);
    world.is_in_sync();
}

/// The operations that delete a copy.
const DELETIONS: [&str; 3] = ["delete_provider", "delete_orphan", "discard"];

proptest! {
    #[test]
    fn no_history_deletes_a_copy_where_copies_are_retained(events in prop::collection::vec(event(), 0..24)) {
        let mut world = World::new();
        for event in &events {
            if !matches!(event, Event::Settle) {
                world.happen(event);
                continue;
            }
            let (writes, _) = world.settle(RETAINS);
            prop_assert!(!writes.iter().any(|write| DELETIONS.contains(write)), "{writes:?}");
        }
        let (writes, _) = world.settle(RETAINS);
        prop_assert!(!writes.iter().any(|write| DELETIONS.contains(write)), "{writes:?}");
        let (again, _) = world.settle(RETAINS);
        prop_assert!(again.is_empty(), "not idempotent: {again:?}");
    }
}
