use std::time::Duration;

use bindery_api::{
    annotations::{PAUSED, TRUE},
    finalizers::SYNCER,
    v1alpha2::GroupResource,
};
use bindery_runtime::{
    cache::ObjectKey,
    watch::{Event, ObjectName},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    claims::fake::{Fake, eventually},
    drain::{
        Drain, DrainMode, DrainProgress,
        plan::DrainOp,
        state::{Collection, DrainState, DrainedObject},
    },
};

fn secrets() -> Collection {
    Collection {
        resource: GroupResource::new("", "secrets"),
        namespace: None,
    }
}

fn copy(name: &str, paused: bool) -> DrainedObject {
    let paused = if paused { TRUE } else { "false" };
    let json = json!({"metadata": {
        "namespace": "west", "name": name, "uid": format!("uid-{name}"), "annotations": {PAUSED: paused},
    }});
    serde_json::from_value(json).unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("west", name)
}

/// Copies of Secrets, of which `permit` may be paused and `broken` unreadable.
fn listed(paused: bool, with_broken: bool) -> DrainState {
    let mut state = DrainState::new(DrainMode::Copies, [secrets()]);
    assert_eq!(state.progress(), DrainProgress::default(), "nothing is listed yet");
    let broken = Event::Unreadable(ObjectName {
        namespace: "west".into(),
        name: "broken".into(),
    });
    let listed = [copy("colt", false), copy("permit", paused)].map(Event::Listed);
    let events = [Event::Reset]
        .into_iter()
        .chain(listed)
        .chain(with_broken.then_some(broken));
    for event in events {
        assert!(state.watched(&secrets(), event).is_empty());
    }
    let keys = state.watched(&secrets(), Event::Complete("1".into()));
    assert_eq!(keys.len(), 2 + usize::from(with_broken));
    state
}

#[track_caller]
fn check(state: &DrainState, remaining: usize, problem: Option<&str>) {
    let progress = state.progress();
    assert_eq!(progress.remaining, Some(remaining));
    match (problem, &progress.problem) {
        (Some(part), Some(problem)) => assert!(problem.contains(part), "{problem}"),
        (part, problem) => assert_eq!(part.is_some(), problem.is_some(), "{problem:?}"),
    }
}

#[test]
fn only_objects_that_were_read_and_are_not_paused_are_written_to() {
    let state = listed(true, true);
    let delete = |name: &str| {
        let uid = format!("uid-{name}");
        Some(DrainOp::Delete { uid })
    };
    check(&state, 3, Some("secrets: west/broken cannot be read"));
    assert_eq!(state.plan(&secrets(), &key("colt")), delete("colt"));
    assert_eq!(state.plan(&secrets(), &key("permit")), None);
    assert_eq!(state.plan(&secrets(), &key("broken")), None);
    check(&listed(true, false), 2, Some("secrets: west/permit is paused"));
    let state = listed(false, false);
    check(&state, 2, None);
    assert_eq!(state.plan(&secrets(), &key("permit")), delete("permit"));
}

#[test]
fn an_object_is_counted_until_it_is_let_go() {
    let object = |name: &str, finalizers: &[&str], paused: bool| {
        let mut object = copy(name, paused);
        let finalizers = finalizers.iter().map(|&finalizer| finalizer.to_owned());
        object.metadata.finalizers = Some(finalizers.collect());
        object
    };
    let mut state = DrainState::new(DrainMode::LetGo, [secrets()]);
    state.watched(&secrets(), Event::Reset);
    state.watched(&secrets(), Event::Listed(object("colt", &[SYNCER], false)));
    state.watched(&secrets(), Event::Listed(object("permit", &["other"], true)));
    state.watched(&secrets(), Event::Complete("1".into()));
    check(&state, 1, None);
    let op = state.plan(&secrets(), &key("colt"));
    assert!(matches!(op, Some(DrainOp::RemoveFinalizer(_))), "{op:?}");
    assert_eq!(state.plan(&secrets(), &key("permit")), None);
    state.watched(&secrets(), Event::Applied(object("colt", &[SYNCER], true)));
    check(&state, 1, Some("west/colt is paused: it is let go when"));
    state.watched(&secrets(), Event::Applied(object("colt", &[], false)));
    check(&state, 0, None);
}

