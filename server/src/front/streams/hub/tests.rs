use super::*;

/// A change of an object in scope `a`, or in the scope that a test sets.
struct Change<'a> {
    scope: &'a str,
    name: &'a str,
    removed: Option<RemovedObject>,
    version: Option<u64>,
    priority: Priority,
}

impl Hub {
    /// Records a change. In this history, every version has the same content.
    fn note(&self, change: &Change<'_>) {
        let progress = Progress {
            kind: 0,
            version: change.version.map(|number| Version { number, object: &"x" }),
            priority: change.priority,
        };
        self.record([change.scope], change.name, change.removed.as_ref(), progress);
    }
}

fn live(name: &str, version: u64) -> Change<'_> {
    Change {
        scope: "a",
        name,
        removed: None,
        version: Some(version),
        priority: Priority::Live,
    }
}

fn removed(name: &str) -> Change<'_> {
    Change {
        removed: Some(RemovedObject {
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
        }),
        version: None,
        ..live(name, 0)
    }
}

fn listed(name: &str, version: u64) -> Change<'_> {
    Change {
        priority: Priority::Backlog,
        ..live(name, version)
    }
}

fn names(changed: &ChangedNames) -> Vec<&str> {
    changed.keys().map(AsRef::as_ref).collect()
}

fn foreign(version: u64) -> Cursor {
    Cursor {
        instance: 0,
        sequence: 0,
        versions: [version, 0],
        checksums: ["x".checksum(), 0],
    }
}

/// A hub with one kind.
fn hub() -> Arc<Hub> {
    let hub = Hub::new();
    hub.disable_kind(1);
    hub
}

#[tokio::test(start_paused = true)]
async fn a_burst_on_one_object_is_one_change() {
    let hub = hub();
    let (subscriber, start) = hub.subscribe(["a"], None);
    assert_eq!(start, StreamStart::Snapshot(None));
    for version in 1..100 {
        hub.note(&live("x", version));
    }
    hub.note(&removed("y"));
    hub.note(&Change {
        scope: "b",
        ..live("other", 200)
    });
    subscriber.changed().await;
    let (changed, cursor) = subscriber.drain();
    assert_eq!(names(&changed), ["x", "y"]);
    assert_eq!(
        changed["y"].as_ref().map(|removed| removed.uid.as_str()),
        Some("uid-of-y")
    );
    assert_eq!(cursor.versions[0], 200);
    assert!(subscriber.drain().0.is_empty());
}

#[tokio::test(start_paused = true)]
async fn on_the_same_replica_exactly_what_is_missing_is_replayed() {
    let hub = hub();
    hub.note(&listed("x", 5));
    let (subscriber, _) = hub.subscribe(["a"], None);
    let (_, cursor) = subscriber.drain();
    drop(subscriber);
    let (again, start) = hub.subscribe(["a"], Some(&cursor));
    assert_eq!((start, again.drain().0.len()), (StreamStart::Resumed, 0));
    hub.note(&live("y", 6));
    hub.note(&removed("x"));
    let (again, start) = hub.subscribe(["a"], Some(&cursor));
    assert_eq!((start, names(&again.drain().0)), (StreamStart::Resumed, vec!["x", "y"]));
}

