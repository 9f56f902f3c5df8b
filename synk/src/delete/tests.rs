use std::time::Duration;

use http::Method;
use serde_json::json;

use super::*;
use crate::{apply::Options, input, report::Event, synk::Synk, testing::Memory};

const SETS: &str = "/apis/apps.cloudrobotics.com/v1alpha1/resourcesets";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/synk-web";
const OBJECT: &str = "/api/v1/namespaces/shop/configmaps/a";

fn set() -> SetName {
    "web".parse().unwrap()
}

async fn applied(memory: &Memory) -> Synk {
    applied_in(memory, "shop", "1").await
}

async fn applied_in(memory: &Memory, namespace: &str, value: &str) -> Synk {
    let synk = Synk::new(memory.clients());
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"key": value}});
    let manifests = input::parse("set.json", &object.to_string()).unwrap();
    let target = Target {
        set: set(),
        namespace: namespace.to_owned(),
    };
    let mut options = Options::default();
    options.allowed.take_over = true;
    options.allowed.prune = true;
    Box::pin(synk.apply(&target, &manifests, &options, &|_| {}))
        .await
        .unwrap();
    synk
}

fn in_namespace(namespace: &str) -> Deletion {
    Deletion {
        namespace: Some(namespace.to_owned()),
        ..Deletion::default()
    }
}