#[test]
fn a_problem_ends_with_its_cause() {
    let mut state = listed(false, false);
    let forbid = |state: &mut DrainState| {
        state.attempted(&secrets(), &key("colt"), Some("forbidden".to_owned()));
        check(state, 2, Some("secrets: west/colt: forbidden"));
    };
    // The next attempt succeeds.
    forbid(&mut state);
    state.attempted(&secrets(), &key("colt"), None);
    check(&state, 2, None);
    // The object goes, and others are left.
    forbid(&mut state);
    state.watched(&secrets(), Event::Deleted(copy("colt", false)));
    check(&state, 1, None);
    state.watched(&secrets(), Event::Applied(copy("colt", false)));
    // The object is missing in the next list.
    forbid(&mut state);
    state.watched(&secrets(), Event::Listed(copy("permit", false)));
    state.watched(&secrets(), Event::Complete("2".into()));
    check(&state, 1, None);
    // The resource can be watched again, or found.
    let refused = kube::Error::Service("connection refused".into());
    state.watched(&secrets(), Event::Failed(refused));
    check(&state, 1, Some("connection refused"));
    state.watched(&secrets(), Event::Following);
    check(&state, 1, None);
    state.searched(&secrets(), Some("connection refused".to_owned()));
    check(&state, 1, Some("connection refused"));
    state.searched(&secrets(), None);
    check(&state, 1, None);
}

/// A copy that a contract brought.
fn brought(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": "west", "name": name, "labels": {
            "kube-bind.io/owner": "provider", "kube-bind.io/contract-uid": "contract-uid",
        }},
    })
}

#[tokio::test(start_paused = true)]
async fn a_refused_delete_is_shown_until_it_succeeds() {
    let consumer = Fake::new();
    let path = |name: &str| format!("/api/v1/namespaces/west/secrets/{name}");
    let mut paused = brought("permit");
    paused["metadata"]["annotations"] = json!({PAUSED: TRUE});
    consumer.put(&path("permit"), &paused);
    let drain = Drain::of_copies(&consumer.clients(), "contract-uid", vec![secrets().resource], None);
    let problem = || drain.progress().borrow().problem.clone().unwrap_or_default();
    eventually("held by the pause", || problem().contains("is paused")).await;
    consumer.forbid_deletes(true);
    consumer.put(&path("colt"), &brought("colt"));
    eventually("refused", || problem().contains("west/colt: ")).await;
    consumer.forbid_deletes(false);
    eventually("deleted", || consumer.get(&path("colt")).is_none()).await;
    sleep(Duration::from_secs(1)).await;
    assert!(problem().contains("is paused"), "{}", problem());
    assert_eq!(drain.progress().borrow().remaining, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_refused_delete_is_shown_no_longer_when_the_object_stays_for_another_reason() {
    let consumer = Fake::new();
    let path = "/api/v1/namespaces/west/secrets/colt";
    consumer.forbid_deletes(true);
    consumer.put(path, &brought("colt"));
    let drain = Drain::of_copies(&consumer.clients(), "contract-uid", vec![secrets().resource], None);
    let problem = || drain.progress().borrow().problem.clone().unwrap_or_default();
    eventually("refused", || problem().contains("west/colt: ")).await;
    let mut paused = brought("colt");
    paused["metadata"]["annotations"] = json!({PAUSED: TRUE});
    consumer.put(path, &paused);
    eventually("held by the pause", || problem().contains("west/colt is paused")).await;
    assert_eq!(drain.progress().borrow().remaining, Some(1));
}