#[tokio::test(start_paused = true)]
async fn another_replica_resumes_what_it_followed_live() {
    let hub = hub();
    hub.note(&listed("x", 5));
    // This replica cannot know which objects were deleted between version 5 and the list.
    assert!(matches!(
        hub.subscribe(["a"], Some(&foreign(5))).1,
        StreamStart::Snapshot(Some(_))
    ));
    hub.note(&live("x", 8));
    hub.note(&removed("z"));
    hub.note(&live("y", 9));
    assert!(matches!(
        hub.subscribe(["a"], Some(&foreign(7))).1,
        StreamStart::Snapshot(Some(_))
    ));
    let (subscriber, start) = hub.subscribe(["a"], Some(&foreign(8)));
    assert_eq!(
        (start, names(&subscriber.drain().0)),
        (StreamStart::Resumed, vec!["x", "y", "z"])
    );
    let (subscriber, _) = hub.subscribe(["a"], Some(&foreign(9)));
    assert_eq!(names(&subscriber.drain().0), ["y"]);
    assert_eq!(
        hub.subscribe(["a"], Some(&foreign(10))).1,
        StreamStart::Snapshot(Some("the token is ahead of this server"))
    );
    // After a gap in its own watch it knows no longer.
    hub.note(&listed("x", 20));
    assert!(matches!(
        hub.subscribe(["a"], Some(&foreign(9))).1,
        StreamStart::Snapshot(Some(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn nobody_resumes_across_a_restore() {
    let hub = hub();
    hub.note(&live("x", 8));
    hub.note(&live("y", 9));
    let elsewhere = Cursor {
        checksums: ["something else".checksum(), 0],
        ..foreign(8)
    };
    // This replica cannot know which objects the restore removed.
    assert!(matches!(
        hub.subscribe(["a"], Some(&elsewhere)).1,
        StreamStart::Snapshot(Some(_))
    ));
    assert_eq!(hub.subscribe(["a"], Some(&foreign(8))).1, StreamStart::Resumed);
    let (_, cursor) = hub.subscribe(["a"], None).0.drain();
    assert_eq!(
        (cursor.versions, cursor.checksums),
        (foreign(9).versions, foreign(9).checksums)
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_bounded_in_number_and_age() {
    let hub = hub();
    hub.note(&live("first", 1));
    let (_, cursor) = hub.subscribe(["a"], None).0.drain();
    for version in 2..2 + CHANGES_MAX as u64 {
        hub.note(&live("x", version));
    }
    assert_eq!(hub.subscribe(["a"], Some(&cursor)).1, StreamStart::Resumed);
    hub.note(&live("x", 5_000));
    hub.note(&live("x", 5_001));
    assert!(matches!(
        hub.subscribe(["a"], Some(&cursor)).1,
        StreamStart::Snapshot(Some(_))
    ));
    assert!(matches!(
        hub.subscribe(["a"], Some(&foreign(3))).1,
        StreamStart::Snapshot(Some(_))
    ));
    assert_eq!(hub.state.lock().scopes["a"].changes.len(), CHANGES_MAX);

    let (_, cursor) = hub.subscribe(["a"], None).0.drain();
    tokio::time::advance(CHANGES_FOR * 2).await;
    assert_eq!(hub.subscribe(["a"], Some(&cursor)).1, StreamStart::Resumed);
    assert!(hub.state.lock().scopes["a"].changes.is_empty());
    assert!(matches!(
        hub.subscribe(["a"], Some(&foreign(4_000))).1,
        StreamStart::Snapshot(Some(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_behind_is_waited_for() {
    let hub = hub();
    hub.note(&live("x", 8));
    assert!(hub.reached(&foreign(8), Duration::from_secs(5)).await);
    assert!(!hub.reached(&foreign(9), Duration::from_secs(5)).await);
    let waiting = tokio::spawn({
        let hub = Arc::clone(&hub);
        async move { hub.reached(&foreign(9), Duration::from_secs(5)).await }
    });
    tokio::time::advance(Duration::from_secs(1)).await;
    hub.note(&live("x", 9));
    assert!(waiting.await.expect("an answer"));
}

#[test]
fn scopes_that_nobody_watches_are_forgotten() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let hub = hub();
        for number in 0..100 {
            drop(hub.subscribe([format!("nobody-{number}").as_str()], None));
        }
        for version in 1..=SWEEP_EVERY {
            hub.note(&live("x", version));
        }
        assert_eq!(hub.state.lock().scopes.len(), 1);
    });
}

/// An object whose checksum can be computed only while the lock of the hub is free.
#[derive(Debug)]
struct Unlocked(Arc<Hub>);

impl serde::Serialize for Unlocked {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert!(
            self.0.state.try_lock().is_some(),
            "the checksum is computed under the lock"
        );
        serializer.serialize_unit()
    }
}

#[tokio::test]
async fn checksums_are_computed_outside_of_the_lock_in_a_first_list_too() {
    let hub = hub();
    let object = Unlocked(Arc::clone(&hub));
    for (number, priority) in [(1, Priority::Backlog), (2, Priority::Backlog), (3, Priority::Live)] {
        let version = Some(Version {
            number,
            object: &object,
        });
        let progress = Progress {
            kind: 0,
            version,
            priority,
        };
        hub.record(["a"], "x", None, progress);
    }
    let (_, cursor) = hub.subscribe(["a"], None).0.drain();
    assert_eq!((cursor.versions[0], cursor.checksums[0]), (3, ().checksum()));
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_of_several_scopes_gets_the_changes_of_each_and_resumes_if_none_is_forgotten() {
    let hub = hub();
    let in_scope = |scope, name, version| Change {
        scope,
        ..live(name, version)
    };
    let (subscriber, start) = hub.subscribe(["a", "b"], None);
    assert_eq!(start, StreamStart::Snapshot(None));
    for change in [in_scope("a", "x", 1), in_scope("b", "y", 2), in_scope("c", "z", 3)] {
        hub.note(&change);
    }
    subscriber.changed().await;
    let (changed, cursor) = subscriber.drain();
    assert_eq!(names(&changed), ["x", "y"]);
    hub.note(&in_scope("b", "w", 4));
    let (again, start) = hub.subscribe(["a", "b"], Some(&cursor));
    assert_eq!((start, names(&again.drain().0)), (StreamStart::Resumed, vec!["w"]));
    for version in 5..5 + CHANGES_MAX as u64 {
        hub.note(&in_scope("b", "w", version));
    }
    let (_, start) = hub.subscribe(["a", "b"], Some(&cursor));
    assert!(matches!(start, StreamStart::Snapshot(Some(_))), "{start:?}");
    assert_eq!(hub.subscribe(["a", "c"], Some(&cursor)).1, StreamStart::Resumed);
}