/// A Lease of the set that another process holds or held.
fn lease_of_another() -> serde_json::Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "synk-web"},
        "spec": {"holderIdentity": "ada@elsewhere-7-0a", "leaseDurationSeconds": 15},
    })
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_wherever_the_first_attempt_ended() {
    for writes in 0.. {
        let memory = Memory::default();
        let synk = applied(&memory).await;
        assert!(memory.paths().len() > 1, "there is more than the object");
        memory.end_after(Some(writes));
        let first = synk.delete(&set(), &Deletion::default(), &|_| {}).await;
        memory.end_after(None);
        if first.is_ok() {
            assert!(writes > 2, "{writes}");
            break;
        }
        let deleted = synk.delete(&set(), &Deletion::default(), &|_| {}).await.unwrap();
        assert_eq!(deleted.versions, [set().version(1)]);
        assert_eq!(memory.paths(), Vec::<String>::new(), "after {writes} writes");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_said_to_be_not() {
    let memory = Memory::default();
    let synk = applied(&memory).await;
    let none = "none".parse().unwrap();
    let how = Deletion {
        timeout: Duration::from_secs(1),
        ..Deletion::default()
    };
    assert!(matches!(
        synk.delete(&none, &how, &|_| {}).await,
        Err(Failure::NoSet(_))
    ));
    let absent = set().version(7);
    let outcome = synk.delete_version(&absent, &how, &|_| {}).await;
    assert!(matches!(outcome, Err(Failure::NoVersion { .. })));
    synk.delete_version(&set().version(1), &how, &|_| {}).await.unwrap();
    assert_eq!(memory.paths(), Vec::<String>::new());
}

/// Checks a deletion during which another apply ends while the deletion waits for the Lease.
async fn check_overtaken(namespace: &'static str) {
    let memory = Memory::default();
    let synk = applied(&memory).await;
    memory.put(LEASE, lease_of_another());
    let other = memory.clone();
    let apply = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        other.remove(LEASE);
        applied_in(&other, namespace, "2").await;
    });
    let deleted = synk.delete(&set(), &Deletion::default(), &|_| {}).await.unwrap();
    apply.await.unwrap();
    assert_eq!(deleted.versions, [set().version(2)]);
    assert_eq!(memory.paths(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_was_applied_until_the_lease_was_had_goes_as_well() {
    check_overtaken("shop").await;
}

#[tokio::test(start_paused = true)]
async fn a_set_that_was_moved_until_the_lease_was_had_goes_from_where_it_is() {
    check_overtaken("elsewhere").await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_went_meanwhile_takes_no_history_with_it() {
    let memory = Memory::default();
    let synk = applied(&memory).await;
    memory.put(LEASE, lease_of_another());
    let other = memory.clone();
    let apply = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        other.remove(LEASE);
        applied_in(&other, "shop", "2").await;
    });
    let how = Deletion::default();
    let deleted = synk.delete_version(&set().version(1), &how, &|_| {}).await.unwrap();
    apply.await.unwrap();
    assert_eq!(deleted.versions, [set().version(1)]);
    let left = memory.paths();
    assert_eq!(
        left.iter().filter(|path| path.contains("/secrets/")).count(),
        2,
        "{left:?}"
    );
    assert!(left.iter().any(|path| path.ends_with("/web.v2")), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn another_namespace_than_the_one_of_the_set_is_refused() {
    let memory = Memory::default();
    let synk = applied(&memory).await;
    memory.writes();
    let refused = synk
        .delete(&set(), &in_namespace("elsewhere"), &|_| {})
        .await
        .unwrap_err();
    assert_eq!(refused.reason(), "OtherNamespace");
    assert!(refused.to_string().contains("web is in namespace shop"), "{refused}");
    let refused = synk.target(&set(), Some("elsewhere")).await.unwrap_err();
    assert_eq!(refused.reason(), "OtherNamespace");
    assert_eq!(memory.writes(), Vec::<String>::new());
    synk.delete(&set(), &in_namespace("shop"), &|_| {}).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_set_that_notes_no_namespace_is_deleted_from_the_one_that_is_given() {
    let memory = Memory::default();
    let synk = applied(&memory).await;
    let path = format!("{SETS}/web.v1");
    let mut noted = memory.get(&path).unwrap();
    noted["metadata"]["annotations"] = json!({});
    memory.put(&path, noted);
    synk.delete(&set(), &in_namespace("shop"), &|_| {}).await.unwrap();
    assert_eq!(memory.paths(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_a_deletion_that_was_killed_left_goes_with_the_next() {
    let memory = Memory::default();
    let synk = applied(&memory).await;
    memory.remove(&format!("{SETS}/web.v1"));
    memory.remove(OBJECT);
    memory.put(LEASE, lease_of_another());
    assert!(memory.paths().len() > 1);
    let absent = synk.delete(&set(), &in_namespace("shop"), &|_| {}).await.unwrap_err();
    assert_eq!(absent.reason(), "NotFound");
    assert_eq!(memory.paths(), Vec::<String>::new());
    memory.writes();
    let absent = synk.delete(&set(), &in_namespace("shop"), &|_| {}).await.unwrap_err();
    assert_eq!(absent.reason(), "NotFound");
    assert_eq!(memory.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_holds_a_deletion_up_is_told() {
    let memory = Memory::default();
    let synk = applied(&memory).await;
    let mut version = memory.get(&format!("{SETS}/web.v1")).unwrap();
    version["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    memory.put(&format!("{SETS}/web.v1"), version);
    let mut object = memory.get(OBJECT).unwrap();
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    object["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    memory.put(OBJECT, object);
    let told = parking_lot::Mutex::new(Vec::new());
    let listen = |event: Event<'_>| {
        if let Event::Waiting { object, reason, count } = event {
            told.lock().push(format!("{object}: {reason} {count}"));
        }
    };
    let how = Deletion {
        timeout: Duration::from_secs(20),
        ..Deletion::default()
    };
    let late = synk.delete(&set(), &how, &listen).await.unwrap_err();
    assert_eq!(late.reason(), "TimedOut");
    let text = late.to_string();
    assert!(
        text.contains("configmap/a in namespace shop (finalizer example.com/hold)"),
        "{text}"
    );
    let told = told.into_inner();
    assert_eq!(
        told.first().map(String::as_str),
        Some("configmap/a in namespace shop: finalizer example.com/hold 1")
    );
    assert!(told.len() > 2, "it is told while it waits");
}

/// An applied set with an object that does not disappear by itself after its deletion.
async fn applied_and_held() -> (Memory, Synk) {
    let memory = Memory::default();
    let synk = applied(&memory).await;
    let mut object = memory.get(OBJECT).unwrap();
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    memory.put(OBJECT, object);
    (memory, synk)
}

#[tokio::test(start_paused = true)]
async fn what_outlives_its_set_is_waited_for() {
    let (memory, synk) = applied_and_held().await;
    let how = Deletion {
        timeout: Duration::from_secs(20),
        ..Deletion::default()
    };
    let late = synk.delete(&set(), &how, &|_| {}).await.unwrap_err();
    assert!(memory.get(&format!("{SETS}/web.v1")).is_none());
    let text = late.to_string();
    assert!(text.contains("1 of what web.v1 owns is left"), "{text}");

    let (memory, synk) = applied_and_held().await;
    let other = memory.clone();
    let holder = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(7)).await;
        other.remove(OBJECT);
    });
    synk.delete(&set(), &how, &|_| {}).await.unwrap();
    assert!(holder.is_finished());
    assert_eq!(memory.paths(), Vec::<String>::new());
}

/// An API server that fails for a moment says nothing of what is left; one that refuses to tell is not asked again.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_not_taken_for_gone() {
    const OBJECTS: &str = "/api/v1/namespaces/shop/configmaps";
    let how = Deletion {
        timeout: Duration::from_secs(20),
        ..Deletion::default()
    };
    let (memory, synk) = applied_and_held().await;
    memory.fault(Method::GET, OBJECTS, 500);
    let late = synk.delete(&set(), &how, &|_| {}).await.unwrap_err();
    let text = late.to_string();
    assert!(text.contains("it cannot be read what is left of web.v1"), "{text}");

    let (memory, synk) = applied_and_held().await;
    memory.fault(Method::GET, OBJECTS, 500);
    let other = memory.clone();
    let holder = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        other.mend();
        tokio::time::sleep(Duration::from_secs(4)).await;
        other.remove(OBJECT);
    });
    synk.delete(&set(), &how, &|_| {}).await.unwrap();
    assert!(holder.is_finished());

    let (memory, synk) = applied_and_held().await;
    memory.fault(Method::GET, OBJECTS, 403);
    synk.delete(&set(), &how, &|_| {}).await.unwrap();
    assert!(memory.get(OBJECT).is_some());
}
