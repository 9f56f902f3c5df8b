use super::*;

fn live(name: &str, version: u64) -> Note<'_> {
    Note {
        scope: "a",
        name,
        gone: None,
        source: 0,
        version: Some(seen(version)),
        lane: Lane::Live,
    }
}

/// In this history, there is always the same at the same version.
fn seen(number: u64) -> Version<'static> {
    Version { number, object: &"x" }
}

fn gone(name: &str) -> Note<'_> {
    Note {
        gone: Some(Gone {
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
        }),
        version: None,
        ..live(name, 0)
    }
}

fn listed(name: &str, version: u64) -> Note<'_> {
    Note {
        lane: Lane::Backlog,
        ..live(name, version)
    }
}

fn names(dirty: &Dirty) -> Vec<&str> {
    dirty.keys().map(AsRef::as_ref).collect()
}

fn foreign(position: u64) -> Mark {
    Mark {
        instance: 0,
        sequence: 0,
        position: [position, 0],
        landmarks: ["x".landmark(), 0],
    }
}

/// A hub with one source.
fn hub() -> Arc<Hub> {
    let hub = Hub::new();
    hub.never_from(1);
    hub
}

#[tokio::test(start_paused = true)]
async fn a_burst_on_one_object_is_one_change() {
    let hub = hub();
    let (member, start) = hub.join("a", None);
    assert_eq!(start, Start::Snapshot(None));
    for version in 1..100 {
        hub.note(&live("x", version));
    }
    hub.note(&gone("y"));
    hub.note(&Note {
        scope: "b",
        ..live("other", 200)
    });
    member.changed().await;
    let (dirty, mark) = member.drain();
    assert_eq!(names(&dirty), ["x", "y"]);
    assert_eq!(dirty["y"].as_ref().map(|gone| gone.uid.as_str()), Some("uid-of-y"));
    assert_eq!(mark.position[0], 200);
    assert!(member.drain().0.is_empty());
}

#[tokio::test(start_paused = true)]
async fn on_the_same_replica_exactly_what_is_missing_is_replayed() {
    let hub = hub();
    hub.note(&listed("x", 5));
    let (member, _) = hub.join("a", None);
    let (_, mark) = member.drain();
    drop(member);
    let (again, start) = hub.join("a", Some(&mark));
    assert_eq!((start, again.drain().0.len()), (Start::Resumed, 0));
    hub.note(&live("y", 6));
    hub.note(&gone("x"));
    let (again, start) = hub.join("a", Some(&mark));
    assert_eq!((start, names(&again.drain().0)), (Start::Resumed, vec!["x", "y"]));
}

#[tokio::test(start_paused = true)]
async fn another_replica_resumes_what_it_followed_live() {
    let hub = hub();
    hub.note(&listed("x", 5));
    // Deleted between 5 and what the list showed: nobody here knows.
    assert!(matches!(hub.join("a", Some(&foreign(5))).1, Start::Snapshot(Some(_))));
    hub.note(&live("x", 8));
    hub.note(&gone("z"));
    hub.note(&live("y", 9));
    assert!(matches!(hub.join("a", Some(&foreign(7))).1, Start::Snapshot(Some(_))));
    let (member, start) = hub.join("a", Some(&foreign(8)));
    assert_eq!((start, names(&member.drain().0)), (Start::Resumed, vec!["x", "y", "z"]));
    let (member, _) = hub.join("a", Some(&foreign(9)));
    assert_eq!(names(&member.drain().0), ["y"]);
    assert_eq!(
        hub.join("a", Some(&foreign(10))).1,
        Start::Snapshot(Some("the token is ahead of this server"))
    );
    // After a gap in its own watch it knows no longer.
    hub.note(&listed("x", 20));
    assert!(matches!(hub.join("a", Some(&foreign(9))).1, Start::Snapshot(Some(_))));
}

#[tokio::test(start_paused = true)]
async fn nobody_resumes_across_a_restore() {
    let hub = hub();
    hub.note(&live("x", 8));
    hub.note(&live("y", 9));
    let elsewhere = Mark {
        landmarks: ["something else".landmark(), 0],
        ..foreign(8)
    };
    // What was there until the restore and is not any more, nobody here knows.
    assert!(matches!(hub.join("a", Some(&elsewhere)).1, Start::Snapshot(Some(_))));
    assert_eq!(hub.join("a", Some(&foreign(8))).1, Start::Resumed);
    let (_, mark) = hub.join("a", None).0.drain();
    assert_eq!(
        (mark.position, mark.landmarks),
        (foreign(9).position, foreign(9).landmarks)
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_bounded_in_number_and_age() {
    let hub = hub();
    hub.note(&live("first", 1));
    let (_, mark) = hub.join("a", None).0.drain();
    for version in 2..2 + CHANGES_MAX as u64 {
        hub.note(&live("x", version));
    }
    assert_eq!(hub.join("a", Some(&mark)).1, Start::Resumed);
    hub.note(&live("x", 5_000));
    hub.note(&live("x", 5_001));
    assert!(matches!(hub.join("a", Some(&mark)).1, Start::Snapshot(Some(_))));
    assert!(matches!(hub.join("a", Some(&foreign(3))).1, Start::Snapshot(Some(_))));
    assert_eq!(hub.state.lock().scopes["a"].changes.len(), CHANGES_MAX);

    let (_, mark) = hub.join("a", None).0.drain();
    tokio::time::advance(CHANGES_FOR * 2).await;
    assert_eq!(hub.join("a", Some(&mark)).1, Start::Resumed);
    assert!(hub.state.lock().scopes["a"].changes.is_empty());
    assert!(matches!(
        hub.join("a", Some(&foreign(4_000))).1,
        Start::Snapshot(Some(_))
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
            drop(hub.join(&format!("nobody-{number}"), None));
        }
        for version in 1..=SWEEP_EVERY {
            hub.note(&live("x", version));
        }
        assert_eq!(hub.state.lock().scopes.len(), 1);
    });
}
